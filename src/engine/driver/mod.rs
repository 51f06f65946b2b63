//! Drivers make threads ready at events outside the process. They return ready threads and decide
//! nothing.
//!
//! | file | idea |
//! |---|---|
//! | `source` | a descriptor whose calls block the calling thread only |
//! | `registration` | a descriptor is registered when a thread first waits for it, and may be closed |
//! | `transfer`, `messages` | transfers of bytes through a socket |
//! | `epoll` | the kernel says which descriptors are ready |
//! | `readiness`, `record` | the known readiness of one direction of a descriptor; of both |
//! | `uring` | the kernel does the operation |
//! | `direct` | a kernel thread's own way to wait |
//! | `watch` | descriptors that are not ours: a thread waits until any of some may be ready |
//!
//! A cluster has the driver `epoll` or `uring`, chosen at its start: [`choose`]. Both live as long
//! as the process and serve any number of clusters; a descriptor may be used with both.

mod direct;
mod epoll;
pub(crate) mod file;
#[cfg(feature = "net")]
mod messages;
mod readiness;
mod record;
mod registration;
pub(crate) mod source;
mod transfer;
#[cfg_attr(not(feature = "io-uring"), path = "no_uring.rs")]
mod uring;
pub(crate) mod watch;

use std::io;
use std::os::fd::BorrowedFd;

use self::direct::Direct;
use self::epoll::Epoll;
pub(crate) use self::source::{Source, closed};
pub(crate) use self::transfer::Transfer;
use self::uring::Uring;
use crate::engine::sched::cluster::Kind;
use crate::engine::sched::{Green, current};

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

    /// Ends the waits for `source`, which is closed.
    fn end_waits(&self, source: &Source);
}

/// The driver of a new cluster: the requested driver, if the system has it, or else epoll.
pub(crate) fn choose(asked: Option<Kind>) -> Kind {
    match asked {
        Some(Kind::Uring) if uring::available() => Kind::Uring,
        _ => Kind::Epoll,
    }
}

/// Whether the ring does the file operations that would block the calling thread. It does, unless
/// the thread's cluster was asked to use epoll, which cannot do them.
fn has_ring_for_files() -> bool {
    let allows = |green: &Green| green.cluster().config.allows_rings;
    current::green().is_some_and(allows) && uring::available()
}

/// The ring's answer to `operation`, if the ring does the file operations that would block the
/// calling thread. `None`: the caller is to make the system call.
fn by_ring<T>(operation: impl FnOnce() -> io::Result<T>) -> Option<io::Result<T>> {
    let answer = has_ring_for_files().then(operation)?;
    (!answer.as_ref().is_err_and(uring::is_refused)).then_some(answer)
}

/// `connect(2)` on a socket in blocking mode, by the ring. `None`: there is no ring.
///
/// # Safety
/// The address is valid for its length.
pub(crate) unsafe fn connect(
    fd: BorrowedFd<'_>,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Option<io::Result<()>> {
    // SAFETY: the caller's promise.
    by_ring(|| unsafe { uring::connect(fd, address, length) })
}

/// `fsync(2)`, or `fdatasync(2)`, by the ring. `None`: there is no ring.
pub(crate) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> Option<io::Result<()>> {
    by_ring(|| uring::file::sync(fd, data_only))
}

/// Waits, by the ring, until `waitid(2)` with these arguments may have an answer. False: the ring cannot wait for it.
pub(crate) fn wait_for_child(kind: libc::idtype_t, id: libc::id_t, options: libc::c_int) -> bool {
    matches!(
        by_ring(|| uring::wait_for_child(kind, id, options)),
        Some(Ok(()))
    )
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

/// All drivers with which threads may be waiting for a descriptor.
fn all() -> [&'static dyn Driver; 3] {
    [&Epoll, &Uring, &Direct]
}

/// The error of a call whose time is up.
fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}
