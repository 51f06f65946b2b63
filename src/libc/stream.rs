//! `read`, `readv`, `write`, `writev` on any descriptor.
//!
//! | nature | reads | writes |
//! |---|---|---|
//! | a socket | as `recvmsg` | as `sendmsg` |
//! | a pipe | `preadv2` with `RWF_NOWAIT` | the same, until all is written |
//! | a device | `poll`, then the call | `poll`, then the call |
//! | a file | the call | the call |
//!
//! A call that is made after `poll` may block all the same, if another thread came between; then it
//! blocks its kernel thread.

use core::ffi::{c_int, c_void};

use super::descriptor::{Buffers, Nature, ready_then, run, run_all};
use super::{errno, fortified, hooked, set_errno};
use crate::engine::facade::may_block;
use crate::engine::hooks::watch::Purpose;

/// The transfer of buffers, to read or to write them; `real` makes libc's call.
///
/// # Safety
/// The records and their buffers are valid, as for `readv(2)` and `writev(2)`.
unsafe fn transfer(
    fd: c_int,
    way: Purpose,
    buffers: *const libc::iovec,
    count: c_int,
    real: impl Fn(c_int) -> isize,
) -> isize {
    let Some(nature) = Nature::of(fd) else {
        return real(fd);
    };
    if nature == Nature::File {
        return may_block(|| real(fd));
    }
    let count = usize::try_from(count).ok();
    let buffers = count.and_then(|count| Buffers::new(buffers, count));
    let Some(buffers) = buffers.filter(|buffers| buffers.length != 0) else {
        return real(fd); // it does not wait
    };
    // SAFETY: the caller's promise.
    unsafe {
        match nature {
            Nature::Socket => socket(fd, way, buffers, real),
            Nature::Pipe => pipe(fd, way, buffers, real),
            _ => device(fd, way, buffers, real),
        }
    }
}

/// # Safety
/// As [`transfer`].
unsafe fn socket(
    fd: c_int,
    way: Purpose,
    buffers: Buffers,
    real: impl Fn(c_int) -> isize,
) -> isize {
    // SAFETY: a zeroed message is valid.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (buffers.at.cast_mut(), buffers.count);
    // SAFETY: the caller's promise.
    unsafe {
        let result = match way {
            Purpose::Read => super::receive::message(fd, &mut message, 0, &real),
            _ => super::send::message(fd, &message, 0, buffers, &real),
        };
        if result != -1 || errno() != libc::ENOTSOCK {
            return result;
        }
        // The number is another file's now.
        match Nature::ask(fd) {
            Some(Nature::Socket) | None => -1,
            Some(_) => transfer(fd, way, buffers.at, buffers.count as c_int, real),
        }
    }
}

/// # Safety
/// As [`transfer`].
unsafe fn pipe(fd: c_int, way: Purpose, buffers: Buffers, real: impl Fn(c_int) -> isize) -> isize {
    let block = |fd: c_int, done: usize| match done {
        0 => real(fd),
        // SAFETY: the caller's promise; what is left of the records is valid for this call.
        _ => unsafe {
            let rest = buffers.rest(done);
            writev::real(fd, rest.as_ptr(), rest.len() as c_int)
        },
    };
    let attempt = |fd: c_int, done: usize| {
        // SAFETY: as above.
        let result = unsafe {
            let rest = (done != 0).then(|| buffers.rest(done));
            let (at, count) = match &rest {
                None => (buffers.at, buffers.count),
                Some(rest) => (rest.as_ptr(), rest.len()),
            };
            match way {
                Purpose::Read => libc::preadv2(fd, at, count as c_int, -1, libc::RWF_NOWAIT),
                _ => libc::pwritev2(fd, at, count as c_int, -1, libc::RWF_NOWAIT),
            }
        };
        if result < 0 && is_unknown(errno()) {
            Nature::Device.remember(fd);
            return ready_then(fd, way, || block(fd, done));
        }
        result
    };
    match way {
        Purpose::Read => run(fd, way, |fd| attempt(fd, 0), |fd| block(fd, 0)),
        _ => run_all(fd, way, buffers.length, attempt, block),
    }
}

/// Whether the kernel does not know `RWF_NOWAIT` (before Linux 6.4, or for no pipe) or the call, or a filter refuses
/// it.
fn is_unknown(errno: c_int) -> bool {
    use libc::{EACCES, ENOSYS, EOPNOTSUPP, EPERM, ESPIPE};
    matches!(errno, EOPNOTSUPP | ENOSYS | ESPIPE | EPERM | EACCES)
}

/// # Safety
/// As [`transfer`].
unsafe fn device(
    fd: c_int,
    way: Purpose,
    buffers: Buffers,
    real: impl Fn(c_int) -> isize,
) -> isize {
    let attempt = |fd: c_int| {
        let result = ready_then(fd, way, || real(fd));
        if result >= 0 || errno() != libc::EAGAIN || !matches!(way, Purpose::Read) {
            return result;
        }
        // Such a descriptor may refuse the call although it is not ready.
        let (at, count) = (buffers.at, buffers.count as c_int);
        // SAFETY: the caller's promise.
        let result = unsafe { libc::preadv2(fd, at, count, -1, libc::RWF_NOWAIT) };
        if result < 0 && !matches!(errno(), libc::EBADF | libc::EINVAL) {
            set_errno(libc::EAGAIN);
        }
        result
    };
    run(fd, way, attempt, &real)
}

fn one(buffer: *mut c_void, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: buffer,
        iov_len: length,
    }
}

hooked! {
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize {
        let buffers = one(buffer, length);
        // SAFETY: the caller's buffer.
        unsafe { transfer(fd, Purpose::Read, &buffers, 1, |fd| read::real(fd, buffer, length)) }
    }

    fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize {
        let buffers = one(buffer.cast_mut(), length);
        // SAFETY: the caller's buffer.
        unsafe { transfer(fd, Purpose::Write, &buffers, 1, |fd| write::real(fd, buffer, length)) }
    }

    fn readv(fd: c_int, buffers: *const libc::iovec, count: c_int) -> isize {
        // SAFETY: the caller's buffers.
        unsafe { transfer(fd, Purpose::Read, buffers, count, |fd| readv::real(fd, buffers, count)) }
    }

    fn writev(fd: c_int, buffers: *const libc::iovec, count: c_int) -> isize {
        // SAFETY: the caller's buffers.
        unsafe { transfer(fd, Purpose::Write, buffers, count, |fd| writev::real(fd, buffers, count)) }
    }
}

fortified! {
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize {
        length <= room => read(fd, buffer, length)
    }
}
