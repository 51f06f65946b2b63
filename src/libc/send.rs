//! `send`, `sendto`, `sendmsg`: tried with `MSG_DONTWAIT`, until all is sent.
//!
//! A part of a stream may be sent before the connection breaks. Then the call returns the length of that part, and
//! there is no SIGPIPE: the next call has the error. If nothing is sent yet, the kernel sends the signal.

use core::ffi::{c_int, c_void};

use super::descriptor::{Buffers, is_there, run_all};
use super::{hooked, in_kernel};
use crate::engine::hooks::watch::Purpose;

const NOW: c_int = libc::MSG_DONTWAIT;
/// The kernel connects the socket in such a call, or counts the calls: they are made as a whole.
const WHOLE: c_int = libc::MSG_FASTOPEN | libc::MSG_ZEROCOPY;

/// The flags for a part behind `done` bytes.
fn part_flags(flags: c_int, done: usize) -> c_int {
    match done {
        0 => flags,
        _ => flags | libc::MSG_NOSIGNAL,
    }
}

/// `sendmsg`; `real` makes libc's call.
///
/// # Safety
/// The message is valid, and has these buffers.
pub(super) unsafe fn message(
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
    buffers: Buffers,
    real: impl Fn(c_int) -> isize,
) -> isize {
    let part = |fd, done, flags| {
        // SAFETY: the caller's promise; the rest of its buffers. Control messages go with the first part.
        unsafe {
            if done == 0 {
                return sendmsg::real(fd, message, flags);
            }
            let mut rest = buffers.rest(done);
            let mut part = *message;
            (part.msg_iov, part.msg_iovlen) = (rest.as_mut_ptr(), rest.len());
            (part.msg_control, part.msg_controllen) = (core::ptr::null_mut(), 0);
            sendmsg::real(fd, &part, part_flags(flags, done))
        }
    };
    let attempt = |fd, done| part(fd, done, flags | NOW);
    let block = |fd, done| match done {
        0 => real(fd),
        _ => part(fd, done, flags),
    };
    run_all(fd, Purpose::Write, buffers.length, attempt, block)
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
            let real = |fd| sendmsg::real(fd, from, flags);
            if flags & NOW != 0 || !is_there(from, 1) {
                return real(fd);
            }
            if flags & WHOLE != 0 {
                return in_kernel(|| real(fd));
            }
            match Buffers::new((*from).msg_iov, (*from).msg_iovlen) {
                None => real(fd),
                Some(buffers) => message(fd, from, flags, buffers, real),
            }
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
        let (at, flags) = (buffer.wrapping_byte_add(done), part_flags(flags, done));
        sendto::real(fd, at, length - done, flags, address, address_length)
    };
    let block = |fd, done| part(fd, done, flags);
    if flags & NOW != 0 {
        return block(fd, 0);
    }
    if flags & WHOLE != 0 {
        return in_kernel(|| block(fd, 0));
    }
    let attempt = |fd, done| part(fd, done, flags | NOW);
    run_all(fd, Purpose::Write, length, attempt, block)
}
