//! Directories: making them, and what is in them.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::{FileType, Metadata};
use crate::engine::door::may_block;

/// The entries of a directory, as [`std::fs::ReadDir`]; made by [`read_dir`](super::read_dir).
#[derive(Debug)]
pub struct ReadDir(pub(super) fs::ReadDir);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let entry = may_block(|| self.0.next())?;
        Some(entry.map(DirEntry))
    }
}

/// An entry of a directory, as [`std::fs::DirEntry`].
pub struct DirEntry(fs::DirEntry);

impl DirEntry {
    /// The directory's path, as it was given, and the entry's name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// What the system knows about the entry; of a symbolic link, about the link itself.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        may_block(|| self.0.metadata())
    }

    /// What the entry is; of a symbolic link, that it is one. Most file systems are not asked again.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub fn file_type(&self) -> io::Result<FileType> {
        may_block(|| self.0.file_type())
    }

    /// The name alone.
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

/// How directories are made, as [`std::fs::DirBuilder`]. std's `DirBuilderExt` applies to it too.
///
/// # Examples
///
/// ```
/// use greenthread::fs::DirBuilder;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-dir-{}", std::process::id()));
/// DirBuilder::new().recursive(true).create(directory.join("a/b"))?;
/// assert!(directory.join("a/b").is_dir());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl DirBuilder {
    /// Not recursive, and with all permissions that the process's mask leaves.
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(fs::DirBuilder::new())
    }

    /// Whether parents are made too. If so, it is no error if the directory is there already.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
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
