//! Files and directories, as [`std::fs`], blocking only the green thread.
//!
//! Replace `std::fs` by `greenthread::fs` in the imports and nothing else. The types that hold no
//! descriptor (`Metadata`, `Permissions`, …) are std's own, and std's extension traits
//! (`FileExt`, `OpenOptionsExt`, …) apply to ours.
//!
//! While a call waits, for a disk or for the other end of a FIFO, other green threads run. One that
//! does not wait costs what std's does. A file's position, its `O_APPEND` and its locks are the
//! kernel's, whoever else has the file open.
//!
//! | file | idea |
//! |---|---|
//! | `file` | an open file |
//! | `options` | how it is opened |
//! | `dir` | directories |
//! | here | the functions of a path |
//!
//! Everything is std's own system call, at std's cost, and if it should block, others run meanwhile
//! (`thread::may_block`). Only what is known to wait for a disk goes through `driver::file`, where the
//! ring may take it over: syncing, and reads at an offset that the page cache does not have.
//!
//! # Examples
//!
//! ```
//! use greenthread::fs;
//!
//! let readers: Vec<_> = ["Cargo.toml", "README.md"]
//!     .map(|path| greenthread::spawn(move || fs::read_to_string(path)))
//!     .into();
//! for reader in readers {
//!     assert!(reader.join().unwrap()?.contains("greenthread"));
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod dir;
mod file;
mod options;

use std::io;
use std::path::{Path, PathBuf};

#[doc(no_inline)]
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

pub use self::dir::{DirBuilder, DirEntry, ReadDir};
pub use self::file::File;
pub use self::options::OpenOptions;
use crate::engine::door::may_block;

/// Functions of std's with the same name and arguments.
macro_rules! functions {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($path:ident: $P:ident),+ $(; $argument:ident: $Type:ty)?) -> $Result:ty;
    )*) => {$(
        $(#[$attribute])*
        pub fn $name<$($P: AsRef<Path>),+>(
            $($path: $P),+ $(, $argument: $Type)?
        ) -> io::Result<$Result> {
            $(let $path = $path.as_ref();)+
            may_block(|| std::fs::$name($($path),+ $(, $argument)?))
        }
    )*};
}

functions! {
    /// The path from the root, without links and dots.
    ///
    /// # Errors
    /// Those of `realpath(3)`; the path must exist.
    ///
    /// # Examples
    ///
    /// ```
    /// let here = greenthread::fs::canonicalize(".")?;
    /// assert_eq!(here, greenthread::fs::canonicalize("src/..")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn canonicalize(path: P) -> PathBuf;

    /// Copies the contents and the permissions of one file to another, which is made or emptied.
    /// Returns the length.
    ///
    /// # Errors
    /// `from` is no file or cannot be read, or `to` cannot be written.
    fn copy(from: P, to: Q) -> u64;

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    fn create_dir(path: P) -> ();

    /// Makes a directory, and the parents that are missing.
    ///
    /// # Errors
    /// Those of `mkdir(2)`, but that it is there already.
    fn create_dir_all(path: P) -> ();

    /// Whether there is something at the path, links followed.
    ///
    /// # Errors
    /// It cannot be found out.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(greenthread::fs::exists("Cargo.toml")?);
    /// assert!(!greenthread::fs::exists("no such file")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn exists(path: P) -> bool;

    /// Makes another name for a file.
    ///
    /// # Errors
    /// Those of `link(2)`.
    fn hard_link(original: P, link: Q) -> ();

    /// All of a file.
    ///
    /// # Errors
    /// Those of [`File::open`] and of reading.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(greenthread::fs::read("Cargo.toml")?.starts_with(b"[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn read(path: P) -> Vec<u8>;

    /// What a symbolic link says.
    ///
    /// # Errors
    /// Those of `readlink(2)`.
    fn read_link(path: P) -> PathBuf;

    /// What the system knows about the path, links followed.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    fn metadata(path: P) -> Metadata;

    /// All of a file of UTF-8 text.
    ///
    /// # Errors
    /// As [`read`], and `InvalidData` if it is not UTF-8.
    fn read_to_string(path: P) -> String;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir(2)`.
    fn remove_dir(path: P) -> ();

    /// Removes a directory with all that is in it; links are removed, not followed.
    ///
    /// # Errors
    /// Those of `unlinkat(2)`.
    fn remove_dir_all(path: P) -> ();

    /// Removes a file.
    ///
    /// # Errors
    /// Those of `unlink(2)`.
    fn remove_file(path: P) -> ();

    /// Gives a file or directory another name, in place of what may have that name.
    ///
    /// # Errors
    /// Those of `rename(2)`; both must be on the same file system.
    fn rename(from: P, to: Q) -> ();

    /// Changes the permissions of a file or directory.
    ///
    /// # Errors
    /// Those of `chmod(2)`.
    fn set_permissions(path: P; permissions: Permissions) -> ();

    /// Makes a symbolic link; [`symlink`](crate::os::unix::fs::symlink) is its name of today.
    ///
    /// # Errors
    /// Those of `symlink(2)`.
    #[deprecated(note = "as in std: use `os::unix::fs::symlink`")]
    #[allow(deprecated)]
    fn soft_link(original: P, link: Q) -> ();

    /// What the system knows about the path; of a symbolic link, about the link itself.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    fn symlink_metadata(path: P) -> Metadata;
}

/// Makes a file, or empties it, and writes `contents`.
///
/// # Errors
/// Those of [`File::create`] and of writing.
///
/// # Examples
///
/// ```
/// # let path = std::env::temp_dir().join(format!("greenthread-doc-write-{}", std::process::id()));
/// greenthread::fs::write(&path, "hello")?;
/// assert_eq!(greenthread::fs::read_to_string(&path)?, "hello");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    may_block(|| std::fs::write(path, contents))
}

/// The entries of a directory, in no order, without `.` and `..`.
///
/// # Errors
/// Those of `opendir(3)`.
///
/// # Examples
///
/// ```
/// let names: Result<Vec<_>, std::io::Error> =
///     greenthread::fs::read_dir("src")?.map(|entry| Ok(entry?.file_name())).collect();
/// assert!(names?.contains(&"lib.rs".into()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    may_block(|| std::fs::read_dir(path)).map(ReadDir)
}
