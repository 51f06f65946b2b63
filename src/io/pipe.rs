//! Pipes: an end blocks the green thread that uses it, not the kernel thread.
//!
//! Invariants:
//! 1. The descriptor of an [`End`] is in non-blocking mode, since reads and writes of a pipe have no
//!    flag for it. Each end has an open file description of its own, so whoever has the other end,
//!    a child process perhaps, does not see it.
//! 2. A descriptor that leaves (`into`) is in blocking mode. Clones share the description: theirs
//!    then block the kernel thread, which is slower and just as right.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::driver::source::answer;
use crate::driver::{Direction, Limit, Source};

/// One end of a pipe.
#[derive(Debug)]
pub(crate) struct End(Source);

impl End {
    pub(crate) fn new(fd: OwnedFd) -> End {
        set_nonblocking(fd.as_fd(), true);
        End(Source::new(fd))
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        let fd = self.0.into_fd();
        set_nonblocking(fd.as_fd(), false);
        fd
    }

    pub(crate) fn try_clone(&self) -> io::Result<End> {
        self.as_fd().try_clone_to_owned().map(End::new)
    }

    pub(crate) fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let (count, vectors) = (count(buffers), buffers.as_mut_ptr().cast());
        self.0.run(Direction::Read, Limit::Forever, || {
            // SAFETY: `IoSliceMut` has the layout of an `iovec`; the buffers are borrowed.
            answer(unsafe { libc::readv(self.0.as_raw_fd(), vectors, count) })
        })
    }

    pub(crate) fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let (count, vectors) = (count(buffers), buffers.as_ptr().cast());
        self.0.run(Direction::Write, Limit::Forever, || {
            // SAFETY: `IoSlice` has the layout of an `iovec`; the buffers are borrowed.
            answer(unsafe { libc::writev(self.0.as_raw_fd(), vectors, count) })
        })
    }
}

/// As many buffers as the kernel takes at once.
fn count<T>(buffers: &[T]) -> i32 {
    buffers.len().min(1024) as i32
}

fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) {
    let mut on = i32::from(nonblocking);
    // SAFETY: reads an integer. It fails for no open descriptor.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &mut on) };
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A public type that is an [`End`]: conversions, handles, and `Read` or `Write`, through `&Type`
/// too.
macro_rules! pipe_end {
    (@conversions $Type:ident, $Std:ty) => {
        impl From<std::os::fd::OwnedFd> for $Type {
            /// The descriptor gets into non-blocking mode, for all that share its description.
            fn from(fd: std::os::fd::OwnedFd) -> $Type {
                $Type($crate::io::pipe::End::new(fd))
            }
        }

        impl From<$Type> for std::os::fd::OwnedFd {
            /// The descriptor is in blocking mode.
            fn from(end: $Type) -> std::os::fd::OwnedFd {
                end.0.into_fd()
            }
        }

        impl From<$Std> for $Type {
            fn from(std: $Std) -> $Type {
                std::os::fd::OwnedFd::from(std).into()
            }
        }

        impl From<$Type> for $Std {
            fn from(end: $Type) -> $Std {
                std::os::fd::OwnedFd::from(end).into()
            }
        }

        impl From<$Type> for std::process::Stdio {
            fn from(end: $Type) -> std::process::Stdio {
                std::os::fd::OwnedFd::from(end).into()
            }
        }

        impl std::os::fd::AsFd for $Type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $Type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsFd::as_fd(self).as_raw_fd()
            }
        }

        impl std::os::fd::IntoRawFd for $Type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $Type {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $Type {
                // SAFETY: the caller's promise.
                unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }.into()
            }
        }
    };
    ($Type:ident, like $Std:ty, reads) => {
        $crate::io::pipe::pipe_end!(@conversions $Type, $Std);
        $crate::io::macros::read_by_reference!($Type);

        impl std::io::Read for &$Type {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(&mut [std::io::IoSliceMut::new(buffer)])
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read(buffers)
            }
        }
    };
    ($Type:ident, like $Std:ty, writes) => {
        $crate::io::pipe::pipe_end!(@conversions $Type, $Std);
        $crate::io::macros::write_by_reference!($Type);

        impl std::io::Write for &$Type {
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                self.0.write(&[std::io::IoSlice::new(buffer)])
            }

            fn write_vectored(
                &mut self,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.write(buffers)
            }

            /// Does nothing: nothing is held back.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}
pub(crate) use pipe_end;

/// The end of a pipe to read from, as [`std::io::PipeReader`].
#[derive(Debug)]
pub struct PipeReader(End);

/// The end of a pipe to write to, as [`std::io::PipeWriter`].
#[derive(Debug)]
pub struct PipeWriter(End);

pipe_end!(PipeReader, like io::PipeReader, reads);
pipe_end!(PipeWriter, like io::PipeWriter, writes);

impl PipeReader {
    /// Another handle to the same end: both read from one stream.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.0.try_clone().map(PipeReader)
    }
}

impl PipeWriter {
    /// Another handle to the same end: the reader sees the end of the stream when all are gone.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        self.0.try_clone().map(PipeWriter)
    }
}

/// A pipe: what is written to the one end is read from the other.
///
/// A reader waits while the pipe is empty, a writer while it is full; only the green thread waits.
///
/// # Errors
/// There are no more descriptors.
///
/// # Examples
///
/// ```
/// use greenthread::process::Command;
/// use std::io::Read;
///
/// let (mut reader, writer) = greenthread::io::pipe()?;
/// // Both outputs into one pipe.
/// let mut command = Command::new("sh");
/// command.args(["-c", "echo out; echo err >&2"]).stdout(writer.try_clone()?).stderr(writer);
/// let mut child = command.spawn()?;
/// drop(command); // it holds the ends to write to
///
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "out\nerr\n");
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}
