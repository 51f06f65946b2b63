//! A descriptor whose calls block the calling thread only.
//!
//! A call is first tried in a form that does not block. If it would block, the thread waits until the
//! descriptor may be ready, and then tries again.

use core::cell::RefCell;
use core::fmt;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::epoll::{INSTANCE, Record};
use super::registration::{Closed, Registration};
use super::{Direction, Driver, Limit, Transfer};
use crate::engine::sys::{perturb, word};
use crate::engine::wait::{Facts, Locator, WaitKind, WaitReason};

/// A descriptor and the threads that wait for it.
pub(crate) struct Source {
    fd: ManuallyDrop<OwnedFd>,
    registration: Registration,
    /// Whether it is a TCP stream: a call that transfers less than it asked for has then emptied
    /// it.
    is_stream: bool,
}

/// For reports.
static READ: WaitKind = WaitKind::outside("descriptor to read", look).with(FD);
static WRITE: WaitKind = WaitKind::outside("descriptor to write", look).with(FD);
const FD: Locator = Locator::descriptor(mem::offset_of!(Source, fd));

fn look(address: usize, facts: &mut Facts) {
    let fd = word::look(address + mem::offset_of!(Source, fd));
    facts.descriptor = fd.ok().map(|fd| fd as i32);
}

impl Source {
    /// For reports: a thread waits for one direction.
    pub(crate) fn wait_reason(&self, direction: Direction) -> WaitReason {
        let kind = match direction {
            Direction::Read => &READ,
            Direction::Write => &WRITE,
        };
        WaitReason::new(kind, self)
    }

    pub(crate) fn new(fd: OwnedFd) -> Source {
        Source {
            fd: ManuallyDrop::new(fd),
            registration: Registration::new(),
            is_stream: false,
        }
    }

    /// Makes the source of a TCP stream: its reads can tell when they have emptied it.
    pub(crate) fn of_tcp_stream(fd: OwnedFd) -> Source {
        let mut source = Source::new(fd);
        source.is_stream = true;
        source
    }

    /// Returns the descriptor, and undoes its registration.
    pub(crate) fn into_fd(mut self) -> OwnedFd {
        self.deregister();
        // SAFETY: the descriptor is taken once, since `self` is forgotten.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        mem::forget(self);
        fd
    }

