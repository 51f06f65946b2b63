//! Locks on files, and syncing: `flock`, `fcntl(F_SETLKW)`, `fsync`, `fdatasync`.
//!
//! Nothing tells when a file's lock is free: such a wait is announced, and holds a kernel thread. A lock that is free is
//! taken at once. The ring syncs, where there is one.

use core::ffi::c_int;
use std::os::fd::BorrowedFd;

use super::{count_parked, errno, fail, hooked, set_errno};
use crate::engine::facade::blocking;
use crate::engine::hooks::{Operation, operate};

/// `fsync` or `fdatasync`; `real` makes libc's call.
fn synced(fd: c_int, data_only: bool, real: impl Fn() -> c_int) -> c_int {
    if fd < 0 {
        return blocking(real);
    }
    count_parked();
    // SAFETY: it is open, or the operation fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match operate(Operation::Sync { fd, data_only }) {
        None => blocking(real),
        Some(Ok(_)) => 0,
        Some(Err(error)) => fail(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Makes the call in its form that does not wait, and announced if it would; `real` makes libc's.
fn announced_if_it_waits(
    without_waiting: c_int,
    waiting: c_int,
    real: impl Fn(c_int) -> c_int,
) -> c_int {
    let before = errno();
    match real(without_waiting) {
        -1 if without_waiting != waiting && matches!(errno(), libc::EAGAIN | libc::EACCES) => {
            set_errno(before);
            blocking(|| real(waiting))
        }
        answer => answer,
    }
}

/// `fcntl`; `real` makes libc's call with this command.
fn controlled(command: c_int, real: impl Fn(c_int) -> c_int) -> c_int {
    let without_waiting = match command {
        libc::F_SETLKW => libc::F_SETLK,
        libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
        _ => command,
    };
    announced_if_it_waits(without_waiting, command, real)
}

hooked! {
    fn fsync(fd: c_int) -> c_int {
        // SAFETY: a number.
        synced(fd, false, || unsafe { fsync::real(fd) })
    }

    fn fdatasync(fd: c_int) -> c_int {
        // SAFETY: a number.
        synced(fd, true, || unsafe { fdatasync::real(fd) })
    }

    fn flock(fd: c_int, operation: c_int) -> c_int {
        // SAFETY: numbers.
        announced_if_it_waits(operation | libc::LOCK_NB, operation, |operation| unsafe {
            flock::real(fd, operation)
        })
    }

    // Its third argument, if there is one, comes as a variadic one does: in a register.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: the caller's arguments.
        controlled(command, |command| unsafe { fcntl::real(fd, command, argument) })
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: the caller's arguments.
        controlled(command, |command| unsafe { fcntl64::real(fd, command, argument) })
    }
}
