//! [`File`]: std's open file, whose calls block only the green thread.
//!
//! A call that uses the file's position is std's own, one system call that may block
//! (`may_block`): all handles to the same open file share its position, and only the kernel
//! keeps it right. Calls that are known to wait for a disk go through `driver::file`.

use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions, TryLockError};
use std::io::{self, IoSlice, IsTerminal, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

use crate::engine::facade::{Nature, may_block};
use crate::io::macros::{building, read_through, wraps_descriptor, writes};
use crate::io::pipe::write_as_far_as_it_goes;

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
pub struct File(Contents);

struct Contents {
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
                may_block(|| self.0.std.$name($($argument)?))
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
        Nature::sync(&self.0.std, false)
    }

    /// Waits until all data of the file is on the disk.
    ///
    /// As [`std::fs::File::sync_data`]; blocks only the green thread.
    pub fn sync_data(&self) -> io::Result<()> {
        Nature::sync(&self.0.std, true)
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
        self.0.std.is_terminal()
    }

    /// Makes another handle to the same open file.
    ///
    /// As [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.std.try_clone().map(File::from)
    }
}

// ---- std's traits ----

read_through!(&File, this => (&this.0.std), may_block);
read_through!(File, this => (&this.0.std), may_block);

writes!(File);

impl Contents {
    fn adopt(fd: OwnedFd) -> Contents {
        let (std, nature) = (fd.into(), Nature::new());
        Contents { std, nature }
    }

    fn into_fd(self) -> OwnedFd {
        self.std.into()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.std.as_fd()
    }

    fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    /// A preemption signal that was under way when the call began may have cut a pipe's write short, where the kernel
    /// otherwise writes all or says why not.
    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = |buffers: &[IoSlice<'_>]| match buffers {
            [buffer] => (&self.std).write(buffer),
            buffers => (&self.std).write_vectored(buffers),
        };
        may_block(|| write_as_far_as_it_goes(buffers, write, drop))
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        may_block(|| (&self.0.std).seek(position))
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.nature.read_at(&self.0.std, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        self.0.nature.write_at(&self.0.std, buffer, offset)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.std.fmt(f)
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.std.into()
    }
}

wraps_descriptor!(File, like fs::File; by Contents::adopt);

// ---- opening ----

/// Options for opening a file, like [`std::fs::OpenOptions`].
///
/// std's trait `OpenOptionsExt` applies to it too.
///
/// # Examples
///
/// ```
/// use greenthread::fs::OpenOptions;
/// use std::io::ErrorKind;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("log");
/// let log = OpenOptions::new().append(true).create(true).open(&path)?;
/// let error = OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// Creates options that are all off.
    ///
    /// As [`std::fs::OpenOptions::new`].
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    building! { 0:
        /// Sets whether the file may be read.
        ///
        /// As [`std::fs::OpenOptions::read`].
        pub fn read(&mut self, read: bool);
        /// Sets whether the file may be written.
        ///
        /// As [`std::fs::OpenOptions::write`].
        pub fn write(&mut self, write: bool);
        /// Sets whether writes go to the end of the file.
        ///
        /// As [`std::fs::OpenOptions::append`].
        pub fn append(&mut self, append: bool);
        /// Sets whether the file is emptied if it exists.
        ///
        /// As [`std::fs::OpenOptions::truncate`].
        pub fn truncate(&mut self, truncate: bool);
        /// Sets whether the file is created if it does not exist.
        ///
        /// As [`std::fs::OpenOptions::create`].
        pub fn create(&mut self, create: bool);
        /// Sets whether opening creates the file, and fails if the path exists already.
        ///
        /// As [`std::fs::OpenOptions::create_new`].
        pub fn create_new(&mut self, create_new: bool);
    }

    /// Opens the file at `path`.
    ///
    /// As [`std::fs::OpenOptions::open`]; blocks only the green thread.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        may_block(|| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    building! { 0:
        fn mode(&mut self, mode: u32);
        fn custom_flags(&mut self, flags: i32);
    }
}
