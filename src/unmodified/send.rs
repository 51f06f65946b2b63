//! `send`, `sendto`, `sendmsg`: tried with `MSG_DONTWAIT`, until all is sent.
//!
//! A part of a stream may be sent before the connection breaks. Then the call returns the length of that part, and
//! there is no SIGPIPE: the next call has the error. If nothing is sent yet, the kernel sends the signal.

use core::ffi::{c_int, c_void};

use super::descriptor::{length_of, rest_of, run_all};
use super::hooked;
use crate::engine::door::watch::Purpose;

const NOW: c_int = libc::MSG_DONTWAIT;

/// The flags for a part behind `done` bytes.
fn part_flags(flags: c_int, done: usize) -> c_int {
    match done {
        0 => flags | NOW,
        _ => flags | NOW | libc::MSG_NOSIGNAL,
    }
}

/// `sendmsg` of `wanted` bytes; `real` makes libc's call.
///
/// # Safety
/// The message is valid.
pub(super) unsafe fn message(
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
    wanted: usize,
    real: impl Fn() -> isize,
) -> isize {
    let attempt = |fd, done| {
        // SAFETY: the caller's promise; the rest of its buffers. Control messages go with the first part.
        unsafe {
            if done == 0 {
                return sendmsg::real(fd, message, flags | NOW);
            }
            let mut rest = rest_of((*message).msg_iov, (*message).msg_iovlen, done);
            let mut part = *message;
            (part.msg_iov, part.msg_iovlen) = (rest.as_mut_ptr(), rest.len());
            (part.msg_control, part.msg_controllen) = (core::ptr::null_mut(), 0);
            sendmsg::real(fd, &part, part_flags(flags, done))
        }
    };
    run_all(fd, Purpose::Write, wanted, attempt, real)
}

hooked! {
    fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize {
        // SAFETY: the caller's buffer.
        unsafe { to(fd, buffer, length, flags, core::ptr::null(), 0) }
    }

    fn sendto(
        fd: c_int,
        buffer: *const c_void,
        length: usize,
        flags: c_int,
        address: *const libc::sockaddr,
        address_length: libc::socklen_t,
    ) -> isize {
        // SAFETY: the caller's arguments.
        unsafe { to(fd, buffer, length, flags, address, address_length) }
    }

    fn sendmsg(fd: c_int, from: *const libc::msghdr, flags: c_int) -> isize {
        // SAFETY: the caller's arguments.
        unsafe {
            let real = || sendmsg::real(fd, from, flags);
            if flags & NOW != 0 || from.is_null() {
                return real();
            }
            let wanted = length_of((*from).msg_iov, (*from).msg_iovlen);
            message(fd, from, flags, wanted, real)
        }
    }
}

/// # Safety
/// As `sendto(2)`.
unsafe fn to(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    address_length: libc::socklen_t,
) -> isize {
    // SAFETY: the caller's promise, for the buffer behind `done` bytes too.
    let part = |fd, done: usize, flags| unsafe {
        let at = buffer.wrapping_byte_add(done);
        sendto::real(fd, at, length - done, flags, address, address_length)
    };
    let real = || part(fd, 0, flags);
    if flags & NOW != 0 {
        return real();
    }
    let attempt = |fd, done| part(fd, done, part_flags(flags, done));
    run_all(fd, Purpose::Write, length, attempt, real)
}
