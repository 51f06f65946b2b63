//! `sendfile`, `splice`: made when both ends are ready.
//!
//! `splice` is asked not to wait for pipes. `sendfile` is given, for a socket, no more at a time than
//! the socket has room for; otherwise a slow peer would hold a kernel thread.

use core::ffi::{c_int, c_uint};

use super::descriptor::{
    Nature, is_nonblocking, is_ready, not_ready, option, queued, ready_then, run, run_all,
};
use super::{errno, hooked, set_errno};
use crate::engine::facade::may_block;
use crate::engine::hooks::watch::Purpose;

/// The least that is sent at once: a socket that is ready for writing has room for it.
const LITTLE: usize = 16 << 10;

/// How many bytes a socket has room for, at least.
fn room_of(socket: c_int) -> usize {
    // The size is twice what a program may send: the kernel's own records are in it.
    let size = option::<c_int>(socket, libc::SO_SNDBUF).unwrap_or(0) / 2;
    let room = size.saturating_sub(queued(socket, libc::TIOCOUTQ)).max(0) as usize;
    room.max(LITTLE)
}

/// Whether `fd` is open for this.
fn can(fd: c_int, way: Purpose) -> bool {
    let refused = match way {
        Purpose::Read => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    // SAFETY: the call asks for flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_ACCMODE != refused
}

/// `sendfile`; `real` makes libc's call, for so many bytes.
fn send_file(to: c_int, from: c_int, count: usize, real: impl Fn(c_int, usize) -> isize) -> isize {
    let is_for_file = Nature::of(to).is_none_or(|nature| nature == Nature::File);
    if count == 0 || is_for_file || !can(from, Purpose::Read) || is_nonblocking(to) {
        return may_block(|| real(to, count));
    }
    let attempt = |to: c_int, done: usize| {
        ready_then(to, Purpose::Write, || {
            real(to, (count - done).min(room_of(to)))
        })
    };
    let block = |to, done| real(to, count - done);
    run_all(to, Purpose::Write, count, attempt, block)
}

hooked! {
    fn sendfile(to: c_int, from: c_int, offset: *mut libc::off_t, count: usize) -> isize {
        // SAFETY: the caller's arguments.
        send_file(to, from, count, |to, count| unsafe { sendfile::real(to, from, offset, count) })
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut libc::off64_t, count: usize) -> isize {
        // SAFETY: the caller's arguments.
        send_file(to, from, count, |to, count| unsafe { sendfile64::real(to, from, offset, count) })
    }

    fn splice(
        from: c_int,
        from_offset: *mut libc::off64_t,
        to: c_int,
        to_offset: *mut libc::off64_t,
        length: usize,
        flags: c_uint,
    ) -> isize {
        // SAFETY: the caller's arguments.
        let real = |flags| unsafe { splice::real(from, from_offset, to, to_offset, length, flags) };
        if flags & libc::SPLICE_F_NONBLOCK != 0 {
            return real(flags);
        }
        // Mistakes are not waited for. One of the two is a pipe; pipes have no offset.
        let is_pipe = |fd| Nature::of(fd) == Some(Nature::Pipe);
        let has_pipe = is_pipe(from) || is_pipe(to);
        let has_offset = |fd, offset: *mut libc::off64_t| !offset.is_null() && is_pipe(fd);
        let is_wrong = has_offset(from, from_offset) || has_offset(to, to_offset);
        if length == 0 || !has_pipe || is_wrong || !can(from, Purpose::Read) || !can(to, Purpose::Write) {
            return may_block(|| real(flags));
        }
        let is_file = |fd| Nature::of(fd).is_none_or(|nature| nature == Nature::File);
        let waits = |fd, events| !is_file(fd) && !is_ready(fd, events);
        let before = errno();
        loop {
            // Waits for one end after the other.
            let (fd, purpose, events) = match (waits(from, libc::POLLIN), waits(to, libc::POLLOUT)) {
                (true, _) => (from, Purpose::Read, libc::POLLIN),
                (_, true) => (to, Purpose::Write, libc::POLLOUT),
                _ => {
                    let result = may_block(|| real(flags | libc::SPLICE_F_NONBLOCK));
                    if result >= 0 || errno() != libc::EAGAIN {
                        return result;
                    }
                    if is_nonblocking(from) || is_nonblocking(to) {
                        return result;
                    }
                    // Both are ready, and there is no room for a part: only the kernel knows.
                    return crate::engine::facade::blocking(|| real(flags));
                }
            };
            let attempt = |fd| if is_ready(fd, events) { 0 } else { not_ready() };
            match run(fd, purpose, attempt, |_| real(flags)) {
                0 => set_errno(before),
                result => return result,
            }
        }
    }
}
