//! An open file: std's, whose calls block the green thread only.
//!
//! A call that uses the file's position is std's own, one system call that may block
//! (`thread::may_block`): all handles to the same open file share its position, and only the kernel
//! keeps it right. Calls that are known to wait for a disk go through `driver::file`.

use std::fs::{FileTimes, Metadata, Permissions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;
use std::{fmt, fs};

use super::OpenOptions;
use crate::engine::door::calls::from_raw_fd;
use crate::engine::door::file::{self, Nature};
use crate::engine::door::may_block;
use crate::io::macros::{read_by_reference, write_by_reference};

/// An open file, like [`std::fs::File`], whose calls block only the green thread.
///
/// The file is closed when the handle is dropped. Errors of closing are ignored: call
/// [`sync_all`](File::sync_all) where they matter.
///
/// Each call is std's and costs the same. If it blocks, the processor goes to other threads.
///
/// Two things differ from std's file. `Read`, `Write` and `Seek` are not implemented for
/// `Arc<File>`, which only std could do: use `&*file`. And [`is_terminal`](File::is_terminal) is a
/// method, since `IsTerminal` is a trait that only std can implement.
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

/// Methods that std's file has too.
macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $Type:ty)?) -> $Result:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self $(, $argument: $Type)?) -> $Result {
            may_block(|| self.std.$name($($argument)?))
        })*
    };
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`, among them `NotFound`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    ///
    /// let file = File::open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing. It is created, or emptied if it exists.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_create-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("greeting"))?;
    /// file.write_all(b"hello")?;
    /// assert_eq!(file.metadata()?.len(), 5);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file, and opens it for reading and writing.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the path exists, and others of `open(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::ErrorKind;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_create_new-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let _file = File::create_new(directory.join("lock"))?;
    /// let error = File::create_new(directory.join("lock")).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// Makes options for opening a file; the same as [`OpenOptions::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_options-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut log = File::options().append(true).create(true).open(directory.join("log"))?;
    /// writeln!(log, "started")?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until all that was written is on the disk, metadata included.
    ///
    /// # Errors
    ///
    /// Those of `fsync(2)`, for example if something could not be written.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-sync_all-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("file"))?;
    /// file.write_all(b"hello")?;
    /// file.sync_all()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        file::sync(&self.std, false)
    }

    /// Waits until all data that was written is on the disk.
    ///
    /// Unlike [`sync_all`](File::sync_all) it does not wait for metadata that is not needed to read
    /// the data.
    ///
    /// # Errors
    ///
    /// Those of `fdatasync(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-sync_data-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("file"))?;
    /// file.write_all(b"hello")?;
    /// file.sync_data()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        file::sync(&self.std, true)
    }

    methods! {
        /// Cuts the file off at `size` bytes, or extends it with zeroes. The position stays.
        ///
        /// # Errors
        ///
        /// Those of `ftruncate(2)`; the file must be open for writing.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_len-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// file.set_len(1000)?;
        /// assert_eq!(file.metadata()?.len(), 1000);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_len(&self, size: u64) -> io::Result<()>;

        /// Returns the file's metadata.
        ///
        /// # Errors
        ///
        /// Those of `statx(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// let metadata = File::open("Cargo.toml")?.metadata()?;
        /// assert!(metadata.is_file());
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn metadata(&self) -> io::Result<Metadata>;

        /// Changes the file's permissions.
        ///
        /// # Errors
        ///
        /// Those of `fchmod(2)`; for example, the user must own the file.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_permissions-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// let mut permissions = file.metadata()?.permissions();
        /// permissions.set_readonly(true);
        /// file.set_permissions(permissions)?;
        /// assert!(file.metadata()?.permissions().readonly());
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_permissions(&self, permissions: Permissions) -> io::Result<()>;

        /// Changes the times of the file's last access and modification.
        ///
        /// # Errors
        ///
        /// Those of `futimens(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, FileTimes};
        /// use std::time::SystemTime;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_times-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// let epoch = SystemTime::UNIX_EPOCH;
        /// file.set_times(FileTimes::new().set_accessed(epoch).set_modified(epoch))?;
        /// assert_eq!(file.metadata()?.modified()?, epoch);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_times(&self, times: FileTimes) -> io::Result<()>;

        /// Changes the time of the file's last modification.
        ///
        /// # Errors
        ///
        /// Those of `futimens(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        /// use std::time::SystemTime;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_modified-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// file.set_modified(SystemTime::UNIX_EPOCH)?;
        /// assert_eq!(file.metadata()?.modified()?, SystemTime::UNIX_EPOCH);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_modified(&self, time: SystemTime) -> io::Result<()>;

        /// Locks the file, and waits first while another handle has it locked.
        ///
        /// The lock is advisory. It belongs to this handle and its clones; dropping the last of
        /// them unlocks the file.
        ///
        /// # Errors
        ///
        /// Those of `flock(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let path = std::env::temp_dir().join(format!("greenthread-doc-lock-{}", std::process::id()));
        /// let file = File::create(&path)?;
        /// file.lock()?;
        /// let other = File::open(&path)?;
        /// assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        /// let waiting = greenthread::spawn(move || other.lock_shared());
        /// file.unlock()?;
        /// waiting.join().unwrap()?;
        /// # std::fs::remove_file(&path)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn lock(&self) -> io::Result<()>;

        /// Locks the file shared, and waits first while another handle has it locked exclusively.
        ///
        /// # Errors
        ///
        /// Those of `flock(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// let (one, other) = (File::open("Cargo.toml")?, File::open("Cargo.toml")?);
        /// one.lock_shared()?;
        /// other.lock_shared()?; // both have it
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn lock_shared(&self) -> io::Result<()>;

        /// Locks the file if no other handle has it locked.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if another handle has; otherwise those of `flock(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-try_lock-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.try_lock()?;
        /// assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn try_lock(&self) -> Result<(), TryLockError>;

        /// Locks the file shared if no other handle has it locked exclusively.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if another handle has; otherwise those of `flock(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-try_lock_shared-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.lock()?;
        /// assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
        /// one.unlock()?;
        /// other.try_lock_shared()?;
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn try_lock_shared(&self) -> Result<(), TryLockError>;

        /// Releases the lock of this handle and its clones.
        ///
        /// # Errors
        ///
        /// Those of `flock(2)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-unlock-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.lock()?;
        /// one.unlock()?;
        /// other.lock()?; // does not wait
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn unlock(&self) -> io::Result<()>;
    }

    /// Returns whether the file is a terminal.
    ///
    /// In std this is a method of the trait [`std::io::IsTerminal`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    ///
    /// assert!(!File::open("Cargo.toml")?.is_terminal());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.std.is_terminal()
    }

    /// Makes another handle to the same open file. Both share the position.
    ///
    /// # Errors
    ///
    /// If there are no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::{Read, Seek, SeekFrom};
    ///
    /// let mut file = File::open("Cargo.toml")?;
    /// let mut other = file.try_clone()?;
    /// file.seek(SeekFrom::Start(1))?;
    /// let mut word = [0; 7];
    /// other.read_exact(&mut word)?;
    /// assert_eq!(&word, b"package");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        self.std.try_clone().map(File::from)
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        may_block(|| (&self.std).read(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        may_block(|| (&self.std).read_vectored(buffers))
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        may_block(|| (&self.std).read_to_end(buffer))
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        may_block(|| (&self.std).read_to_string(buffer))
    }
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        may_block(|| (&self.std).write(buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        may_block(|| (&self.std).write_vectored(buffers))
    }

    /// Does nothing, since nothing is buffered.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        may_block(|| (&self.std).seek(position))
    }
}

read_by_reference!(File);
write_by_reference!(File);

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file::read_at(&self.std, buffer, offset, &self.nature)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        file::write_at(&self.std, buffer, offset, &self.nature)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(std: fs::File) -> File {
        let nature = Nature::new();
        File { std, nature }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.std
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.std.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.std.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.std.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.std.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.std.into_raw_fd()
    }
}

from_raw_fd!(File);
