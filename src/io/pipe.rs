//! Pipes: an end blocks the green thread that uses it, not the kernel thread.
//!
//! | caller | reads | writes |
//! |---|---|---|
//! | a kernel thread; any thread, for no bytes | the system call | the system call |
//! | a green thread | `RWF_NOWAIT`; waits while there is nothing | the same, while there is no room, until all is written |
//! | … where that flag is refused (before Linux 6.4; not a pipe) | `poll(2)`, then the system call | `poll(2)`, then the system call, of a page at most: a pipe that is ready has room for that |
//!
//! Invariants:
//! 1. The descriptor's mode is never changed: others may share its open file description, such as a
//!    clone, or a child whose standard output it is. If a program puts it into non-blocking
//!    mode, calls fail with `WouldBlock`, as std's do.
//! 2. A write writes all, as the system call in blocking mode does, unless an error comes after a
//!    part of it: then it returns the length of that part, and the next write fails. A write of
//!    `PIPE_BUF` bytes or less, which no page is smaller than, is a single call, and so is not mixed with the writes
//!    of others.
//! 3. A call may still block if another reader or writer comes between it and `poll(2)`. Then it
//!    blocks its kernel thread (`facade::may_block`): that is slower, and just as correct.
//!
//! Rejected: non-blocking mode, because of invariant 1; a description of our own, by way of
//! `/proc/self/fd`, since that costs each end a second descriptor, and there may be no `/proc`.
//!
//! Memory orderings: Relaxed; whether the flag is accepted is a hint and guards nothing.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::atomic::{AtomicBool, Ordering};
use crate::engine::facade::{Direction, Limit, Source, may_block};
use crate::sys::mm::page as page_size;
use crate::sys::{calls, is_ready};
use crate::thread::Thread;
use crate::wait::is_in_frame;

/// The greatest number of buffers that the kernel takes at once.
const MOST_BUFFERS: usize = libc::UIO_MAXIOV as usize;

/// One end of a pipe.
#[derive(Debug)]
pub(crate) struct End {
    source: Source,
    /// Whether calls accept `RWF_NOWAIT`, as far as is known.
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

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    pub(crate) fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    pub(crate) fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // For a read of no bytes the kernel does not wait, but `poll(2)` would.
        let mut known = buffers.iter().take(MOST_BUFFERS);
        if may_block_at_once() || known.all(|buffer| buffer.is_empty()) {
            return calls::read(self.as_fd(), buffers);
        }
        self.run(Direction::Read, |now| match now {
            true => calls::read_now(self.as_fd(), buffers),
            false => calls::read(self.as_fd(), buffers),
        })
    }

    pub(crate) fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if may_block_at_once() {
            return calls::write(self.as_fd(), buffers);
        }
        let buffers = &buffers[..buffers.len().min(MOST_BUFFERS)];
        if length(buffers) == 0 {
            return calls::write(self.as_fd(), buffers); // as in `read`
        }
        write_as_far_as_it_goes(buffers, |buffers| self.write_some(buffers), drop)
    }

    /// Writes a part of `buffers`; all of them if that is a page at most. (With less than a page at once, the last page
    /// of a pipe would seem to be full when it is not.)
    fn write_some(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.run(Direction::Write, |now| {
            if now {
                return calls::write_now(self.as_fd(), buffers);
            }
            match buffers.iter().find(|buffer| !buffer.is_empty()) {
                Some(first) if length(buffers) > page_size() => {
                    let part = &first[..first.len().min(page_size())];
                    calls::write(self.as_fd(), &[IoSlice::new(part)])
                }
                _ => calls::write(self.as_fd(), buffers),
            }
        })
    }

    /// Makes one of two calls, and waits until it succeeds: the one with `RWF_NOWAIT`, or the one
    /// that may block, once `poll(2)` says that it does not.
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
            // The descriptor counts as ready after an error, too, which the call then reports.
            match is_ready(self.as_fd().as_raw_fd(), direction as i16) {
                true => may_block(|| call(false)),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        };
        // If the user has set non-blocking mode, the error goes to the user.
        let is_users = |error: &io::Error| {
            error.kind() == io::ErrorKind::WouldBlock
                && calls::is_nonblocking(self.as_fd().as_raw_fd())
        };
        let attempt = || match attempt() {
            Err(error) if !is_users(&error) => Err(error),
            answer => Ok(answer),
        };
        self.source.run(direction, Limit::Forever, attempt)?
    }
}

