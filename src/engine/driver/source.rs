//! A descriptor whose calls block the calling thread only.
//!
//! A call is tried first, in a form that does not block; if it would, the thread waits until the
//! descriptor may be ready and tries again.

use core::cell::RefCell;
use core::fmt;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::ptr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::epoll::INSTANCE;
use super::record::Record;
use super::{Direction, Driver, Limit, Transfer};
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::green::current;
use crate::engine::sched;
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::perturb;

/// A descriptor and the threads that wait for it.
pub(crate) struct Source {
    fd: ManuallyDrop<OwnedFd>,
    /// Where its readiness is kept, from when a green thread first waits for it.
    record: AtomicStatic<Record>,
    registering: Lock<()>,
    closed: AtomicBool,
    /// A TCP stream: a call that finds less than it asked for has emptied it.
    is_stream: bool,
}

impl Source {
    pub(crate) fn new(fd: OwnedFd) -> Source {
        Source {
            fd: ManuallyDrop::new(fd),
            record: AtomicStatic::none(),
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

    /// Where its readiness is kept. `None` in a forked child: nobody announces there, and the locks
    /// of records may have been held at the fork.
    pub(super) fn record(&self) -> Option<&'static Record> {
        if sched::fork::is_child() {
            return None;
        }
        // Acquire: pairs with the Release in `register`.
        self.record.load(Ordering::Acquire)
    }

    /// The record, which from now on hears of events: of the present state first.
    pub(super) fn register(&self) -> io::Result<&'static Record> {
        if let Some(record) = self.record() {
            return Ok(record);
        }
        INSTANCE.start()?;
        let mine = Record::acquire();
        let registered = {
            let _off = current::preemption_off();
            let _registering = self.registering.lock();
            match self.record() {
                Some(record) => Ok(record),
                None => INSTANCE.add(self.as_raw_fd(), mine).map(|()| {
                    perturb::point("source: registered");
                    // Release: pairs with the Acquire in `record`.
                    self.record.store(Some(mine), Ordering::Release);
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
        // A forked child has none. It shares the parent's epoll instance and must not change it.
        if let Some(record) = self.record() {
            INSTANCE.remove(self.as_raw_fd());
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
        self.attempt(super::mine(), direction, limit, call, |_| false)
    }

    /// Transfers, with `flags` of `recv(2)` or `send(2)`.
    ///
    /// # Safety
    /// What a message points to is valid for the call.
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
        // SAFETY: no message.
        unsafe { self.transfer(Transfer::Recv(buffer), flags, limit) }
    }

    /// `send(2)`, without SIGPIPE.
    pub(crate) fn send(&self, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
        // SAFETY: no message.
        unsafe { self.transfer(Transfer::Send(buffer), flags, limit) }
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
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Transfer::RecvMessage(message), flags, limit) }
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
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Transfer::SendMessage(message), flags, limit) }
    }

    /// [`Source::transfer`] by a driver that waits for readiness.
    ///
    /// # Safety
    /// The same.
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

    /// Makes `call` until its answer is not that it would block; `emptied`: whether an answer means
    /// that nothing is left.
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
            self.check_open()?;
            let readiness = self.record().map(|record| record.side(direction));
            let may_find = readiness.is_none_or(|side| side.begin());
            if may_find || must_try {
                let answer = uninterrupted(&mut call);
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
                // What is there may not have been announced yet.
                Err(error) if says_would_block(&error) => is_last = true,
                answer => answer?,
            }
            must_try = true;
            waited = true;
        }
    }

    /// The `error` of a call after a wait, as the kernel tells a thread that waits in it: of a Unix
    /// stream that the peer has reset, that one hears why the pipe is broken, and takes the answer
    /// with it. Whoever calls later hears only that it is.
    pub(super) fn why(&self, error: io::Error) -> io::Error {
        if error.kind() != ErrorKind::BrokenPipe {
            return error;
        }
        // Fails for what is no socket.
        #[cfg(feature = "net")]
        if let Ok(Some(why)) = socket2::SockRef::from(self).take_error() {
            return why;
        }
        error
    }

    /// Ends every wait for this descriptor, now and later, with an error; it is closed when the
    /// last owner drops it.
    pub(crate) fn close(&self) {
        // SeqCst: before the waits are ended; partner: in `check_open`, before one begins.
        self.closed.store(true, Ordering::SeqCst);
        perturb::point("source: closing");
        super::all()
            .iter()
            .for_each(|driver| driver.end_waits(self));
    }

    /// Whether it is not closed.
    pub(super) fn check_open(&self) -> io::Result<()> {
        match self.closed.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(closed()),
        }
    }
}

// What is shared through it is atomic or behind a lock, and no panic comes in between.
impl UnwindSafe for Source {}
impl RefUnwindSafe for Source {}

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

/// The answer of `call` when no signal came between.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// The answer of a system call of libc.
pub(crate) fn answer(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn says_would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// What calls on a closed socket say.
pub(crate) fn closed() -> io::Error {
    let message = "the socket was closed by another thread";
    io::Error::new(ErrorKind::NotConnected, message)
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
