//! What only Unix file systems have, as [`std::os::unix::fs`], whose traits apply to the types of
//! [`greenthread::fs`](crate::fs).
//!
//! # Examples
//!
//! ```
//! use greenthread::fs::File;
//! use greenthread::os::unix::fs::FileExt;
//!
//! let mut start = [0; 9];
//! File::open("Cargo.toml")?.read_exact_at(&mut start, 0)?;
//! assert_eq!(&start, b"[package]");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs;
use std::path::Path;

#[doc(no_inline)]
pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

use crate::engine::door::may_block;

/// Makes a symbolic link at `link` that says `original`.
///
/// # Errors
/// Those of `symlink(2)`.
///
/// # Examples
///
/// ```
/// use greenthread::{fs, os::unix::fs::symlink};
///
/// # let link = std::env::temp_dir().join(format!("greenthread-doc-symlink-{}", std::process::id()));
/// symlink("there", &link)?;
/// assert_eq!(fs::read_link(&link)?.to_str(), Some("there"));
/// # fs::remove_file(&link)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    may_block(|| fs::symlink(original, link))
}

/// Changes the owner and the group of what is at `path`, links followed; `None` leaves as it is.
///
/// # Errors
/// Those of `chown(2)`.
pub fn chown<P: AsRef<Path>>(path: P, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let path = path.as_ref();
    may_block(|| fs::chown(path, user, group))
}

/// [`chown`] of an open file.
///
/// # Errors
/// Those of `fchown(2)`.
pub fn fchown<F: AsFd>(file: F, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let file = file.as_fd();
    may_block(|| fs::fchown(file, user, group))
}

/// [`chown`]; of a symbolic link, of the link itself.
///
/// # Errors
/// Those of `lchown(2)`.
pub fn lchown<P: AsRef<Path>>(path: P, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let path = path.as_ref();
    may_block(|| fs::lchown(path, user, group))
}

/// Makes `directory` the root of all paths, for the whole process.
///
/// # Errors
/// Those of `chroot(2)`.
pub fn chroot<P: AsRef<Path>>(directory: P) -> io::Result<()> {
    let directory = directory.as_ref();
    may_block(|| fs::chroot(directory))
}
