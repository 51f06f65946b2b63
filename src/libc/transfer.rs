//! Calls on one descriptor: `read`, `write` and their kin; `recv`, `send` and their kin; `sendfile`, `splice`; `connect`, `accept`.
//!
//! | descriptor | `read`, `readv` | `write`, `writev` |
//! |---|---|---|
//! | a socket | as `recvmsg` | as `sendmsg` |
//! | a pipe | `preadv2` with `RWF_NOWAIT` | the same, until all is written |
//! | a device | `poll`, then the call | `poll`, then the call |
//! | a file | the call | the call |
//!
//! A call that is made after `poll` may block all the same, if another thread came between; then the call blocks its kernel
//! thread.
//!
//! `recv` and its kin are tried with `MSG_DONTWAIT`. With `MSG_WAITALL` a call on a stream goes on until its buffers are full,
//! or until the end, an error, or the time-out; then the call returns what has come. With `MSG_PEEK` beside it, or a place for
//! control messages, the call is libc's.
//!
//! `send` and its kin are tried with `MSG_DONTWAIT`, until all is sent. A part of a stream may be sent before the connection
//! breaks. Then the call returns the length of that part, and there is no SIGPIPE: the next call has the error. If nothing is
//! sent yet, the kernel sends the signal.
//!
//! `sendfile` and `splice` are made when both ends are ready. `splice` is asked not to wait for pipes. `sendfile` is given, for
//! a socket, no more at a time than the socket has space for; otherwise a slow peer would hold a kernel thread.
//!
//! `accept` has no form that does not block: `poll` says whether a connection is there. Nor has `connect`, on a socket in
//! blocking mode; but most often it ends at once. So a few threads at a time make libc's call. While those are blocked, the
//! ring connects the others, where there is one; it costs two switches of kernel threads. A Unix socket's connect waits only
//! while the listener's queue is full; it is libc's, as is one with a time-out of its own.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{iovec, msghdr, off_t, off64_t, sa_family_t, sockaddr, socklen_t};

use super::announced::by_ring;
use super::descriptor::{
    Buffers, Nature, can_be_written, is_ready, is_stream, not_ready, option, own_time_out, queued,
    ready_then, run, value_at,
};
use super::poll::{timeval, wait_for};
use super::{after, errno, fail, in_kernel, must_hold, set_errno, uninterrupted};
use crate::engine::facade::{blocking, may_block};
use crate::engine::{hooks::Operation, hooks::watch::Direction};
use crate::sys::calls::{flags_of, is_nonblocking};
use crate::sys::clock;
use crate::thread::Thread;
use crate::wait::{is_in_frame, refusal};

