//! An epoll instance, and the event descriptor that ends a wait for it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::{clock, syscall};
use crate::engine::atomic::{AtomicI64, Ordering};

pub(crate) use libc::epoll_event as Event;

/// An epoll instance. Any thread may wait for it.
pub(crate) struct Epoll {
    instance: OwnedFd,
    /// Absent if nobody waits for this instance but by way of another one.
    bell: Option<OwnedFd>,
}

/// The token of a ring of the bell: no registration has it.
pub(crate) const BELL: u64 = 0;

/// Which of the two calls that wait the kernel has refused: `epoll_pwait2`, with its time-out in nanoseconds, is there
/// since Linux 5.11, and a filter may know one of them only.
static REFUSED: AtomicI64 = AtomicI64::new(NEITHER);
const NEITHER: libc::c_long = -1;

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        let bell = bell()?;
        let mut epoll = Epoll::without_bell()?;
        // The bell is edge-triggered and never read: each ring is an edge.
        epoll.add(bell.as_raw_fd(), libc::EPOLLIN | libc::EPOLLET, BELL)?;
        epoll.bell = Some(bell);
        Ok(epoll)
    }

    /// Makes an instance that is to be registered with another one.
    pub(crate) fn without_bell() -> io::Result<Epoll> {
        // SAFETY: the call touches no memory.
        let instance = made(unsafe { syscall!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })?;
        let bell = None;
        Ok(Epoll { instance, bell })
    }

    /// Registers `fd`: its events carry `token`, which is not [`BELL`].
    pub(crate) fn add(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    /// Registers `fd` anew, for one event: if there is one already, it comes.
    pub(crate) fn arm(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let events = events | libc::EPOLLONESHOT;
        match self.control(libc::EPOLL_CTL_MOD, fd, events, token) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => self.add(fd, events, token),
            done => done,
        }
    }

    /// Forgets `fd`, which is still open. Events that some thread has already collected are to come.
    pub(crate) fn remove(&self, fd: RawFd) {
        // The call fails only if `fd` is not registered.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, operation: i32, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let event = Event {
            events: events as u32,
            u64: token,
        };
        let (instance, event) = (self.as_raw_fd(), &raw const event);
        // SAFETY: the kernel reads an event, which is valid.
        let done = unsafe { syscall!(libc::SYS_epoll_ctl, instance, operation, fd, event) };
        done.map(drop).map_err(io::Error::from_raw_os_error)
    }

    /// Collects events: at once, or waits for some, for at most `nanos`. None are collected when the wait is
    /// interrupted.
    pub(crate) fn wait<'a>(&self, events: &'a mut [Event], nanos: Option<u64>) -> &'a [Event] {
        let refused = REFUSED.load(Ordering::Relaxed);
        let millis = nanos.map_or(-1, |n| n.div_ceil(1_000_000).min(i32::MAX as u64) as isize);
        let time = nanos.map(clock::timespec);
        let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let coarse = (libc::SYS_epoll_pwait, millis as usize);
        let precise = (libc::SYS_epoll_pwait2, time as usize);
        let (number, until) = match nanos {
            Some(0) if refused != coarse.0 => coarse,
            _ if refused != precise.0 => precise,
            _ => coarse,
        };
        let (instance, place) = (self.as_raw_fd(), events.as_mut_ptr());
        // SAFETY: `events` is valid for its length, the time-out and the (absent) mask too.
        let count = unsafe { syscall!(number, instance, place, events.len(), until, 0, 0) };
        match count {
            Ok(_) | Err(libc::EINTR) => {}
            // The kernel does not have this call, or a filter refuses it; each filter has an error of its
            // own choice.
            Err(_) if refused == NEITHER => REFUSED.store(number, Ordering::Relaxed),
            Err(_) => super::die("cannot wait for events: who closed the epoll descriptor?"),
        }
        &events[..count.unwrap_or(0)]
    }

    /// Ends a wait: the one in progress, or the next.
    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.bell {
            let _ = ring(bell); // the count is never read, and 2^64 rings are not reached
        }
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.instance.as_raw_fd()
    }
}

/// Makes a bell: an event descriptor.
pub(crate) fn bell() -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: the call touches no memory.
    made(unsafe { syscall!(libc::SYS_eventfd2, 0, flags) })
}

/// Rings the bell, which can be read then.
pub(crate) fn ring(bell: &OwnedFd) -> Result<usize, i32> {
    super::write(bell.as_raw_fd(), &1u64.to_ne_bytes())
}

/// The descriptor that a call has made, or the error.
pub(super) fn made(fd: Result<usize, i32>) -> io::Result<OwnedFd> {
    let fd = fd.map_err(io::Error::from_raw_os_error)?;
    // SAFETY: the descriptor is new, hence nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
