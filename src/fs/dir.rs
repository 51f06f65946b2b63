//! Directories: creating them, and reading their entries.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::{FileType, Metadata};
use crate::engine::door::may_block;

/// An iterator over the entries of a directory, like [`std::fs::ReadDir`].
///
/// It is created by [`read_dir`](super::read_dir). Each item is a [`DirEntry`], or an error of
/// `readdir(3)`.
///
/// # Examples
///
/// ```
/// use greenthread::fs;
///
/// let entries: fs::ReadDir = fs::read_dir("src")?;
/// assert!(entries.count() > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadDir(pub(super) fs::ReadDir);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let entry = may_block(|| self.0.next())?;
        Some(entry.map(DirEntry))
    }
}

/// An entry of a directory, like [`std::fs::DirEntry`].
///
/// # Examples
///
/// ```
/// use greenthread::fs;
///
/// for entry in fs::read_dir("src")? {
///     let entry: fs::DirEntry = entry?;
///     println!("{:?}", entry.file_name());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DirEntry(fs::DirEntry);

impl DirEntry {
    /// Returns the entry's path: the path of the directory, as it was given, joined with the
    /// entry's name.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// for entry in fs::read_dir("src")? {
    ///     assert!(entry?.path().starts_with("src"));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the metadata of the entry, without following a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns the errors of `statx(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// let mut bytes = 0;
    /// for entry in fs::read_dir("src")? {
    ///     bytes += entry?.metadata()?.len();
    /// }
    /// assert!(bytes > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        may_block(|| self.0.metadata())
    }

    /// Returns the type of the entry, without following a symbolic link.
    ///
    /// On most file systems this needs no further system call.
    ///
    /// # Errors
    ///
    /// Returns the errors of `statx(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// for entry in fs::read_dir("src")? {
    ///     let entry = entry?;
    ///     if entry.file_type()?.is_dir() {
    ///         println!("{:?} is a directory", entry.path());
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn file_type(&self) -> io::Result<FileType> {
        may_block(|| self.0.file_type())
    }

    /// Returns the entry's name, without the path of the directory.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// let mut found = false;
    /// for entry in fs::read_dir("src")? {
    ///     found |= entry?.file_name() == "lib.rs";
    /// }
    /// assert!(found);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.0.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Configures and creates directories, like [`std::fs::DirBuilder`].
///
/// std's trait `DirBuilderExt` applies to it too.
///
/// # Examples
///
/// ```
/// use greenthread::fs::DirBuilder;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-dir-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// DirBuilder::new().recursive(true).create(directory.join("a/b"))?;
/// assert!(directory.join("a/b").is_dir());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl DirBuilder {
    /// Creates a builder that is not recursive and gives directories the permissions that the
    /// `umask` allows.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::DirBuilder;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-dirbuilder-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// DirBuilder::new().create(directory.join("new"))?;
    /// assert!(directory.join("new").is_dir());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(fs::DirBuilder::new())
    }

    /// Sets whether missing parents are created too. It is then no error if the directory exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::DirBuilder;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-recursive-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let path = directory.join("a/b");
    /// assert!(DirBuilder::new().create(&path).is_err());
    /// DirBuilder::new().recursive(true).create(&path)?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Creates the directory at `path`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `mkdir(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::DirBuilder;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-dir_create-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let builder = DirBuilder::new();
    /// builder.create(directory.join("one"))?;
    /// builder.create(directory.join("other"))?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        may_block(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }
}