const NOW: c_int = libc::MSG_DONTWAIT;
/// Receiving calls with one of these flags do not wait, as a rule.
const NEVER_WAITS: c_int = NOW | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Reads or writes buffers; `real` makes libc's call.
///
/// # Safety
/// The buffers are valid, as for `readv(2)` and `writev(2)`.
unsafe fn transfer(
    fd: c_int,
    way: Direction,
    at: *const iovec,
    count: c_int,
    real: &dyn Fn(c_int) -> isize,
) -> isize {
    let nature = match Nature::of(fd) {
        None => return real(fd),
        Some(Nature::File) => return may_block(|| real(fd)),
        Some(nature) => nature,
    };
    let buffers = usize::try_from(count).ok();
    let buffers = buffers.and_then(|count| Buffers::new(at, count));
    let Some(buffers) = buffers.filter(|buffers| buffers.length != 0) else {
        return real(fd); // it does not wait
    };
    let is_read = way == Direction::Read;
    let call_at_once = match is_read {
        true => libc::preadv2,
        false => libc::pwritev2,
    };
    let at_once = |fd, done| {
        // SAFETY: a part of the caller's buffers.
        buffers.behind(done, |at, count| unsafe {
            call_at_once(fd, at, count as c_int, -1, libc::RWF_NOWAIT)
        })
    };
    let message = |fd, done, flags| {
        buffers.behind(done, |at, count| {
            // SAFETY: zeroes are a valid message; a part of the caller's buffers.
            unsafe {
                let mut message: msghdr = core::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (at.cast_mut(), count);
                match is_read {
                    true => recvmsg::real(fd, &mut message, flags),
                    false => sendmsg::real(fd, &message, part_flags(flags, done)),
                }
            }
        })
    };
    let block = |fd, done| match (done, nature) {
        (0, _) => real(fd),
        (_, Nature::Socket) => message(fd, done, 0),
        // SAFETY: a part of the caller's buffers. Only writes have several parts.
        _ => buffers.behind(done, |at, count| unsafe {
            writev::real(fd, at, count as c_int)
        }),
    };
    let attempt = |fd, done| match nature {
        Nature::Socket => message(fd, done, NOW),
        Nature::Pipe => match at_once(fd, done) {
            ..0 if is_unknown(errno()) => {
                Nature::Device.remember(fd);
                ready_then(fd, way, || block(fd, done))
            }
            result => result,
        },
        _ => match ready_then(fd, way, || real(fd)) {
            // A call that is a mistake fails at once, although the descriptor is not ready: `preadv2` tells a mistake.
            ..0 if is_read && errno() == libc::EAGAIN => {
                let result = at_once(fd, 0);
                if result < 0 && !matches!(errno(), libc::EBADF | libc::EINVAL) {
                    set_errno(libc::EAGAIN);
                }
                result
            }
            result => result,
        },
    };
    let is_one_part = is_read || nature == Nature::Device;
    let wanted = (!is_one_part).then_some(buffers.length);
    let result = run(fd, way, wanted, &attempt, &block);
    let is_other = result == -1 && nature == Nature::Socket && errno() == libc::ENOTSOCK;
    // The descriptor's number is another file's now.
    match is_other && Nature::ask(fd).is_some_and(|nature| nature != Nature::Socket) {
        // SAFETY: the buffers of this call, which are as valid for the same call on another file.
        true => unsafe { transfer(fd, way, at, count, real) },
        false => result,
    }
}

/// Whether the kernel does not know `RWF_NOWAIT` (before Linux 6.4, or for no pipe) or the call, or a filter refuses
/// it.
fn is_unknown(errno: c_int) -> bool {
    use libc::{EACCES, ENOSYS, EOPNOTSUPP, EPERM, ESPIPE};
    matches!(errno, EOPNOTSUPP | ENOSYS | ESPIPE | EPERM | EACCES)
}

hooked! {
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize where real(fd) {
        let one = iovec { iov_base: buffer, iov_len: length };
        // SAFETY: the caller's buffer.
        unsafe { transfer(fd, Direction::Read, &one, 1, &real) }
    }

    fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize where real(fd) {
        let one = iovec { iov_base: buffer.cast_mut(), iov_len: length };
        // SAFETY: the caller's buffer.
        unsafe { transfer(fd, Direction::Write, &one, 1, &real) }
    }

    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> isize where real(fd) {
        // SAFETY: the caller's buffers.
        unsafe { transfer(fd, Direction::Read, buffers, count, &real) }
    }

    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> isize where real(fd) {
        // SAFETY: the caller's buffers.
        unsafe { transfer(fd, Direction::Write, buffers, count, &real) }
    }
}

/// Whether a receiving call goes on until its buffers are full: on a stream. A datagram ends it.
fn is_for_all(fd: c_int, flags: c_int) -> bool {
    flags & NEVER_WAITS == 0 && flags & libc::MSG_WAITALL != 0 && is_stream(fd)
}

/// Makes libc's call on this descriptor, for what is left behind so many bytes and with these flags.
type Part<'a> = &'a dyn Fn(c_int, usize, c_int) -> isize;

