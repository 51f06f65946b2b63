//! Unix extensions of [`fs`](crate::fs), like [`std::os::unix::fs`].
//!
//! The traits are std's own, and apply to the types of [`greenthread::fs`](crate::fs).
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
use std::os::unix::fs as standard;
use std::path::Path;

#[doc(no_inline)]
pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

use crate::engine::facade::may_block;
use crate::fs::functions;

/// Changes the owner and the group of an open file.
///
/// `None` leaves the owner, or the group, as it is.
///
/// # Errors
///
/// Returns the errors of `fchown(2)`.
///
/// # Examples
///
/// ```no_run
/// use greenthread::{fs::File, os::unix::fs::fchown};
///
/// fchown(File::open("/srv/data")?, None, Some(100))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fchown<F: AsFd>(file: F, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let file = file.as_fd();
    may_block(|| standard::fchown(file, user, group))
}

functions! { "std::os::unix::fs":
    /// Creates a symbolic link at `link`, whose target is `original`.
    ///
    /// The target is written as it is and need not exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of `symlink(2)`.
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
    fn symlink(original: P, link: Q) -> ();

    /// Changes the owner and the group of a file or directory, following symbolic links.
    ///
    /// `None` leaves the owner, or the group, as it is.
    ///
    /// # Errors
    ///
    /// Returns the errors of `chown(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::fs::chown;
    ///
    /// chown("/srv/data", Some(1000), None)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn chown(path: P; user: Option<u32>, group: Option<u32>) -> ();

    /// Changes the owner and the group of a file or directory, without following symbolic links.
    ///
    /// `None` leaves the owner, or the group, as it is.
    ///
    /// # Errors
    ///
    /// Returns the errors of `lchown(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::fs::lchown;
    ///
    /// lchown("/srv/link", Some(1000), Some(100))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn lchown(path: P; user: Option<u32>, group: Option<u32>) -> ();

    /// Changes the root directory of the process to `directory`.
    ///
    /// The working directory does not change; change it too, with [`std::env::set_current_dir`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `chroot(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::fs::chroot;
    ///
    /// chroot("/srv/jail")?;
    /// std::env::set_current_dir("/")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn chroot(directory: P) -> ();
}
