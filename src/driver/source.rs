//! A descriptor whose calls block the calling thread only.
//!
//! A call is tried first, in a form that does not block; if it would, the thread waits until the
//! descriptor may be ready and tries again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::clock;

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Something to read, or to accept.
    Read,
    /// Room to write, or the end of a connect.
    Write,
}

/// How long a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Until the call is done.
    Forever,
    /// Until then (monotonic nanoseconds); after it the call fails with `WouldBlock`, as std's
    /// calls with a time-out do.
    Until(u64),
    /// Not at all: the descriptor is in non-blocking mode.
    DontWait,
}

/// A descriptor and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
}

impl Source {
    pub(crate) fn new(fd: OwnedFd) -> Source {
        Source { fd }
    }

    /// The descriptor alone, as it was.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Makes `call`, which does not block, until its answer is not that it would; waits in between.
    pub(crate) fn run<T>(
        &self,
        direction: Direction,
        limit: Limit,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(direction, limit)?
                }
                answer => return answer,
            }
        }
    }

    fn wait(&self, direction: Direction, limit: Limit) -> io::Result<()> {
        let would_block = || io::Error::from_raw_os_error(libc::EAGAIN);
        let deadline = match limit {
            Limit::Forever => clock::NEVER,
            Limit::Until(deadline) => deadline,
            Limit::DontWait => return Err(would_block()),
        };
        let now = clock::now();
        if deadline <= now {
            return Err(would_block());
        }
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: match direction {
                Direction::Read => libc::POLLIN,
                Direction::Write => libc::POLLOUT,
            },
            revents: 0,
        };
        let millis = match deadline {
            clock::NEVER => -1,
            _ => (deadline - now).div_ceil(1_000_000).min(i32::MAX as u64) as i32,
        };
        // SAFETY: one valid record.
        crate::blocking(|| unsafe { libc::poll(&mut poll, 1, millis) });
        Ok(())
    }

    /// `recv(2)`.
    pub(crate) fn recv(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        self.run(Direction::Read, limit, || {
            // SAFETY: a buffer of that length.
            answer(unsafe {
                libc::recv(
                    self.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    flags | libc::MSG_DONTWAIT,
                )
            })
        })
    }

    /// `send(2)`, without SIGPIPE.
    pub(crate) fn send(&self, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
        self.run(Direction::Write, limit, || {
            // SAFETY: a buffer of that length.
            answer(unsafe {
                libc::send(
                    self.as_raw_fd(),
                    buffer.as_ptr().cast(),
                    buffer.len(),
                    flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            })
        })
    }

    /// `recvmsg(2)`.
    ///
    /// # Safety
    /// What `message` points to is valid for the call.
    pub(crate) unsafe fn recv_message(
        &self,
        message: &mut libc::msghdr,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        self.run(Direction::Read, limit, || {
            // SAFETY: the caller's promise.
            answer(unsafe { libc::recvmsg(self.as_raw_fd(), message, flags | libc::MSG_DONTWAIT) })
        })
    }

    /// `sendmsg(2)`, without SIGPIPE.
    ///
    /// # Safety
    /// What `message` points to is valid for the call.
    pub(crate) unsafe fn send_message(
        &self,
        message: &libc::msghdr,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        self.run(Direction::Write, limit, || {
            // SAFETY: the caller's promise.
            answer(unsafe {
                libc::sendmsg(
                    self.as_raw_fd(),
                    message,
                    flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            })
        })
    }

    /// Ends every wait for this descriptor, now and later, with an error; the descriptor itself is
    /// closed when the last owner drops it.
    pub(crate) fn close(&self) {
        // SAFETY: a system call. It wakes those that poll it, unconnected sockets included.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// The answer of a system call of libc.
pub(crate) fn answer(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