/// Receives `length` bytes.
fn received(fd: c_int, flags: c_int, length: usize, part: Part<'_>) -> isize {
    if flags & NEVER_WAITS != 0 {
        return may_block(|| part(fd, 0, flags));
    }
    let is_for_all = is_for_all(fd, flags);
    if is_for_all && flags & libc::MSG_PEEK != 0 {
        return in_kernel(|| part(fd, 0, flags));
    }
    let wanted = is_for_all.then_some(length);
    let attempt = |fd, done| part(fd, done, flags | NOW);
    let block = |fd, done| part(fd, done, flags);
    run(fd, Direction::Read, wanted, &attempt, &block)
}

hooked! {
    fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize {
        // SAFETY: the caller's arguments; no place for an address.
        unsafe { recvfrom(fd, buffer, length, flags, null_mut(), null_mut()) }
    }

    fn recvfrom(
        fd: c_int, buffer: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t,
    ) -> isize where real(fd, buffer, length, flags) {
        received(fd, flags, length, &|fd, done, flags| {
            real(fd, buffer.wrapping_byte_add(done), length - done, flags)
        })
    }

    fn recvmsg(fd: c_int, to: *mut msghdr, flags: c_int) -> isize where real(fd, to, flags) {
        if !is_for_all(fd, flags) {
            // The message can be tried again as it is: the kernel changes its lengths only if something has come.
            return received(fd, flags, 0, &|fd, _, flags| real(fd, to, flags));
        }
        let asked = value_at(to).filter(|asked| asked.msg_control.is_null() && can_be_written(to, 1));
        let buffers = asked.and_then(|asked| Buffers::new(asked.msg_iov, asked.msg_iovlen));
        let (Some(asked), Some(buffers)) = (asked, buffers) else {
            return in_kernel(|| real(fd, to, flags));
        };
        received(fd, flags, buffers.length, &|fd, done, flags| {
            buffers.behind(done, |at, count| {
                let mut part = msghdr { msg_iov: at.cast_mut(), msg_iovlen: count, ..asked };
                let result = real(fd, &mut part, flags);
                if result >= 0 {
                    // SAFETY: the caller's message, which could be written.
                    unsafe { ((*to).msg_namelen, (*to).msg_flags) = (part.msg_namelen, part.msg_flags) };
                }
                result
            })
        })
    }
}

/// The flags to send a part that lies behind `done` bytes.
fn part_flags(flags: c_int, done: usize) -> c_int {
    match done {
        0 => flags,
        _ => flags | libc::MSG_NOSIGNAL,
    }
}

/// Sends `length` bytes.
fn sent(fd: c_int, flags: c_int, length: usize, part: Part<'_>) -> isize {
    // The kernel connects the socket in such a call, or counts the calls: they are made as a whole.
    const WHOLE: c_int = libc::MSG_FASTOPEN | libc::MSG_ZEROCOPY;
    if flags & NOW != 0 {
        return part(fd, 0, flags);
    }
    if flags & WHOLE != 0 {
        return in_kernel(|| part(fd, 0, flags));
    }
    let part = |fd, done, flags| part(fd, done, part_flags(flags, done));
    let attempt = |fd, done| part(fd, done, flags | NOW);
    let block = |fd, done| part(fd, done, flags);
    run(fd, Direction::Write, Some(length), &attempt, &block)
}

hooked! {
    fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize {
        // SAFETY: the caller's arguments; no address.
        unsafe { sendto(fd, buffer, length, flags, null(), 0) }
    }

    fn sendto(
        fd: c_int, buffer: *const c_void, length: usize, flags: c_int, address: *const sockaddr,
        address_length: socklen_t,
    ) -> isize where real(fd, buffer, length, flags) {
        sent(fd, flags, length, &|fd, done, flags| {
            real(fd, buffer.wrapping_byte_add(done), length - done, flags)
        })
    }

    fn sendmsg(fd: c_int, from: *const msghdr, flags: c_int) -> isize where real(fd, from, flags) {
        let asked = value_at(from);
        let buffers = asked.and_then(|asked| Buffers::new(asked.msg_iov, asked.msg_iovlen));
        let (Some(asked), Some(buffers)) = (asked, buffers) else {
            return real(fd, from, flags); // which refuses it
        };
        sent(fd, flags, buffers.length, &|fd, done, flags| {
            buffers.behind(done, |at, count| {
                let mut part = msghdr { msg_iov: at.cast_mut(), msg_iovlen: count, ..asked };
                if done != 0 {
                    // Control messages go with the first part.
                    (part.msg_control, part.msg_controllen) = (null_mut(), 0);
                }
                real(fd, &part, flags)
            })
        })
    }
}

