//! The stand-in for `uring` without the feature `io-uring`: there is never a ring.

use std::io;
use std::os::fd::BorrowedFd;

use super::epoll::Epoll;
use super::{Direction, Driver, Limit, Source};

pub(crate) fn available() -> bool {
    false
}

pub(crate) fn is_refused(_error: &io::Error) -> bool {
    true
}

/// A driver that no cluster has.
pub(crate) struct Uring;

impl Driver for Uring {
    fn wait(&self, source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
        Epoll.wait(source, direction, limit)
    }

    fn end_waits(&self, _source: &Source) {}
}

/// # Safety
/// None: it does nothing.
pub(crate) unsafe fn connect(
    _: BorrowedFd<'_>,
    _: *const libc::sockaddr,
    _: libc::socklen_t,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn wait_for_child(_: libc::idtype_t, _: libc::id_t, _: libc::c_int) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) mod file {
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(crate) fn read_at(_: BorrowedFd<'_>, _: &mut [u8], _: i64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn write_at(_: BorrowedFd<'_>, _: &[u8], _: i64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn sync(_: BorrowedFd<'_>, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
