//! [`File`]: std's open file, whose calls block only the green thread.
//!
//! A call that uses the file's position is std's own, one system call that may block
//! (`may_block`): all handles to the same open file share its position, and only the kernel
//! keeps it right. Calls that are known to wait for a disk go through `driver::file`. `traits` has
//! what a file can do by std's traits.

mod traits;

use std::fs::{self, FileTimes, Metadata, Permissions, TryLockError};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::SystemTime;

use super::OpenOptions;
use crate::engine::facade::file::{self, Nature};
use crate::engine::facade::may_block;

/// An open file, like [`std::fs::File`], whose calls block only the green thread.
///
/// Each call is std's and costs the same. If it blocks, the processor goes to other threads.
///
/// Two things differ from std's file. `Read`, `Write` and `Seek` are not implemented for
/// `Arc<File>`, since only std can implement them: use `&*file`. And
/// [`is_terminal`](File::is_terminal) is a method, since `IsTerminal` is a trait that only std can
/// implement.
///
/// # Examples
///
/// ```
/// use greenthread::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("greeting");
/// File::create(&path)?.write_all(b"Hello")?;
///
/// let mut file = File::options().read(true).append(true).open(&path)?;
/// assert!(!file.is_terminal());
/// file.write_all(b", world")?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "Hello, world");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    std: fs::File,
    nature: Nature,
}

/// Defines methods that call the method of std's file with the same name, and link to it.
macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $Type:ty)?) -> $Result:ty;)*) => {
        $(
            $(#[$doc])*
            #[doc = concat!("\nAs [`std::fs::File::", stringify!($name), "`]; blocks only the green thread.")]
            pub fn $name(&self $(, $argument: $Type)?) -> $Result {
                may_block(|| self.std.$name($($argument)?))
            }
        )*
    };
}

impl File {
    /// Opens a file for reading.
    ///
    /// As [`std::fs::File::open`]; blocks only the green thread.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing; creates it if it does not exist, and empties it if it does.
    ///
    /// As [`std::fs::File::create`]; blocks only the green thread.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file, and opens it for reading and writing.
    ///
    /// As [`std::fs::File::create_new`]; blocks only the green thread.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// Makes options for opening a file.
    ///
    /// As [`std::fs::File::options`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until all data and metadata of the file are on the disk.
    ///
    /// As [`std::fs::File::sync_all`]; blocks only the green thread.
    pub fn sync_all(&self) -> io::Result<()> {
        file::sync(&self.std, false)
    }

    /// Waits until all data of the file is on the disk.
    ///
    /// As [`std::fs::File::sync_data`]; blocks only the green thread.
    pub fn sync_data(&self) -> io::Result<()> {
        file::sync(&self.std, true)
    }

    methods! {
        /// Cuts the file off at `size` bytes, or extends it with zeroes.
        fn set_len(&self, size: u64) -> io::Result<()>;

        /// Returns the file's metadata.
        fn metadata(&self) -> io::Result<Metadata>;

        /// Changes the file's permissions.
        fn set_permissions(&self, permissions: Permissions) -> io::Result<()>;

        /// Changes the times of the file's last access and modification.
        fn set_times(&self, times: FileTimes) -> io::Result<()>;

        /// Changes the time of the file's last modification.
        fn set_modified(&self, time: SystemTime) -> io::Result<()>;

        /// Acquires an exclusive lock on the file, waiting while another handle holds a lock.
        fn lock(&self) -> io::Result<()>;

        /// Acquires a shared lock on the file, waiting while another handle holds an exclusive one.
        fn lock_shared(&self) -> io::Result<()>;

        /// Acquires an exclusive lock on the file if no other handle holds a lock.
        fn try_lock(&self) -> Result<(), TryLockError>;

        /// Acquires a shared lock on the file if no other handle holds an exclusive one.
        fn try_lock_shared(&self) -> Result<(), TryLockError>;

        /// Releases the lock of this handle and its clones.
        fn unlock(&self) -> io::Result<()>;
    }

    /// Returns whether the file is a terminal.
    ///
    /// As the method of std's trait [`IsTerminal`](std::io::IsTerminal).
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.std.is_terminal()
    }

    /// Makes another handle to the same open file.
    ///
    /// As [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> io::Result<File> {
        self.std.try_clone().map(File::from)
    }
}
