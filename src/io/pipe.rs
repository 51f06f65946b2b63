//! Pipes: an end blocks the green thread that uses it, not the kernel thread.
//!
//! | caller | reads | writes |
//! |---|---|---|
//! | a kernel thread; anybody, for no bytes | the system call | the system call |
//! | a green thread | `RWF_NOWAIT`; waits while there is nothing | the same, while there is no room, until all is written |
//! | … where that flag is refused (before Linux 6.4; not a pipe) | `poll(2)`, then the system call | `poll(2)`, then the system call, of [`ATOMIC`] bytes at most: for those there is room |
//!
//! Invariants:
//! 1. The descriptor's mode is never changed: its open file description may be somebody else's too, a
//!    clone's or a child's whose standard output it is. If somebody puts it into non-blocking mode,
//!    calls fail with `WouldBlock`, as std's do.
//! 2. A write writes all, as the system call in blocking mode does, unless an error comes after a
//!    part of it: then it says how much, and the next write fails. What is not longer than
//!    [`ATOMIC`] is written by one call, and so not mixed with what others write.
//! 3. Where a call may block after all, because another reader or writer came between it and
//!    `poll(2)`, it may block (`thread::may_block`): slower, and just as right.
//!
//! Rejected: non-blocking mode, because of invariant 1; a description of our own, through
//! `/proc/self/fd`, since that costs each end a second descriptor, and there need not be a `/proc`.
//!
//! Memory orderings: Relaxed; whether the flag is taken is a hint and guards nothing.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::SockRef;

use crate::engine::door::atomic::{AtomicBool, Ordering};
use crate::engine::door::calls;
use crate::engine::door::is_green;
use crate::engine::door::may_block;
use crate::engine::door::says_would_block;
use crate::engine::door::{Direction, Limit, Source};

/// The most that is written at once, and that there is room for when a pipe can be written to.
const ATOMIC: usize = libc::PIPE_BUF;

/// As many buffers as the kernel takes at once.
const MOST_BUFFERS: usize = libc::UIO_MAXIOV as usize;

/// One end of a pipe.
#[derive(Debug)]
pub(crate) struct End {
    source: Source,
    /// Calls take `RWF_NOWAIT`, as far as is known.
    takes_nowait: AtomicBool,
}

impl End {
    pub(crate) fn new(fd: OwnedFd) -> End {
        End {
            takes_nowait: AtomicBool::new(calls::is_pipe(fd.as_fd())),
            source: Source::new(fd),
        }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.source.into_fd()
    }

    pub(crate) fn try_clone(&self) -> io::Result<End> {
        self.as_fd().try_clone_to_owned().map(End::new)
    }

    pub(crate) fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // For no bytes the kernel waits for nobody; `poll(2)` would.
        let mut known = buffers.iter().take(MOST_BUFFERS);
        if !is_green() || known.all(|buffer| buffer.is_empty()) {
            return calls::read(self.as_fd(), buffers);
        }
        self.run(Direction::Read, |now| match now {
            true => calls::read_now(self.as_fd(), buffers),
            false => calls::read(self.as_fd(), buffers),
        })
    }

    pub(crate) fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if !is_green() {
            return calls::write(self.as_fd(), buffers);
        }
        let buffers = &buffers[..buffers.len().min(MOST_BUFFERS)];
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if wanted == 0 {
            return calls::write(self.as_fd(), buffers); // as in `read`
        }
        let mut done = self.write_some(buffers, wanted)?;
        if done < wanted {
            let mut copy = buffers.to_vec();
            let mut rest = &mut copy[..];
            IoSlice::advance_slices(&mut rest, done);
            while done < wanted
                && let Ok(more @ 1..) = self.write_some(rest, wanted - done)
            {
                done += more;
                IoSlice::advance_slices(&mut rest, more);
            }
        }
        Ok(done)
    }

    /// Writes a part of `buffers`, of the length `wanted`; all if that is [`ATOMIC`] at most.
    fn write_some(&self, buffers: &[IoSlice<'_>], wanted: usize) -> io::Result<usize> {
        self.run(Direction::Write, |now| {
            if now {
                return calls::write_now(self.as_fd(), buffers);
            }
            match buffers.iter().find(|buffer| !buffer.is_empty()) {
                Some(first) if wanted > ATOMIC => {
                    let part = &first[..first.len().min(ATOMIC)];
                    calls::write(self.as_fd(), &[IoSlice::new(part)])
                }
                _ => calls::write(self.as_fd(), buffers),
            }
        })
    }

    /// Makes one of two calls, waiting until it need not wait: one with `RWF_NOWAIT` (`call` is told
    /// so), or one that could block, but for what `poll(2)` says.
    fn run(
        &self,
        direction: Direction,
        mut call: impl FnMut(bool) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut attempt = || {
            if self.takes_nowait.load(Ordering::Relaxed) {
                let answer = call(true);
                if !answer.as_ref().is_err_and(says_unknown) {
                    return answer;
                }
                self.takes_nowait.store(false, Ordering::Relaxed);
            }
            match is_ready(self.as_fd(), direction) {
                true => may_block(|| call(false)),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        };
        self.source
            .run(direction, Limit::Forever, || match attempt() {
                // It is said to the caller, who has asked for it.
                Err(error) if says_would_block(&error) && is_nonblocking(self.as_fd()) => {
                    Ok(Err(error))
                }
                Err(error) => Err(error),
                Ok(count) => Ok(Ok(count)),
            })?
    }
}

/// The kernel does not know the call, or the flag, or not for this kind of file.
fn says_unknown(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM)
    )
}

fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    SockRef::from(&fd).nonblocking().unwrap_or(false)
}

/// Whether a call would not block at this moment. An error is for the call to tell.
fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> bool {
    let events = match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    };
    calls::poll(fd, events).unwrap_or(true)
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

/// A public type that is an [`End`]: conversions, handles, and `Read` or `Write`, through `&Type`
/// too.
macro_rules! pipe_end {
    (@conversions $Type:ident, $Std:ty) => {
        impl From<std::os::fd::OwnedFd> for $Type {
            fn from(fd: std::os::fd::OwnedFd) -> $Type {
                $Type($crate::io::pipe::End::new(fd))
            }
        }

        impl From<$Type> for std::os::fd::OwnedFd {
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

        $crate::engine::door::calls::from_raw_fd!($Type);
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
