//! `recv`, `recvfrom`, `recvmsg`: tried with `MSG_DONTWAIT`.
//!
//! With `MSG_WAITALL` a call on a stream goes on until its buffers are full, or until the end, an error, or the
//! time-out; then it returns what has come. With `MSG_PEEK` beside it, or room for control messages, it
//! is libc's.

use core::ffi::{c_int, c_void};

use super::descriptor::{is_stream, length_of, rest_of, run, run_all};
use super::hooked;
use crate::engine::door::blocking;
use crate::engine::door::watch::Purpose;

const NOW: c_int = libc::MSG_DONTWAIT;

/// `recvmsg`; `real` makes libc's call.
///
/// # Safety
/// The message is valid.
pub(super) unsafe fn message(
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    if flags & libc::MSG_WAITALL == 0 || !is_stream(fd) {
        // The kernel changes lengths in the message only if something came.
        // SAFETY: the caller's promise.
        let attempt = |fd| unsafe { recvmsg::real(fd, message, flags | NOW) };
        return run(fd, Purpose::Read, attempt, real);
    }
    // SAFETY: the caller's promise.
    let asked = unsafe { *message };
    if flags & libc::MSG_PEEK != 0 || !asked.msg_control.is_null() {
        return blocking(real);
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { length_of(asked.msg_iov, asked.msg_iovlen) };
    let attempt = |fd, done| {
        // SAFETY: the caller's promise; the rest of its buffers.
        unsafe {
            let mut rest = rest_of(asked.msg_iov, asked.msg_iovlen, done);
            let mut part = asked;
            (part.msg_iov, part.msg_iovlen) = (rest.as_mut_ptr(), rest.len());
            let result = recvmsg::real(fd, &mut part, flags | NOW);
            if result >= 0 {
                (*message).msg_namelen = part.msg_namelen;
                (*message).msg_flags = part.msg_flags;
            }
            result
        }
    };
    run_all(fd, Purpose::Read, wanted, attempt, real)
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
            let real = || recvmsg::real(fd, to, flags);
            if flags & NOW != 0 {
                return real();
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
    let real = || part(fd, 0, flags);
    if flags & NOW != 0 {
        return real();
    }
    if flags & libc::MSG_WAITALL == 0 || !is_stream(fd) {
        return run(fd, Purpose::Read, |fd| part(fd, 0, flags | NOW), real);
    }
    if flags & libc::MSG_PEEK != 0 {
        return blocking(real);
    }
    let attempt = |fd, done| part(fd, done, flags | NOW);
    run_all(fd, Purpose::Read, length, attempt, real)
}

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// What fortified C calls: it has checked nothing yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    room: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the buffer has as much room as was found now; or the program ends.
    unsafe {
        if length > room {
            __chk_fail();
        }
        super::receive::recv(fd, buffer, length, flags)
    }
}

/// The same.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    room: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    // SAFETY: as above.
    unsafe {
        if length > room {
            __chk_fail();
        }
        super::receive::recvfrom(fd, buffer, length, flags, address, address_length)
    }
}
