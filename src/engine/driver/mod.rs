//! Drivers make threads ready at events outside the process. They return ready threads and decide
//! nothing.
//!
//! | file | idea |
//! |---|---|
//! | `source` | a descriptor whose calls block the calling thread only; transfers of bytes through it |
//! | `epoll` | the kernel says which descriptors are ready; how a descriptor is registered and closed; its known readiness |
//! | `uring` | the kernel does the operation |
//! | `sends` | sends of several threads are handed to the kernel together |
//! | `file` | operations on files that wait for a disk |
//! | `watch` | descriptors that are not ours: a thread waits until any of some may be ready |
//!
//! A cluster has one driver, chosen at its start ([`choose`]): epoll alone, io_uring for all, or each where it is
//! better. All live as long as the process and serve any number of clusters; a descriptor may be used with all. A kernel
//! thread shares its kernel thread with no other, so it blocks in the kernel.

mod epoll;
pub(crate) mod file;
#[cfg(feature = "io-uring")]
mod sends;
pub(crate) mod source;
#[cfg(feature = "io-uring")]
mod uring;
pub(crate) mod watch;

use std::{io, os::fd::BorrowedFd};

use self::source::mine;
pub(crate) use self::source::{Direction, Limit, Source};
use crate::engine::sched::cluster::Kind;

/// An operation that may block the kernel thread, and that a ring can do instead.
#[cfg_attr(
    not(feature = "io-uring"),
    expect(dead_code, reason = "there is no ring")
)]
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
        #[cfg(feature = "io-uring")]
        Kind::Uring if uring::Keeper::get().is_some() => Kind::Uring,
        Kind::Uring => Kind::Mixed,
        kind => kind,
    }
}

/// Does `operation` without blocking the kernel thread. `None`: the driver cannot, and the caller is to make the system call.
pub(crate) fn operate(operation: Operation<'_>) -> Option<io::Result<usize>> {
    match (mine(), operation) {
        #[cfg(feature = "io-uring")]
        (Some(Kind::Mixed | Kind::Uring), operation) => uring::operate(operation),
        _ => None,
    }
}
