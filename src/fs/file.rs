//! An open file: std's, whose calls block the green thread only.
//!
//! At the file's position every call is std's own, one system call that may block
//! (`thread::may_block`): a position is shared with whoever has the same open file, and only the
//! kernel keeps it right. What is known to wait for a disk goes through `driver::file`.

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

/// An open file, as [`std::fs::File`]: its calls block the green thread only.
///
/// It is closed when it is dropped; errors in closing are ignored, so call
/// [`sync_all`](File::sync_all) where they matter.
///
/// Each call is std's, and costs what that does; only if it blocks does the processor go to others.
///
/// Of what std's file has, `Read`, `Write` and `Seek` for `Arc<File>` are missing, which only std can
/// implement for an `Arc`: use `&*file`. `IsTerminal` is a trait that std keeps to itself;
/// [`is_terminal`](File::is_terminal) is a method here.
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

    /// Opens a file for writing: a new one, or one that is emptied.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Makes a new file, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the path does; others of `open(2)`.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// [`OpenOptions::new`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until all that was written is on the disk, metadata included.
    ///
    /// # Errors
    /// Those of `fsync(2)`: something could not be written.
    pub fn sync_all(&self) -> io::Result<()> {
        file::sync(&self.std, false)
    }

    /// [`sync_all`](File::sync_all), without the metadata that is not needed to read the data.
    ///
    /// # Errors
    /// Those of `fdatasync(2)`.
    pub fn sync_data(&self) -> io::Result<()> {
        file::sync(&self.std, true)
    }

    methods! {
        /// Cuts the file off at `size`, or extends it with zeroes. The position stays.
        ///
        /// # Errors
        /// Those of `ftruncate(2)`; the file must be open for writing.
        fn set_len(&self, size: u64) -> io::Result<()>;

        /// What the system knows about the file.
        ///
        /// # Errors
        /// Those of `statx(2)`.
        fn metadata(&self) -> io::Result<Metadata>;

        /// Changes the permissions.
        ///
        /// # Errors
        /// Those of `fchmod(2)`.
        fn set_permissions(&self, permissions: Permissions) -> io::Result<()>;

        /// Changes the times of the last access and modification.
        ///
        /// # Errors
        /// Those of `futimens(2)`.
        fn set_times(&self, times: FileTimes) -> io::Result<()>;

        /// Changes the time of the last modification.
        ///
        /// # Errors
        /// Those of `futimens(2)`.
        fn set_modified(&self, time: SystemTime) -> io::Result<()>;

        /// Waits until no other handle has the file locked, and locks it. The lock is advisory, and
        /// belongs to this handle and its clones; dropping the last of them unlocks the file.
        ///
        /// # Errors
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

        /// Waits until no other handle has the file locked exclusively, and locks it shared.
        ///
        /// # Errors
        /// Those of `flock(2)`.
        fn lock_shared(&self) -> io::Result<()>;

        /// Locks the file, unless another handle has it locked.
        ///
        /// # Errors
        /// `WouldBlock`: it has. Others are those of `flock(2)`.
        fn try_lock(&self) -> Result<(), TryLockError>;

        /// Locks the file shared, unless another handle has it locked exclusively.
        ///
        /// # Errors
        /// `WouldBlock`: it has. Others are those of `flock(2)`.
        fn try_lock_shared(&self) -> Result<(), TryLockError>;

        /// Releases the locks of this handle and its clones.
        ///
        /// # Errors
        /// Those of `flock(2)`.
        fn unlock(&self) -> io::Result<()>;
    }

    /// Whether it is a terminal; [`std::io::IsTerminal`].
    ///
    /// ```
    /// assert!(!greenthread::fs::File::open("Cargo.toml")?.is_terminal());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.std.is_terminal()
    }

    /// Another handle to the same open file, with the same position.
    ///
    /// # Errors
    /// There are no more descriptors.
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

    /// Does nothing: nothing is held back.
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
