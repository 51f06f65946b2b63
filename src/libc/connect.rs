//! `connect`, `accept`, `accept4`.
//!
//! `accept` has no form that does not block: `poll` says whether a connection is there.
//!
//! Nor has `connect`, on a socket in blocking mode; but most often it ends at once. So a few threads at a
//! time make libc's call. While those are blocked, the ring connects the others, where there is one; it
//! costs two switches of kernel threads. A Unix socket's connect waits only while the listener's queue is
//! full; it is libc's, as is one with a time-out of its own.

use core::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::descriptor::{is_nonblocking, is_ready, is_stream, is_there, not_ready, option, run};
use super::{count_parked, hooked, uninterrupted};
use crate::engine::facade::may_block;
use crate::engine::hooks::watch::Purpose;
use crate::engine::hooks::{Operation, operate};

/// How many threads may be blocked in libc's `connect` at a time, where there is a ring.
const FEW: usize = 4;
/// How many are. Relaxed: it guards nothing.
static CONNECTING: AtomicUsize = AtomicUsize::new(0);

/// Makes libc's call, `real`, if few threads are in one.
fn directly(real: impl FnOnce() -> c_int) -> Option<c_int> {
    let is_one_of_few = CONNECTING.fetch_add(1, Relaxed) < FEW;
    let answer = is_one_of_few.then(|| may_block(real));
    CONNECTING.fetch_sub(1, Relaxed);
    answer
}

/// `accept` or `accept4`; `real` makes libc's call.
fn accepted(fd: c_int, real: impl Fn(c_int) -> c_int) -> c_int {
    let attempt = |fd| match is_ready(fd, libc::POLLIN) {
        true => may_block(|| real(fd)) as isize,
        // A socket that does not listen is an error at once.
        false if option::<c_int>(fd, libc::SO_ACCEPTCONN) != Some(1) => real(fd) as isize,
        false => not_ready(),
    };
    run(fd, Purpose::Read, attempt, |fd| real(fd) as isize) as c_int
}

hooked! {
    fn accept(
        fd: c_int,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        accepted(fd, |fd| unsafe { accept::real(fd, address, length) })
    }

    fn accept4(
        fd: c_int,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        let real = |fd| unsafe { accept4::real(fd, address, length, flags) };
        match flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            0 => accepted(fd, real),
            _ => real(fd), // which refuses them
        }
    }

    fn connect(
        fd: c_int,
        address: *const libc::sockaddr,
        length: libc::socklen_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let real = || uninterrupted(|| connect::real(fd, address, length));
            if fd < 0 || is_nonblocking(fd) {
                return real();
            }
            let has_family = length as usize >= size_of::<libc::sa_family_t>()
                && is_there(address.cast::<libc::sa_family_t>(), 1);
            let is_internet = has_family
                && matches!(c_int::from((*address).sa_family), libc::AF_INET | libc::AF_INET6);
            let has_time_out = option::<[u64; 2]>(fd, libc::SO_SNDTIMEO).is_some_and(|t| t != [0; 2]);
            if !is_stream(fd) || !is_internet || has_time_out {
                return may_block(real);
            }
            if let Some(answer) = directly(real) {
                return answer;
            }
            count_parked();
            let socket = BorrowedFd::borrow_raw(fd);
            match operate(Operation::Connect(socket, address, length)) {
                None => may_block(real),
                Some(Ok(_)) => 0,
                Some(Err(error)) => super::fail(error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
    }
}
