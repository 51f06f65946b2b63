//! Drivers make threads ready at events outside the process. They return ready threads and decide
//! nothing.
//!
//! | file | idea |
//! |---|---|
//! | `source` | a descriptor whose calls block the calling thread only |
//! | `registration` | a descriptor is registered when a thread first waits for it, and may be closed; its known readiness |
//! | `transfer` | transfers of bytes through a socket |
//! | `epoll` | the kernel says which descriptors are ready |
//! | `uring` | the kernel does the operation |
//! | `sends` | sends of several threads are handed to the kernel together |
//! | `direct` | a kernel thread's own way to wait |
//! | `watch` | descriptors that are not ours: a thread waits until any of some may be ready |
//!
//! A cluster has one driver, chosen at its start ([`choose`]): epoll alone, io_uring for all, or each where it is
//! better. All live as long as the process and serve any number of clusters; a descriptor may be used with all.

mod direct;
mod epoll;
pub(crate) mod file;
mod registration;
#[cfg(feature = "io-uring")]
mod sends;
pub(crate) mod source;
mod transfer;
#[cfg(feature = "io-uring")]
mod uring;
pub(crate) mod watch;

use std::io;
use std::os::fd::BorrowedFd;

use self::direct::Direct;
use self::epoll::Epoll;
pub(crate) use self::source::Source;
pub(crate) use self::transfer::Transfer;
#[cfg(feature = "io-uring")]
use self::uring::{Mixed, Uring};
#[cfg(not(feature = "io-uring"))]
use self::{epoll as uring, epoll::Epoll as Mixed, epoll::Epoll as Uring};
use crate::engine::sched::cluster::Kind;
use crate::engine::sched::current;

/// The event that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// There is something to read, or a connection to accept.
    Read,
    /// There is space to write, or a connect has ended.
    Write,
}

/// The time that a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Until the call is done.
    Forever,
    /// The call may wait until this time (monotonic nanoseconds); then it fails with `WouldBlock`,
    /// as std's calls with a time-out do.
    Until(u64),
    /// The call may not wait: the descriptor is in non-blocking mode.
    DontWait,
}

/// A way to wait for the kernel.
pub(crate) trait Driver: Send + Sync {
    /// Blocks the thread until a call may find something, or until `limit`: then the error is
    /// `WouldBlock`. May return early.
    fn wait(&self, source: &Source, direction: Direction, limit: Limit) -> io::Result<()>;

    /// Transfers, with `flags` of `recv(2)` or `send(2)`, within `limit`. This default makes calls
    /// and waits between them.
    ///
    /// # Safety
    /// The memory that a message points to is valid for the call.
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
    /// `None`: there are no others, or the driver cannot do it; the caller is to make the call.
    ///
    /// # Safety
    /// As [`Driver::transfer`].
    unsafe fn try_together(
        &self,
        _source: &Source,
        _transfer: &mut Transfer<'_>,
        _flags: i32,
    ) -> Option<io::Result<usize>> {
        None
    }

    /// Does `operation` without blocking the kernel thread. `None`: the driver cannot, and the caller is to make
    /// the system call.
    fn operate(&self, _operation: Operation<'_>) -> Option<io::Result<usize>> {
        None
    }

    /// Ends the waits for `source`, which is closed.
    fn end_waits(&self, source: &Source);
}

/// An operation that may block the kernel thread, and that a ring can do instead.
pub(crate) enum Operation<'a> {
    /// `pread(2)`; the offset is not negative.
    Read(BorrowedFd<'a>, &'a mut [u8], i64),
    /// `pwrite(2)`; the offset is not negative.
    Write(BorrowedFd<'a>, &'a [u8], i64),
    /// `fsync(2)`, or `fdatasync(2)`.
    Sync { fd: BorrowedFd<'a>, data_only: bool },
    /// `connect(2)` on a socket in blocking mode. The kernel reads the address, or answers EFAULT.
    Connect(BorrowedFd<'a>, *const libc::sockaddr, libc::socklen_t),
    /// `waitid(2)` with no place for what it finds.
    WaitForChild(libc::idtype_t, libc::id_t, libc::c_int),
}

/// The driver of a new cluster: the requested driver, if the system has it.
pub(crate) fn choose(asked: Option<Kind>) -> Kind {
    match asked.unwrap_or(Kind::Mixed) {
        Kind::Uring if !uring::available() => Kind::Mixed,
        kind => kind,
    }
}

/// Does `operation` without blocking the kernel thread. `None`: the caller is to make the system call.
pub(crate) fn operate(operation: Operation<'_>) -> Option<io::Result<usize>> {
    mine().operate(operation)
}

/// The calling thread's driver.
fn mine() -> &'static dyn Driver {
    let Some(green) = current::green() else {
        return &Direct;
    };
    match green.cluster().config.driver {
        Kind::Epoll => &Epoll,
        Kind::Mixed => &Mixed,
        Kind::Uring => &Uring,
    }
}

/// All drivers with which threads may be waiting for a descriptor.
fn all() -> [&'static dyn Driver; 3] {
    [&Epoll, &Uring, &Direct]
}

/// The error of a call whose time is up.
fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}
