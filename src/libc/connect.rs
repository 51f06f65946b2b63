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

use libc::{sa_family_t, sockaddr, socklen_t};

use super::announced::by_ring;
use super::descriptor::{
    is_nonblocking, is_ready, is_stream, not_ready, option, own_time_out, run, value_at,
};
use super::{hooked, uninterrupted};
use crate::engine::facade::may_block;
use crate::engine::hooks::Operation;
use crate::engine::hooks::watch::Purpose;

/// Makes libc's call, `real`, if few threads are in one.
fn directly(real: impl FnOnce() -> c_int) -> Option<c_int> {
    /// How many threads may be blocked in libc's `connect` at a time, where there is a ring.
    const FEW: usize = 4;
    /// How many are. Relaxed: the count guards nothing.
    static CONNECTING: AtomicUsize = AtomicUsize::new(0);
    let is_one_of_few = CONNECTING.fetch_add(1, Relaxed) < FEW;
    let answer = is_one_of_few.then(|| may_block(real));
    CONNECTING.fetch_sub(1, Relaxed);
    answer
}

/// `accept` or `accept4`; `real` makes libc's call.
fn accepted(fd: c_int, real: impl Fn(c_int) -> c_int) -> c_int {
    let attempt = |fd| match is_ready(fd, Purpose::Read) {
        true => may_block(|| real(fd)) as isize,
        // A socket that does not listen is an error at once.
        false if option::<c_int>(fd, libc::SO_ACCEPTCONN) != Some(1) => real(fd) as isize,
        false => not_ready(),
    };
    run(fd, Purpose::Read, attempt, |fd| real(fd) as isize) as c_int
}

hooked! {
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int where real(fd) {
        accepted(fd, real)
    }

    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int
    where real(fd) {
        match flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            0 => accepted(fd, real),
            _ => real(fd), // which refuses them
        }
    }

    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int where real() {
        let real = || uninterrupted(real);
        if fd < 0 || is_nonblocking(fd) {
            return real();
        }
        let family = match length as usize >= size_of::<sa_family_t>() {
            true => value_at(address.cast::<sa_family_t>()).map(c_int::from),
            false => None,
        };
        let is_internet = matches!(family, Some(libc::AF_INET | libc::AF_INET6));
        if !is_stream(fd) || !is_internet || own_time_out(fd, Purpose::Write).is_some() {
            return may_block(real);
        }
        // SAFETY: the descriptor is open, or the operation fails.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let operation = Operation::Connect(socket, address, length);
        directly(real).unwrap_or_else(|| by_ring(operation, || may_block(real)))
    }
}