// What fortified C calls in the place of the others: it has checked nothing yet.
hooked! {
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: usize, size: usize) -> isize {
        must_hold(length <= size);
        // SAFETY: the caller's arguments; the places are as long as was found now.
        unsafe { read(fd, buffer, length) }
    }

    fn __recv_chk(
        fd: c_int, buffer: *mut c_void, length: usize, size: usize, flags: c_int,
    ) -> isize {
        must_hold(length <= size);
        // SAFETY: the caller's arguments; the places are as long as was found now.
        unsafe { recv(fd, buffer, length, flags) }
    }

    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, length: usize, size: usize, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t,
    ) -> isize {
        must_hold(length <= size);
        // SAFETY: the caller's arguments; the places are as long as was found now.
        unsafe { recvfrom(fd, buffer, length, flags, address, address_length) }
    }
}

/// How many bytes a socket has space for, at least.
fn space_of(socket: c_int) -> usize {
    // A socket that is ready for writing has space for so many.
    const LITTLE: usize = 16 << 10;
    // The size is twice what a program may send: the kernel's own records are in it.
    let size = option::<c_int>(socket, libc::SO_SNDBUF).unwrap_or(0) / 2;
    let space = size.saturating_sub(queued(socket, libc::TIOCOUTQ)).max(0) as usize;
    space.max(LITTLE)
}

/// Whether `fd` is open for this.
fn can(fd: c_int, way: Direction) -> bool {
    let refused = match way {
        Direction::Read => libc::O_WRONLY,
        Direction::Write => libc::O_RDONLY,
    };
    flags_of(fd).is_some_and(|flags| flags & libc::O_ACCMODE != refused)
}

fn is_file(fd: c_int) -> bool {
    Nature::of(fd).is_none_or(|nature| nature == Nature::File)
}

hooked! {
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize
    where real(to, count) {
        if count == 0 || is_file(to) || !can(from, Direction::Read) || is_nonblocking(to) {
            return may_block(|| real(to, count));
        }
        let attempt = |to: c_int, done: usize| {
            ready_then(to, Direction::Write, || real(to, (count - done).min(space_of(to))))
        };
        let block = |to, done| real(to, count - done);
        run(to, Direction::Write, Some(count), &attempt, &block)
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: usize) -> isize {
        // SAFETY: the caller's arguments; both types of offsets have 64 bits.
        unsafe { sendfile(to, from, offset, count) }
    }

    fn splice(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, length: usize,
        flags: c_uint,
    ) -> isize where real(flags) {
        if flags & libc::SPLICE_F_NONBLOCK != 0 {
            return real(flags);
        }
        // A call that is a mistake must fail at once. One of the two ends must be a pipe, and a pipe has no offset.
        let is_pipe = |fd| Nature::of(fd) == Some(Nature::Pipe);
        let has_pipe = is_pipe(from) || is_pipe(to);
        let has_offset = |fd, offset: *mut off64_t| !offset.is_null() && is_pipe(fd);
        let is_wrong = has_offset(from, from_offset) || has_offset(to, to_offset);
        let is_open = can(from, Direction::Read) && can(to, Direction::Write);
        if length == 0 || !has_pipe || is_wrong || !is_open {
            return may_block(|| real(flags));
        }
        let waits = |fd, way| !is_file(fd) && !is_ready(fd, way);
        let before = errno();
        loop {
            // The thread waits for one end after the other.
            let (fd, way) = match (waits(from, Direction::Read), waits(to, Direction::Write)) {
                (true, _) => (from, Direction::Read),
                (_, true) => (to, Direction::Write),
                _ => {
                    let result = may_block(|| real(flags | libc::SPLICE_F_NONBLOCK));
                    let would_block = result < 0 && errno() == libc::EAGAIN;
                    if !would_block || is_nonblocking(from) || is_nonblocking(to) {
                        return result;
                    }
                    // Both ends are ready, and yet there is no space for a part: only the kernel can wait for it.
                    return blocking(|| real(flags));
                }
            };
            let attempt = |fd, _| ready_then(fd, way, || 0);
            match run(fd, way, None, &attempt, &|_, _| real(flags)) {
                0 => set_errno(before),
                result => return result,
            }
        }
    }
}

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
    let attempt = |fd, _| match is_ready(fd, Direction::Read) {
        true => may_block(|| real(fd)) as isize,
        // The call fails at once on a socket that does not listen.
        false if option::<c_int>(fd, libc::SO_ACCEPTCONN) != Some(1) => real(fd) as isize,
        false => not_ready(),
    };
    let block = |fd, _| real(fd) as isize;
    run(fd, Direction::Read, None, &attempt, &block) as c_int
}