    /// The record of its readiness, if it is registered.
    pub(super) fn record(&self) -> Option<&'static Record> {
        self.registration.record()
    }

    /// Returns the record, which receives events from now on, the present state first.
    pub(super) fn register(&self) -> io::Result<&'static Record> {
        self.registration.register(self.as_raw_fd())
    }

    /// Undoes the registration before the descriptor is closed; no thread uses the source any more.
    fn deregister(&mut self) {
        // A forked child has no record. It shares the parent's epoll instance and must not change
        // it.
        if let Some(record) = self.record() {
            INSTANCE.remove(self.as_raw_fd());
            record.release();
        }
    }

    /// Repeats `call`, which does not block, until it answers something other than "would block";
    /// waits between two attempts.
    pub(crate) fn run<T>(
        &self,
        direction: Direction,
        limit: Limit,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.attempt(super::mine(), direction, limit, call, |_| false)
    }

    /// Transfers bytes, with `flags` of `recv(2)` or `send(2)`.
    ///
    /// # Safety
    /// The memory that a message points to is valid for the call.
    pub(crate) unsafe fn transfer(
        &self,
        mut transfer: Transfer<'_>,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { super::mine().transfer(self, &mut transfer, flags, limit) }
    }

    /// `recv(2)`.
    pub(crate) fn recv(
        &self,
        buffer: &mut [MaybeUninit<u8>],
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        // SAFETY: the transfer has no message.
        unsafe { self.transfer(Transfer::Recv(buffer), flags, limit) }
    }

    /// `send(2)`, without SIGPIPE.
    pub(crate) fn send(&self, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
        // SAFETY: the transfer has no message.
        unsafe { self.transfer(Transfer::Send(buffer), flags, limit) }
    }

    /// [`Source::transfer`] for a driver that waits for readiness.
    ///
    /// # Safety
    /// As [`Source::transfer`].
    pub(super) unsafe fn transfer_when_ready(
        &self,
        driver: &(impl Driver + ?Sized),
        transfer: &mut Transfer<'_>,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        let direction = transfer.direction();
        let transfer = RefCell::new(transfer);
        let call = || {
            let mut transfer = transfer.borrow_mut();
            // SAFETY: the caller's promise.
            unsafe {
                let answer = match limit {
                    Limit::DontWait => None,
                    _ => driver.try_together(self, &mut transfer, flags),
                };
                answer.unwrap_or_else(|| transfer.try_now(self.as_raw_fd(), flags))
            }
        };
        let emptied = |&count: &usize| self.is_stream && transfer.borrow().empties(flags, count);
        self.attempt(driver, direction, limit, call, emptied)
    }

    /// Repeats `call` until it answers something other than "would block". `emptied` tells whether
    /// an answer means that no bytes are left.
    fn attempt<T>(
        &self,
        driver: &(impl Driver + ?Sized),
        direction: Direction,
        limit: Limit,
        mut call: impl FnMut() -> io::Result<T>,
        emptied: impl Fn(&T) -> bool,
    ) -> io::Result<T> {
        let mut is_last = limit == Limit::DontWait;
        let mut must_try = is_last;
        let mut waited = false;
        loop {
            let record = self
                .registration
                .look()
                .map_err(|Closed| Source::closed())?;
            let readiness = record.map(|record| record.side(direction));
            let may_find = readiness.is_none_or(|side| side.begin());
            if may_find || must_try {
                let answer = Source::uninterrupted(&mut call);
                let would_block = answer.as_ref().is_err_and(says_would_block);
                if let Some(side) = readiness
                    && !would_block
                {
                    side.answered(answer.as_ref().is_ok_and(&emptied));
                }
                if !would_block || is_last {
                    return answer.map_err(|error| match waited {
                        true => self.why(error),
                        false => error,
                    });
                }
            }
            perturb::point("source: would block");
            match driver.wait(self, direction, limit) {
                // The descriptor may be ready although no event has announced it yet.
                Err(error) if says_would_block(&error) => is_last = true,
                answer => answer?,
            }
            must_try = true;
            waited = true;
        }
    }

    /// Turns the `error` of a call after a wait into the error that the kernel gives to a thread
    /// blocked in the call. If the peer has reset a Unix stream, the kernel tells that thread why
    /// the pipe is broken, and forgets the reason; a later call learns only that the pipe is
    /// broken.
    pub(super) fn why(&self, error: io::Error) -> io::Error {
        if error.kind() != ErrorKind::BrokenPipe {
            return error;
        }
        // The call fails if the descriptor is not a socket.
        #[cfg(feature = "net")]
        if let Ok(Some(why)) = socket2::SockRef::from(self).take_error() {
            return why;
        }
        error
    }

    /// Ends every wait for this descriptor, now and later, with an error. The descriptor is closed
    /// when the last owner drops it.
    pub(crate) fn close(&self) {
        self.registration.close();
        perturb::point("source: closing");
        super::all()
            .iter()
            .for_each(|driver| driver.end_waits(self));
    }

    /// Fails if the source is closed.
    pub(super) fn check_open(&self) -> io::Result<()> {
        self.registration
            .check_open()
            .map_err(|Closed| Source::closed())
    }
}

// The shared data is atomic or behind a lock, and no panic interrupts a change of it.
impl UnwindSafe for Source {}
impl RefUnwindSafe for Source {}

impl Drop for Source {
    fn drop(&mut self) {
        self.deregister();
        // SAFETY: the descriptor is dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.as_raw_fd()).finish()
    }
}

impl Source {
    /// Repeats `call` until no signal interrupts it, and returns its answer.
    pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                answer => return answer,
            }
        }
    }

    /// The error of a call on a closed socket.
    pub(crate) fn closed() -> io::Error {
        let message = "the socket was closed by another thread";
        io::Error::new(ErrorKind::NotConnected, message)
    }
}

/// Converts the result of a libc system call.
pub(crate) fn answer(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn says_would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
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
