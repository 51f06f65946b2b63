//! Drivers: what makes threads ready from outside. They return ready threads and decide nothing.
//!
//! | file | idea |
//! |---|---|
//! | `source` | a descriptor whose calls block the calling thread only |
//! | `transfer`, `messages` | what goes through a socket |
//! | `epoll` | the kernel says which descriptors are ready |
//! | `readiness`, `record` | what is known of one direction of a descriptor; of both |
//! | `uring` | the kernel does the operation |
//! | `direct` | a kernel thread's own way to wait |
//!
//! A cluster has one of the first two, chosen at its start: [`choose`]. Both live as long as the
//! process and serve any number of clusters; a descriptor may be used with both.

mod direct;
mod epoll;
pub(crate) mod file;
#[cfg(feature = "net")]
mod messages;
mod readiness;
mod record;
pub(crate) mod source;
mod transfer;
#[cfg_attr(not(feature = "io-uring"), path = "no_uring.rs")]
mod uring;

use std::io;

use self::direct::Direct;
use self::epoll::Epoll;
pub(crate) use self::source::{Source, closed};
pub(crate) use self::transfer::Transfer;
use self::uring::Uring;
use crate::engine::green::Green;
use crate::engine::green::current;
use crate::engine::sched::cluster::Kind;

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

/// A way to wait for the kernel.
pub(crate) trait Driver: Send + Sync {
    /// Blocks the thread until a call may find something, or until `limit`: then the error is
    /// `WouldBlock`. May return early.
    fn wait(&self, source: &Source, direction: Direction, limit: Limit) -> io::Result<()>;

    /// Transfers, with `flags` of `recv(2)` or `send(2)`, within `limit`: here, by calls between
    /// which it waits.
    ///
    /// # Safety
    /// What a message points to is valid for the call.
    unsafe fn transfer(
        &self,
        source: &Source,
        transfer: &mut Transfer<'_>,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { source.transfer_when_ready(self, transfer, flags, limit) }
    }

    /// Tries a transfer together with those of other threads, without waiting for the descriptor.
    /// `None`: there are none, or it cannot; the caller is to make the call.
    ///
    /// # Safety
    /// The same.
    unsafe fn try_together(
        &self,
        _source: &Source,
        _transfer: &mut Transfer<'_>,
        _flags: i32,
    ) -> Option<io::Result<usize>> {
        None
    }

    /// Ends what waits for `source`, which is closed.
    fn end_waits(&self, source: &Source);
}

/// The driver of a new cluster: the one asked for, if it can be had, or else epoll.
pub(crate) fn choose(asked: Option<Kind>) -> Kind {
    match asked {
        Some(Kind::Uring) if uring::available() => Kind::Uring,
        _ => Kind::Epoll,
    }
}

/// Whether the ring does what would block the calling thread on a file: unless its cluster was
/// asked to use epoll, which cannot.
fn has_ring_for_files() -> bool {
    let allows = |green: &Green| green.cluster().config.allows_rings;
    current::green().is_some_and(allows) && uring::available()
}

/// What the ring answers to `operation`, if it does what would block the calling thread on a file.
/// `None`: the caller is to make the system call.
fn by_ring<T>(operation: impl FnOnce() -> io::Result<T>) -> Option<io::Result<T>> {
    let answer = has_ring_for_files().then(operation)?;
    (!answer.as_ref().is_err_and(uring::is_refused)).then_some(answer)
}

/// The calling thread's driver.
fn mine() -> &'static dyn Driver {
    match current::green() {
        Some(green) => match green.cluster().config.driver {
            Kind::Epoll => &Epoll,
            Kind::Uring => &Uring,
        },
        None => &Direct,
    }
}

/// All drivers that may have threads which wait for a descriptor.
fn all() -> [&'static dyn Driver; 3] {
    [&Epoll, &Uring, &Direct]
}

/// The time was up.
fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}
