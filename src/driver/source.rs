//! A descriptor whose calls block the calling thread only.
//!
//! A call is tried first, in a form that does not block; if it would, the thread waits until the
//! descriptor may be ready and tries again.

use core::fmt;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::ptr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::epoll;
use super::readiness::Record;
use crate::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::sys::clock;
use crate::sys::lock::Lock;
use crate::wait::queue::Waited;
use crate::{current, sched};

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
pub(crate) struct Source {
    fd: ManuallyDrop<OwnedFd>,
    /// Where its readiness is kept, from when a green thread first waits for it.
    record: AtomicPtr<Record>,
    registering: Lock<()>,
    closed: AtomicBool,
    /// A TCP stream: a call that finds less than it asked for has emptied it.
    is_stream: bool,
}

impl Source {
    pub(crate) fn new(fd: OwnedFd) -> Source {
        Source {
            fd: ManuallyDrop::new(fd),
            record: AtomicPtr::new(ptr::null_mut()),
            registering: Lock::new(()),
            closed: AtomicBool::new(false),
            is_stream: false,
        }
    }

    /// A TCP stream's, for certain: reads can tell when they have emptied it.
    pub(crate) fn of_tcp_stream(fd: OwnedFd) -> Source {
        let mut source = Source::new(fd);
        source.is_stream = true;
        source
    }

    /// The descriptor alone, as it was.
    pub(crate) fn into_fd(mut self) -> OwnedFd {
        self.deregister();
        // SAFETY: taken once: `self` is forgotten.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        mem::forget(self);
        fd
    }

    fn record(&self) -> Option<&'static Record> {
        // Acquire: pairs with the Release in `register`. SAFETY: null or a record, which is never
        // freed.
        unsafe { self.record.load(Ordering::Acquire).as_ref() }
    }

    /// The record, which from now on hears of events: of the present state first.
    fn register(&self) -> io::Result<&'static Record> {
        if let Some(record) = self.record() {
            return Ok(record);
        }
        epoll::readiness().start()?;
        let mine = Record::acquire();
        let registered = {
            let _off = current::preemption_off();
            let _registering = self.registering.lock();
            match self.record() {
                Some(record) => Ok(record),
                None => epoll::readiness().add(self.as_raw_fd(), mine).map(|()| {
                    // Release: pairs with the Acquire in `record`.
                    self.record
                        .store(ptr::from_ref(mine).cast_mut(), Ordering::Release);
                    mine
                }),
            }
        };
        if !registered
            .as_ref()
            .is_ok_and(|record| ptr::eq(*record, mine))
        {
            mine.release();
        }
        registered
    }

    /// Before the descriptor goes: nobody uses it.
    fn deregister(&mut self) {
        if let Some(record) = self.record() {
            // A forked child shares the parent's epoll instance and must not change it.
            if !sched::fork::is_child() {
                epoll::readiness().remove(self.as_raw_fd());
            }
            record.release();
        }
    }

    /// Makes `call`, which does not block, until its answer is not that it would; waits in between.
    pub(crate) fn run<T>(
        &self,
        direction: Direction,
        limit: Limit,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.attempt(direction, limit, call, |_| false)
    }

    /// [`Source::run`]; `emptied`: whether such an answer means that nothing is left.
    fn attempt<T>(
        &self,
        direction: Direction,
        limit: Limit,
        mut call: impl FnMut() -> io::Result<T>,
        emptied: impl Fn(&T) -> bool,
    ) -> io::Result<T> {
        let mut woken = false;
        loop {
            if self.is_closed() {
                return Err(closed());
            }
            let readiness = self.record().map(|record| record.side(direction));
            let may_find = readiness.is_none_or(|side| side.begin());
            if may_find || woken || limit == Limit::DontWait {
                let answer = uninterrupted(&mut call);
                let blocks = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
                let would_block = answer.as_ref().is_err_and(blocks);
                if let Some(side) = readiness
                    && !would_block
                    && !answer.as_ref().is_ok_and(&emptied)
                {
                    side.leave_some();
                }
                if !would_block || limit == Limit::DontWait {
                    return answer;
                }
            }
            self.wait(direction, limit)?;
            woken = true;
        }
    }

    /// Blocks the thread until a call may find something.
    fn wait(&self, direction: Direction, limit: Limit) -> io::Result<()> {
        let deadline = match limit {
            Limit::Until(deadline) => deadline,
            Limit::Forever | Limit::DontWait => clock::NEVER,
        };
        if deadline != clock::NEVER && deadline <= clock::now() {
            return Err(would_block());
        }
        match current::green() {
            Some(_) => match self.register()?.side(direction).wait(Some(deadline)) {
                Waited::TimedOut => Err(would_block()),
                Waited::Refused | Waited::Woken(_) => Ok(()),
            },
            None => {
                poll(self.as_fd(), direction, deadline);
                Ok(())
            }
        }
    }

    /// `recv(2)`.
    pub(crate) fn recv(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        let length = buffer.len();
        // A peek leaves what it has seen; and 0 is the end, which stays.
        let takes = self.is_stream && flags & libc::MSG_PEEK == 0;
        let receive = || {
            // SAFETY: a buffer of that length.
            answer(unsafe {
                libc::recv(
                    self.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    length,
                    flags | libc::MSG_DONTWAIT,
                )
            })
        };
        self.attempt(Direction::Read, limit, receive, |&count| {
            takes && 0 < count && count < length
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

    /// Ends every wait for this descriptor, now and later, with whatever its calls then say; it is
    /// closed when the last owner drops it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // SAFETY: a system call. It wakes those that poll it, unconnected sockets included.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(record) = self.record() {
            record.close();
        }
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.deregister();
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.as_raw_fd()).finish()
    }
}

/// Blocks a kernel thread, or a green thread with its kernel thread, until `fd` may be ready or
/// until `deadline`.
fn poll(fd: BorrowedFd<'_>, direction: Direction, deadline: u64) {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: match direction {
            Direction::Read => libc::POLLIN,
            Direction::Write => libc::POLLOUT,
        },
        revents: 0,
    };
    let millis = match deadline {
        clock::NEVER => -1,
        _ => deadline
            .saturating_sub(clock::now())
            .div_ceil(1_000_000)
            .min(i32::MAX as u64) as i32,
    };
    // SAFETY: one valid record. A failure means: try again.
    unsafe { libc::poll(&mut poll, 1, millis) };
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

fn closed() -> io::Error {
    let message = "the socket was closed by another thread";
    io::Error::new(ErrorKind::NotConnected, message)
}

fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
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