/// Whether the calling thread is a kernel thread in no frame: then it makes the call that blocks, as std does.
fn may_block_at_once() -> bool {
    !Thread::is_green() && !is_in_frame()
}

/// The number of bytes in `buffers`.
fn length(buffers: &[IoSlice<'_>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// Writes `buffers` by as many calls as it takes. An error of a later call ends it, and goes to `late`: it is for the user's
/// next call.
pub(crate) fn write_as_far_as_it_goes(
    buffers: &[IoSlice<'_>],
    write: impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    late: impl Fn(io::Error),
) -> io::Result<usize> {
    let wanted = length(buffers);
    let mut done = write(buffers)?;
    if done < wanted {
        let mut copy = buffers.to_vec();
        let mut rest = &mut copy[..];
        IoSlice::advance_slices(&mut rest, done);
        while done < wanted
            && let Ok(more @ 1..) = write(rest).map_err(&late)
        {
            done += more;
            IoSlice::advance_slices(&mut rest, more);
        }
    }
    Ok(done)
}

/// Returns whether the kernel does not know the call or the flag, or not for this kind of file, or a filter refuses
/// the call.
fn says_unknown(error: &io::Error) -> bool {
    let unknown = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EACCES];
    (error.raw_os_error()).is_some_and(|number| unknown.contains(&number))
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

/// Implements a public type that wraps an [`End`]: conversions, handles, and `Read` or `Write`, as `$way` says.
macro_rules! pipe_end {
    ($Type:ident, like $Std:ty, $way:ident) => {
        impl From<$Type> for std::process::Stdio {
            fn from(end: $Type) -> std::process::Stdio {
                std::os::fd::OwnedFd::from(end).into()
            }
        }

        $crate::io::macros::wraps_descriptor!($Type, like $Std; by $crate::io::pipe::End::new);
        $crate::io::macros::$way!($Type);
    };
}
pub(crate) use pipe_end;

/// The reading end of a pipe, like [`std::io::PipeReader`], created by [`pipe`].
///
/// A read returns 0 bytes when all writing ends have been dropped and all data has been read.
///
/// # Examples
///
/// ```
/// use std::io::Read;
///
/// let (mut reader, writer) = greenthread::io::pipe()?;
/// drop(writer);
/// assert_eq!(reader.read(&mut [0; 8])?, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeReader(End);

/// The writing end of a pipe, like [`std::io::PipeWriter`], created by [`pipe`].
///
/// A write fails with `BrokenPipe` when all reading ends have been dropped.
///
/// # Examples
///
/// ```
/// use std::io::{ErrorKind, Write};
///
/// let (reader, mut writer) = greenthread::io::pipe()?;
/// drop(reader);
/// assert_eq!(writer.write(b"hello").unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeWriter(End);

pipe_end!(PipeReader, like io::PipeReader, reads);
pipe_end!(PipeWriter, like io::PipeWriter, writes);

impl PipeReader {
    /// Creates another handle to the same end: both handles read from one stream.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// let (mut one, mut writer) = greenthread::io::pipe()?;
    /// let mut other = one.try_clone()?;
    /// writer.write_all(b"ab")?;
    /// let mut byte = [0];
    /// one.read_exact(&mut byte)?;
    /// assert_eq!(&byte, b"a");
    /// other.read_exact(&mut byte)?;
    /// assert_eq!(&byte, b"b");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.0.try_clone().map(PipeReader)
    }
}

impl PipeWriter {
    /// Creates another handle to the same end.
    ///
    /// The reader sees the end of the stream when all handles have been dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// let (mut reader, mut one) = greenthread::io::pipe()?;
    /// let mut other = one.try_clone()?;
    /// let writing = greenthread::spawn(move || other.write_all(b"hello"));
    /// writing.join().unwrap()?;
    /// one.write_all(b" world")?;
    /// drop(one);
    ///
    /// let mut text = String::new();
    /// reader.read_to_string(&mut text)?;
    /// assert_eq!(text, "hello world");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        self.0.try_clone().map(PipeWriter)
    }
}

/// Creates a pipe: data that is written to one end is read from the other.
///
/// A reader waits while the pipe is empty, and a writer while it is full; only the green thread
/// waits.
///
/// # Errors
///
/// Returns an error if the process has no more descriptors.
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
/// drop(command); // it holds the writing ends
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