/// `connect` in a frame, which is to end it: so libc's call, `real`, is made with a short time-out in place of the socket's own.
/// Then a connection is under way; or it is one to a full queue of the same machine, and the call is made again.
fn connected(fd: c_int, real: impl Fn() -> c_int) -> c_int {
    const SHORT: u64 = 1_000;
    const PAUSE: u64 = 1_000_000;
    let own = own_time_out(fd, Direction::Write);
    let deadline = own.map(after);
    loop {
        set_time_out_to_send(fd, SHORT);
        let answer = may_block(&real);
        let error = errno();
        set_time_out_to_send(fd, own.unwrap_or(0));
        match error {
            libc::EINPROGRESS | libc::EALREADY if answer == -1 => break,
            // The kernel does not restart a call with a time-out after a signal's handler.
            libc::EAGAIN | libc::EINTR
                if answer == -1 && deadline.is_none_or(|end| clock::now() < end) =>
            {
                match refusal(None) {
                    Some(errno) => return fail(errno),
                    None => Thread::rest_until(clock::now() + PAUSE),
                }
            }
            _ => {
                set_errno(error);
                return answer;
            }
        }
    }
    let attempt = |fd, _| ready_then(fd, Direction::Write, || 0);
    let block = |fd, _| wait_for(fd, Direction::Write);
    match run(fd, Direction::Write, None, &attempt, &block) {
        0 => match option(fd, libc::SO_ERROR).unwrap_or(0) {
            0 => 0,
            error => fail(error),
        },
        // Its own time is up.
        _ if errno() == libc::EAGAIN => fail(libc::EINPROGRESS),
        failed => failed as c_int,
    }
}

fn set_time_out_to_send(fd: c_int, nanos: u64) {
    let time = timeval(nanos);
    let (at, length) = ((&raw const time).cast(), size_of_val(&time) as socklen_t);
    // SAFETY: a valid option, and its length.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, at, length) };
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
        let has_family = length as usize >= size_of::<sa_family_t>();
        let family = has_family.then(|| value_at(address.cast::<sa_family_t>())).flatten();
        let is_internet = matches!(family.map(c_int::from), Some(libc::AF_INET | libc::AF_INET6));
        let blocking = || match is_in_frame() {
            true => connected(fd, real),
            false => may_block(real),
        };
        if !is_stream(fd) || !is_internet || own_time_out(fd, Direction::Write).is_some() {
            return blocking();
        }
        // SAFETY: the descriptor is open, or the operation fails.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let operation = Operation::Connect(socket, address, length);
        let at_once = if is_in_frame() { None } else { directly(real) };
        at_once.unwrap_or_else(|| by_ring(operation, blocking))
    }
}
