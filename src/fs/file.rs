//! An open file.
//!
//! Reading, writing, opening and syncing go through the driver (`driver::file`), the rest to std as
//! announced blocking calls.

use std::fs::{FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, fs};

use super::OpenOptions;
use crate::blocking;
use crate::driver::file::{self, Nature};
use crate::io::macros::{read_by_reference, write_by_reference};

/// An open file, as [`std::fs::File`]: its calls block the green thread only.
///
/// It is closed when it is dropped; errors in closing are ignored, so call
/// [`sync_all`](File::sync_all) where they matter.
///
/// What is in the page cache is read by one system call, without a switch to another thread.
///
/// Of what std's file has, `IsTerminal` and `Read for Arc<File>` are missing: std keeps those traits
/// to itself. Borrow the descriptor for the one, and use `&File` for the other.
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
    nature: Arc<Nature>,
}

/// Methods that std's file has too, each an announced blocking call.
macro_rules! announced {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $Type:ty)?) -> $Result:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self $(, $argument: $Type)?) -> io::Result<$Result> {
            blocking(|| self.std.$name($($argument)?))
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
        file::sync(self.as_fd(), false)
    }

    /// [`sync_all`](File::sync_all), without the metadata that is not needed to read the data.
    ///
    /// # Errors
    /// Those of `fdatasync(2)`.
    pub fn sync_data(&self) -> io::Result<()> {
        file::sync(self.as_fd(), true)
    }

    announced! {
        /// Cuts the file off at `size`, or extends it with zeroes. The position stays.
        ///
        /// # Errors
        /// Those of `ftruncate(2)`; the file must be open for writing.
        fn set_len(&self, size: u64) -> ();

        /// What the system knows about the file.
        ///
        /// # Errors
        /// Those of `statx(2)`.
        fn metadata(&self) -> Metadata;

        /// Changes the permissions.
        ///
        /// # Errors
        /// Those of `fchmod(2)`.
        fn set_permissions(&self, permissions: Permissions) -> ();

        /// Changes the times of the last access and modification.
        ///
        /// # Errors
        /// Those of `futimens(2)`.
        fn set_times(&self, times: FileTimes) -> ();

        /// Changes the time of the last modification.
        ///
        /// # Errors
        /// Those of `futimens(2)`.
        fn set_modified(&self, time: SystemTime) -> ();
    }

    /// Another handle to the same open file, with the same position.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn try_clone(&self) -> io::Result<File> {
        let std = self.std.try_clone()?;
        let nature = self.nature.clone();
        Ok(File { std, nature })
    }

    /// Space for what is left of the file; std's file reserves it, too.
    fn reserve(&self, mut reserve: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
        if let (Ok(metadata), Ok(position)) = (self.std.metadata(), (&self.std).stream_position()) {
            reserve(metadata.len().saturating_sub(position) as usize)?;
        }
        Ok(())
    }
}

/// Reads without knowing how much there is.
struct Plain<'a>(&'a File);

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        file::read(self.as_fd(), buffers, None, &self.nature)
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.reserve(|size| Ok(buffer.try_reserve(size)?))?;
        Plain(self).read_to_end(buffer)
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        self.reserve(|size| Ok(buffer.try_reserve(size)?))?;
        Plain(self).read_to_string(buffer)
    }
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        file::write(self.as_fd(), buffers, None, &self.nature)
    }

    /// Does nothing: nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&self.std).seek(position) // does not block
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
        let buffers = &mut [IoSliceMut::new(buffer)];
        file::read(self.as_fd(), buffers, Some(offset), &self.nature)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        file::write(
            self.as_fd(),
            &[IoSlice::new(buffer)],
            Some(offset),
            &self.nature,
        )
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(std: fs::File) -> File {
        let nature = Arc::new(Nature::new());
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

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller's promise.
        unsafe { fs::File::from_raw_fd(fd) }.into()
    }
}
