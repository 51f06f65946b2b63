//! `recv`, `recvfrom`, `recvmsg`: tried with `MSG_DONTWAIT`.
//!
//! With `MSG_WAITALL` a call on a stream goes on until its buffers are full, or until the end, an error, or the
//! time-out; then it returns what has come. With `MSG_PEEK` beside it, or room for control messages, it
//! is libc's.

use core::ffi::{c_int, c_void};

use super::descriptor::{Buffers, can_be_written, is_stream, run, run_all, value_at};
use super::{fortified, hooked, in_kernel};
use crate::engine::facade::may_block;
use crate::engine::hooks::watch::Purpose;

const NOW: c_int = libc::MSG_DONTWAIT;
/// Calls with one of these flags do not wait, as a rule.
const NEVER_WAITS: c_int = NOW | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Whether a call goes on until its buffers are full: on a stream. A datagram ends it.
fn is_for_all(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_WAITALL != 0 && is_stream(fd)
}

/// `recvmsg`; `real` makes libc's call.
///
/// # Safety
/// The message is valid.
pub(super) unsafe fn message(
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
    real: impl Fn(c_int) -> isize,
) -> isize {
    if !is_for_all(fd, flags) {
        // The kernel changes lengths in the message only if something came.
        // SAFETY: the caller's promise.
        let attempt = |fd| unsafe { recvmsg::real(fd, message, flags | NOW) };
        return run(fd, Purpose::Read, attempt, real);
    }
    // SAFETY: the caller's message.
    let Some(asked) = (unsafe { value_at(message) }) else {
        return real(fd);
    };
    let is_whole = flags & libc::MSG_PEEK != 0 || !asked.msg_control.is_null();
    if is_whole || !can_be_written(message, 1) {
        return in_kernel(|| real(fd));
    }
    let Some(buffers) = Buffers::new(asked.msg_iov, asked.msg_iovlen) else {
        return real(fd);
    };
    let part = |fd, done, flags| {
        // SAFETY: the caller's promise; the rest of its buffers.
        unsafe {
            let mut rest = buffers.rest(done);
            let mut part = asked;
            (part.msg_iov, part.msg_iovlen) = (rest.as_mut_ptr(), rest.len());
            let result = recvmsg::real(fd, &mut part, flags);
            if result >= 0 {
                (*message).msg_namelen = part.msg_namelen;
                (*message).msg_flags = part.msg_flags;
            }
            result
        }
    };
    let attempt = |fd, done| part(fd, done, flags | NOW);
    let block = |fd, done| part(fd, done, flags);
    run_all(fd, Purpose::Read, buffers.length, attempt, block)
}

hooked! {
    fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize {
        let null = core::ptr::null_mut();
        // SAFETY: the caller's buffer.
        unsafe { from(fd, buffer, length, flags, null, null.cast()) }
    }

    fn recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t,
    ) -> isize {
        // SAFETY: the caller's arguments.
        unsafe { from(fd, buffer, length, flags, address, address_length) }
    }

    fn recvmsg(fd: c_int, to: *mut libc::msghdr, flags: c_int) -> isize {
        // SAFETY: the caller's arguments.
        unsafe {
            let real = |fd| recvmsg::real(fd, to, flags);
            if flags & NEVER_WAITS != 0 {
                return may_block(|| real(fd));
            }
            message(fd, to, flags, real)
        }
    }
}

/// # Safety
/// As `recvfrom(2)`.
unsafe fn from(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    // SAFETY: the caller's promise, for the buffer behind `done` bytes too.
    let part = |fd, done: usize, flags| unsafe {
        let at = buffer.wrapping_byte_add(done);
        recvfrom::real(fd, at, length - done, flags, address, address_length)
    };
    let block = |fd, done| part(fd, done, flags);
    if flags & NEVER_WAITS != 0 {
        return may_block(|| block(fd, 0));
    }
    if !is_for_all(fd, flags) {
        let attempt = |fd| part(fd, 0, flags | NOW);
        return run(fd, Purpose::Read, attempt, |fd| block(fd, 0));
    }
    if flags & libc::MSG_PEEK != 0 {
        return in_kernel(|| block(fd, 0));
    }
    let attempt = |fd, done| part(fd, done, flags | NOW);
    run_all(fd, Purpose::Read, length, attempt, block)
}

fortified! {
    fn __recv_chk(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int,
    ) -> isize {
        length <= room => recv(fd, buffer, length, flags)
    }

    fn __recvfrom_chk(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        room: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t,
    ) -> isize {
        length <= room => recvfrom(fd, buffer, length, flags, address, address_length)
    }
}
