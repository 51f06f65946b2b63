//! Drivers make threads ready at events outside the process. They return ready threads and decide
//! nothing.
//!
//! | file | idea |
//! |---|---|
//! | `source` | a descriptor whose calls block the calling thread only; transfers of bytes through it |
//! | `registration` | a descriptor is registered when a thread first waits for it, and may be closed; its known readiness |
//! | `epoll` | the kernel says which descriptors are ready |
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
mod registration;
#[cfg(feature = "io-uring")]
mod sends;
pub(crate) mod source;
#[cfg(feature = "io-uring")]
mod uring;
pub(crate) mod watch;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) use self::source::Source;
use crate::engine::sched::cluster::Kind;
use crate::engine::sched::current;
use crate::engine::sys::clock;

/// The event that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// There is something to read, or a connection to accept.
    Read,
    /// There is space to write, or a connect has ended.
    Write,
}

impl Direction {
    /// The event, as `poll(2)` names it.
    pub(crate) fn events(self) -> i16 {
        match self {
            Direction::Read => libc::POLLIN,
            Direction::Write => libc::POLLOUT,
        }
    }
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

impl Limit {
    /// Returns when the wait ends, in monotonic nanoseconds.
    fn deadline(self) -> Option<u64> {
        match self {
            Limit::Forever => None,
            Limit::Until(deadline) => Some(deadline),
            Limit::DontWait => Some(0),
        }
    }
}

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
        Kind::Uring if uring::available() => Kind::Uring,
        Kind::Uring => Kind::Mixed,
        kind => kind,
    }
}

/// The calling thread's driver. `None`: it is a kernel thread.
fn mine() -> Option<Kind> {
    current::green().map(|green| green.cluster().config.driver)
}

/// Does `operation` without blocking the kernel thread. `None`: the driver cannot, and the caller is to make the system call.
pub(crate) fn operate(operation: Operation<'_>) -> Option<io::Result<usize>> {
    match (mine(), operation) {
        #[cfg(feature = "io-uring")]
        (Some(Kind::Mixed | Kind::Uring), operation) => uring::operate(operation),
        _ => None,
    }
}

/// Blocks the thread until a call may find something, or until `limit`: then the error is `WouldBlock`. May return early.
fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    match mine() {
        None => wait_in_kernel(source, direction, limit),
        #[cfg(feature = "io-uring")]
        Some(Kind::Uring) => uring::wait(source, direction, limit),
        Some(_) => epoll::wait(source, direction, limit),
    }
}

/// Blocks the kernel thread in `poll(2)`.
fn wait_in_kernel(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: source.as_raw_fd(),
        events: direction.events(),
        revents: 0,
    };
    let millis = limit.deadline().map_or(-1, |deadline| {
        let left = deadline.saturating_sub(clock::now());
        left.div_ceil(1_000_000).min(i32::MAX as u64) as i32
    });
    if millis == 0 {
        return Err(would_block());
    }
    // SAFETY: the call gets one valid record. A failure means: try again.
    unsafe { libc::poll(&mut poll, 1, millis) };
    Ok(())
}

/// Ends the waits for `source`, which is closed: of threads with any driver.
fn end_waits(source: &Source) {
    if let Some(record) = source.record() {
        record.close();
    }
    #[cfg(feature = "io-uring")]
    uring::end_waits(source);
    // SAFETY: a system call. It wakes the kernel threads that poll the descriptor, those of
    // unconnected sockets too.
    unsafe { libc::shutdown(source.as_raw_fd(), libc::SHUT_RDWR) };
}

/// The error of a call whose time is up.
fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}
