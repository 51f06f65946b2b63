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
// | `file` | an open file |
// | `options` | opening a file |
// | `dir` | directories |
// | here | the functions that take a path |
//
// Each call is std's own system call, at std's cost; if it blocks, others run meanwhile
// (`door::may_block`). Only calls that are known to wait for a disk go through `driver::file`,
// where the ring may take them over: syncing, and reads at an offset that is not in the page cache.

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

/// Functions that call std's function with the same name and arguments.
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
    /// Returns the absolute path, with all symbolic links resolved and without `.` and `..`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `realpath(3)`; the path must exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// assert_eq!(fs::canonicalize(".")?, fs::canonicalize("src/..")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn canonicalize(path: P) -> PathBuf;

    /// Copies the contents and the permissions of one file to another, and returns the number of
    /// bytes copied.
    ///
    /// The other file is created, or emptied first if it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if `from` is not a file or cannot be read, or if `to` cannot be written.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-copy-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let copy = directory.join("copy");
    /// let length = fs::copy("Cargo.toml", &copy)?;
    /// assert_eq!(length, fs::metadata(&copy)?.len());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn copy(from: P, to: Q) -> u64;

    /// Creates an empty directory.
    ///
    /// # Errors
    ///
    /// Returns the errors of `mkdir(2)`, for example if the path exists or its parent does not.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-create_dir-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let new = directory.join("new");
    /// fs::create_dir(&new)?;
    /// assert!(fs::create_dir(&new).is_err());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn create_dir(path: P) -> ();

    /// Creates a directory, and all of its parents that are missing.
    ///
    /// # Errors
    ///
    /// Returns the errors of `mkdir(2)`. It is no error if the directory exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-create_dir_all-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// fs::create_dir_all(directory.join("a/b/c"))?;
    /// assert!(fs::exists(directory.join("a/b/c"))?);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn create_dir_all(path: P) -> ();

    /// Returns whether the path exists, following symbolic links.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell, for example because a directory on the way may
    /// not be searched.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// assert!(fs::exists("Cargo.toml")?);
    /// assert!(!fs::exists("no such file")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn exists(path: P) -> bool;

    /// Creates a hard link: another name for a file.
    ///
    /// # Errors
    ///
    /// Returns the errors of `link(2)`; both names must be on the same file system.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-hard_link-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let (one, other) = (directory.join("one"), directory.join("other"));
    /// fs::write(&one, "hello")?;
    /// fs::hard_link(&one, &other)?;
    /// fs::remove_file(&one)?;
    /// assert_eq!(fs::read(&other)?, b"hello");
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn hard_link(original: P, link: Q) -> ();

    /// Reads the entire contents of a file into a vector of bytes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`File::open`] and of reading.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// assert!(fs::read("Cargo.toml")?.starts_with(b"[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn read(path: P) -> Vec<u8>;

    /// Returns the target of a symbolic link, exactly as the link contains it.
    ///
    /// # Errors
    ///
    /// Returns the errors of `readlink(2)`; the path must be a symbolic link.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{fs, os::unix::fs::symlink};
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-read_link-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let link = directory.join("link");
    /// symlink("target", &link)?;
    /// assert_eq!(fs::read_link(&link)?.to_str(), Some("target"));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn read_link(path: P) -> PathBuf;

    /// Returns the metadata of a file or directory, following symbolic links.
    ///
    /// # Errors
    ///
    /// Returns the errors of `statx(2)`, for example if the path does not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// let metadata = fs::metadata("Cargo.toml")?;
    /// assert!(metadata.is_file() && metadata.len() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn metadata(path: P) -> Metadata;

    /// Reads the entire contents of a file into a string.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`], and `InvalidData` if the file is not UTF-8.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// let text = fs::read_to_string("Cargo.toml")?;
    /// assert_eq!(text.lines().next(), Some("[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn read_to_string(path: P) -> String;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Returns the errors of `rmdir(2)`, for example if the directory is not empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-remove_dir-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// fs::create_dir(directory.join("empty"))?;
    /// fs::remove_dir(directory.join("empty"))?;
    /// assert!(!fs::exists(directory.join("empty"))?);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn remove_dir(path: P) -> ();

    /// Removes a directory with everything in it. Links are removed, not followed.
    ///
    /// # Errors
    ///
    /// Returns the errors of `unlinkat(2)`. A part of the directory may have been removed by then.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-remove_dir_all-{}", std::process::id()));
    /// fs::create_dir_all(directory.join("a/b"))?;
    /// fs::write(directory.join("a/file"), "hello")?;
    /// fs::remove_dir_all(&directory)?;
    /// assert!(!fs::exists(&directory)?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn remove_dir_all(path: P) -> ();

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Returns the errors of `unlink(2)`, for example if the path is a directory or does not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-remove_file-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// fs::write(directory.join("file"), "hello")?;
    /// fs::remove_file(directory.join("file"))?;
    /// assert!(!fs::exists(directory.join("file"))?);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn remove_file(path: P) -> ();

    /// Renames a file or directory. A file that already has the new name is replaced.
    ///
    /// # Errors
    ///
    /// Returns the errors of `rename(2)`; both names must be on the same file system.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-rename-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let (draft, done) = (directory.join("draft"), directory.join("done"));
    /// fs::write(&draft, "hello")?;
    /// fs::rename(&draft, &done)?;
    /// assert!(!fs::exists(&draft)? && fs::exists(&done)?);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn rename(from: P, to: Q) -> ();

    /// Changes the permissions of a file or directory.
    ///
    /// # Errors
    ///
    /// Returns the errors of `chmod(2)`, for example if the user does not own the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_permissions-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let path = directory.join("file");
    /// fs::write(&path, "hello")?;
    /// let mut permissions = fs::metadata(&path)?.permissions();
    /// permissions.set_readonly(true);
    /// fs::set_permissions(&path, permissions)?;
    /// assert!(fs::metadata(&path)?.permissions().readonly());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn set_permissions(path: P; permissions: Permissions) -> ();

    /// Creates a symbolic link; use [`symlink`](crate::os::unix::fs::symlink) instead.
    ///
    /// # Errors
    ///
    /// Returns the errors of `symlink(2)`.
    #[deprecated(note = "as in std: use `os::unix::fs::symlink`")]
    #[allow(deprecated)]
    fn soft_link(original: P, link: Q) -> ();

    /// Returns the metadata of a file or directory, without following symbolic links.
    ///
    /// # Errors
    ///
    /// Returns the errors of `statx(2)`, for example if the path does not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{fs, os::unix::fs::symlink};
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-symlink_metadata-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let link = directory.join("link");
    /// symlink("no such file", &link)?;
    /// assert!(fs::symlink_metadata(&link)?.is_symlink());
    /// assert!(fs::metadata(&link).is_err());
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn symlink_metadata(path: P) -> Metadata;
}

/// Writes a slice as the entire contents of a file. The file is created, or emptied first if it
/// exists.
///
/// # Errors
///
/// Returns the errors of [`File::create`] and of writing.
///
/// # Examples
///
/// ```
/// use greenthread::fs;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-write-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("greeting");
/// fs::write(&path, "hello")?;
/// assert_eq!(fs::read_to_string(&path)?, "hello");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    may_block(|| std::fs::write(path, contents))
}

/// Returns an iterator over the entries of a directory, in no particular order and without `.` and
/// `..`.
///
/// # Errors
///
/// Returns the errors of `opendir(3)`; the path must be a directory.
///
/// # Examples
///
/// ```
/// use greenthread::{fs, io};
///
/// let names: io::Result<Vec<_>> = fs::read_dir("src")?.map(|entry| Ok(entry?.file_name())).collect();
/// assert!(names?.contains(&"lib.rs".into()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    may_block(|| std::fs::read_dir(path)).map(ReadDir)
}
