//! Directories: creating them, and reading their entries.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::{FileType, Metadata};
use crate::engine::facade::may_block;
use crate::io::macros::building;

/// An iterator over the entries of a directory, like [`std::fs::ReadDir`].
///
/// It is created by [`read_dir`](super::read_dir). Each step blocks only the green thread.
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
    /// Returns the path of the directory, as it was given, joined with the entry's name.
    ///
    /// As [`std::fs::DirEntry::path`].
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the metadata of the entry, without following a symbolic link.
    ///
    /// As [`std::fs::DirEntry::metadata`]; blocks only the green thread.
    pub fn metadata(&self) -> io::Result<Metadata> {
        may_block(|| self.0.metadata())
    }

    /// Returns the type of the entry, without following a symbolic link.
    ///
    /// As [`std::fs::DirEntry::file_type`]; blocks only the green thread.
    pub fn file_type(&self) -> io::Result<FileType> {
        may_block(|| self.0.file_type())
    }

    /// Returns the entry's name, without the path of the directory.
    ///
    /// As [`std::fs::DirEntry::file_name`].
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
    /// Creates a builder that is not recursive.
    ///
    /// As [`std::fs::DirBuilder::new`].
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(fs::DirBuilder::new())
    }

    building! { 0:
        /// Sets whether missing parents are created too.
        ///
        /// As [`std::fs::DirBuilder::recursive`].
        pub fn recursive(&mut self, recursive: bool);
    }

    /// Creates the directory at `path`.
    ///
    /// As [`std::fs::DirBuilder::create`]; blocks only the green thread.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        may_block(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    building! { 0:
        fn mode(&mut self, mode: u32);
    }
}
