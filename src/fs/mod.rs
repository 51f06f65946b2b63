//! Files and directories, with the API of [`std::fs`]; a call that waits blocks only the green
//! thread.
//!
//! A program that uses `std::fs` needs to change only its imports. Types without a descriptor
//! (`Metadata`, `Permissions`, …) are std's own, and std's extension traits (`FileExt`,
//! `OpenOptionsExt`, …) apply to the types of this module.
//!
//! While a call waits, for a disk or for the other end of a FIFO, other green threads run. A call
//! that does not wait costs as much as std's. The kernel keeps a file's position, its `O_APPEND`
//! flag and its locks, so they work as usual when other programs have the file open.
//!
//! Each item links to std's item with the same name, whose documentation holds here too, errors
//! included.
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

// | file | idea |
// |---|---|
// | `file` | an open file, and how it is opened |
// | `dir` | directories |
// | here | the functions that take a path |
//
// Each call is std's own system call, at std's cost; if it blocks, others run meanwhile
// (`facade::may_block`). Only calls that are known to wait for a disk go through `driver::file`,
// where the ring may take them over: syncing, and reads at an offset that is not in the page cache.

mod dir;
mod file;

use std::path::{Path, PathBuf};
use std::{fs as standard, io};

#[doc(no_inline)]
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

pub use self::dir::{DirBuilder, DirEntry, ReadDir};
pub use self::file::{File, OpenOptions};
use crate::engine::facade::may_block;

/// Functions that call std's function with the same name and arguments, and link to it; `standard` is std's module.
macro_rules! functions {
    ($standard:literal: $(
        $(#[$attribute:meta])*
        fn $name:ident($($path:ident: $P:ident),+ $(; $($argument:ident: $Type:ty),+)?) -> $Result:ty;
    )*) => {$(
        $(#[$attribute])*
        #[doc = concat!("\nAs [`", $standard, "::", stringify!($name), "`]; blocks only the green thread.")]
        pub fn $name<$($P: AsRef<Path>),+>(
            $($path: $P),+ $(, $($argument: $Type),+)?
        ) -> io::Result<$Result> {
            $(let $path = $path.as_ref();)+
            may_block(|| standard::$name($($path),+ $(, $($argument),+)?))
        }
    )*};
}
pub(crate) use functions;

functions! { "std::fs":
    /// Returns the absolute path, with all symbolic links resolved and without `.` and `..`.
    fn canonicalize(path: P) -> PathBuf;

    /// Copies the contents and the permissions of one file to another, and returns the number of
    /// bytes copied.
    fn copy(from: P, to: Q) -> u64;

    /// Creates an empty directory.
    fn create_dir(path: P) -> ();

    /// Creates a directory, and all of its parents that are missing.
    fn create_dir_all(path: P) -> ();

    /// Returns whether the path exists, following symbolic links.
    fn exists(path: P) -> bool;

    /// Creates a hard link: another name for a file.
    fn hard_link(original: P, link: Q) -> ();

    /// Reads the entire contents of a file into a vector of bytes.
    fn read(path: P) -> Vec<u8>;

    /// Returns the target of a symbolic link, exactly as the link contains it.
    fn read_link(path: P) -> PathBuf;

    /// Returns the metadata of a file or directory, following symbolic links.
    fn metadata(path: P) -> Metadata;

    /// Reads the entire contents of a file into a string.
    fn read_to_string(path: P) -> String;

    /// Removes an empty directory.
    fn remove_dir(path: P) -> ();

    /// Removes a directory with everything in it.
    fn remove_dir_all(path: P) -> ();

    /// Removes a file.
    fn remove_file(path: P) -> ();

    /// Renames a file or directory, and replaces a file that already has the new name.
    fn rename(from: P, to: Q) -> ();

    /// Changes the permissions of a file or directory.
    fn set_permissions(path: P; permissions: Permissions) -> ();

    /// Creates a symbolic link; use [`symlink`](crate::os::unix::fs::symlink) instead.
    #[deprecated(note = "as in std: use `os::unix::fs::symlink`")]
    #[allow(deprecated)]
    fn soft_link(original: P, link: Q) -> ();

    /// Returns the metadata of a file or directory, without following symbolic links.
    fn symlink_metadata(path: P) -> Metadata;
}

/// Writes a slice as the entire contents of a file.
///
/// As [`std::fs::write`]; blocks only the green thread.
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    may_block(|| standard::write(path, contents))
}

/// Returns an iterator over the entries of a directory.
///
/// As [`std::fs::read_dir`]; blocks only the green thread.
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    may_block(|| standard::read_dir(path)).map(ReadDir)
}
