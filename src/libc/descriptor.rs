//! A call on a descriptor in blocking mode: it is tried in a form that does not block; if it would block, the
//! thread waits until the descriptor may be ready, and tries again.
//!
//! | question | asked | by |
//! |---|---|---|
//! | is the descriptor in non-blocking mode? | when a try would block | `fcntl` |
//! | has it a time-out of its own? | the same | `getsockopt` |
//! | which form does not block? | at the first call; the answer is a hint | [`Nature`] |
//!
//! Nothing is remembered that a program could change unseen, but for the nature. That is forgotten
//! when the descriptor is closed. If it is wrong all the same, the call fails in a way that shows
//! it, or blocks the kernel thread.
//!
//! And the calls by which a number gets another meaning: `close`, `dup2`, `dup3`, `close_range`; and `shutdown`, as not every
//! socket tells those that wait for it. Threads that wait for the descriptor go on with a duplicate, as threads that are
//! blocked in the kernel keep the file open; and what is remembered about the number is forgotten. These functions do so on any
//! thread.

use core::cell::Cell;
use core::ffi::{c_int, c_long, c_uint};
use core::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use libc::iovec;

use super::{errno, fail, in_kernel, set_errno, uninterrupted};
use crate::engine::facade::{is_forked_child, may_block};
use crate::engine::hooks::HAS_FORKED;
use crate::engine::hooks::watch::{self, Call, Direction};
use crate::sys::calls::{is_nonblocking, stat};
use crate::sys::libraries::Decision;
use crate::sys::{self, clock, signal, word};
use crate::thread::Thread;
use crate::wait::{is_in_frame, refusal};

/// How a descriptor is read and written without blocking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nature {
    /// By a socket's calls, with `MSG_DONTWAIT`.
    Socket,
    /// With `RWF_NOWAIT`.
    Pipe,
    /// When `poll` says that it is ready: a terminal, an event descriptor …
    Device,
    /// Never: a regular file. The call blocks the kernel thread, for a short time.
    File,
}

/// Descriptors with numbers below this have a remembered nature.
const KNOWN: usize = 1 << 16;

/// The natures, plus one; 0: not known. Relaxed: hints.
static NATURES: [AtomicU8; KNOWN] = [const { AtomicU8::new(0) }; KNOWN];

impl Nature {
    fn place(fd: c_int) -> Option<&'static AtomicU8> {
        NATURES.get(usize::try_from(fd).ok()?)
    }

    /// The nature of `fd`. `None`: it is not open.
    #[inline]
    pub(super) fn of(fd: c_int) -> Option<Nature> {
        const ALL: [Nature; 4] = [Nature::Socket, Nature::Pipe, Nature::Device, Nature::File];
        match Nature::place(fd).map_or(0, |known| known.load(Relaxed)) {
            0 => Nature::ask(fd),
            known => Some(ALL[usize::from(known) - 1]),
        }
    }

    /// Asks the kernel.
    #[cold]
    pub(super) fn ask(fd: c_int) -> Option<Nature> {
        let nature = match stat(fd)?.st_mode & libc::S_IFMT {
            libc::S_IFSOCK => Nature::Socket,
            libc::S_IFIFO => Nature::Pipe,
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Nature::File,
            _ => Nature::Device,
        };
        nature.remember(fd);
        Some(nature)
    }

    pub(super) fn remember(self, fd: c_int) {
        if let Some(place) = Nature::place(fd) {
            place.store(self as u8 + 1, Relaxed);
        }
    }

    /// Forgets the nature of a number that will be another file's.
    #[inline]
    pub(super) fn forget(fd: c_int) {
        if let Some(place) = Nature::place(fd).filter(|place| place.load(Relaxed) != 0) {
            place.store(0, Relaxed);
        }
    }
}

/// Whether `poll` says at this moment that `fd` is ready for this, or that it has an error.
pub(super) fn is_ready(fd: c_int, direction: Direction) -> bool {
    sys::is_ready(fd, direction as i16)
}

/// The length of the time-out that a socket has for a direction, in nanoseconds, if it has one.
pub(super) fn own_time_out(fd: c_int, direction: Direction) -> Option<u64> {
    let name = match direction {
        Direction::Read => libc::SO_RCVTIMEO,
        Direction::Write => libc::SO_SNDTIMEO,
    };
    let [seconds, micros] = option::<[u64; 2]>(fd, name)?;
    let nanos = super::sum(seconds, micros * 1_000);
    (nanos != 0).then_some(nanos)
}

/// An option of a socket's. `None`: it has none of the name.
pub(super) fn option<T: Default>(fd: c_int, name: c_int) -> Option<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: valid places, for as many bytes; any bits are a `T` of those used here.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &mut length) };
    (result == 0).then_some(value)
}

/// How many bytes are on their way in a socket, by this question of `ioctl`. 0: it has no answer.
pub(super) fn queued(fd: c_int, question: libc::c_ulong) -> c_int {
    let mut queued = 0;
    // SAFETY: a valid place, for one of the two questions that write a number there.
    unsafe { libc::ioctl(fd, question, &mut queued) };
    queued
}

/// Fails as a call that would block.
pub(super) fn not_ready() -> isize {
    fail(libc::EAGAIN) as isize
}

/// Fails as a call whose time is up, its own or that of a frame. If a frame has ended, a connection is shut down: nobody knows
/// how much of a message has passed, so the next one must not follow it.
fn timed_out(fd: c_int, own: Option<u64>) -> isize {
    let Some(errno) = refusal(own) else {
        return not_ready();
    };
    let may_go_on = errno == libc::EINTR;
    let listens = || option::<c_int>(fd, libc::SO_ACCEPTCONN) == Some(1);
    if !may_go_on && is_stream(fd) && !listens() {
        // SAFETY: a number. If the socket is not connected, this fails.
        unsafe { shutdown(fd, libc::SHUT_RDWR) };
    }
    fail(errno) as isize
}

/// Makes `call`, if `fd` is ready for `direction` at this moment.
pub(super) fn ready_then(fd: c_int, direction: Direction, call: impl FnOnce() -> isize) -> isize {
    match is_ready(fd, direction) {
        true => may_block(call),
        false => not_ready(),
    }
}

/// Whether `fd` is a stream socket.
pub(super) fn is_stream(fd: c_int) -> bool {
    option::<c_int>(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// What the next part of a call on a TCP connection comes to that is not tried: 0 if the connection is over, or there is nothing
/// to read yet. A try would take the error of a connection that breaks at that moment, and the next call is to have it.
fn untried(fd: c_int, direction: Direction) -> Option<isize> {
    // What has come before the end is there when the end is seen, so this is asked first.
    let events = sys::poll_now(fd, libc::POLLRDHUP).unwrap_or(0);
    let (has_broken, has_ended) = (events & libc::POLLHUP != 0, events & libc::POLLRDHUP != 0);
    let reads = direction == Direction::Read;
    let protocol = (has_broken || reads).then(|| option::<c_int>(fd, libc::SO_PROTOCOL))?;
    match protocol? {
        libc::IPPROTO_TCP | libc::IPPROTO_MPTCP if queued(fd, libc::FIONREAD) == 0 => {
            let is_over = has_broken || has_ended && reads;
            Some(if is_over { 0 } else { not_ready() })
        }
        _ => None,
    }
}

/// Tries `attempt` until it has an answer. In between `wait` waits for a reason to try again, and says whether one has come:
/// if not, the time is up, and there is one more try. `wait` hears how many waits were in vain so far. If it fails, the thread
/// cannot wait.
///
/// A call that has waited leaves `errno` as it was, unless its last try has set it.
pub(super) fn until<T, E>(
    mut attempt: impl FnMut() -> Option<T>,
    mut wait: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<T>, E> {
    let before = errno();
    let mut in_vain = 0;
    let mut answer = attempt();
    let mut goes_on = true;
    while answer.is_none() && goes_on {
        goes_on = wait(in_vain)?;
        in_vain += 1;
        set_errno(before);
        answer = attempt();
    }
    Ok(answer)
}

/// After so many waits that were in vain the kernel is asked whether the descriptor is ready all the same:
/// then it waits for something that only it knows. In a frame it is asked again and again, after pauses of so many nanoseconds.
const IN_VAIN: u32 = 3;
const PAUSE: u64 = 5_000_000;

/// A call that transfers `wanted` bytes in several parts, and returns their sum; `None`: it has one part. If a part fails after
/// another, the sum is the result, as the kernel does it.
///
/// For each part it makes `attempt` until that no longer would block. If the thread cannot wait, it makes the call `block`,
/// which blocks the kernel thread. Both get the descriptor and the number of bytes that are done, and return a negative number
/// with `errno` set if they fail.
// Not generic: some thirty functions of libc's have one instance of this code.
pub(super) fn run(
    fd: c_int,
    direction: Direction,
    wanted: Option<usize>,
    attempt: &dyn Fn(c_int, usize) -> isize,
    block: &dyn Fn(c_int, usize) -> isize,
) -> isize {
    // std's `Command` takes an error of this read, which tells whether the child has begun, for its own mistake.
    let is_of_spawn = HAS_FORKED.get()
        && direction == Direction::Read
        && (Nature::of(fd) == Some(Nature::Pipe)
            || option::<c_int>(fd, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET))
        && HAS_FORKED.take();
    // A `println!` in a destructor would be a second panic.
    let prints = direction == Direction::Write && matches!(fd, 1 | 2);
    let ends = !is_of_spawn && !prints;
    let kind = match ends {
        true => &watch::DESCRIPTOR,
        false => &watch::UNENDED,
    };
    let call = pin!(Call::new(fd, kind));
    let call = call.as_ref();
    let wanted = wanted.map_or(0, |wanted| wanted.min(MOST_BYTES));
    // The time until which the call waits. It is asked for when the call would block.
    let known = Cell::new(None);
    let mut done = 0;
    loop {
        let untried = |fd| (done != 0).then(|| untried(fd, direction))?;
        let attempt = || {
            let fd = call.fd();
            let result = uninterrupted(|| untried(fd).unwrap_or_else(|| attempt(fd, done)));
            if result >= 0 || !matches!(errno(), libc::EAGAIN | libc::EINPROGRESS) {
                return Some(result);
            }
            if known.get().is_none() {
                let refusal = errno();
                if is_nonblocking(fd) {
                    set_errno(refusal);
                    return Some(-1);
                }
                let limit = own_time_out(fd, direction);
                known.set(Some(limit.map(super::after)));
            }
            None
        };
        let part = until(attempt, |in_vain| {
            let own = known.get().flatten();
            match in_vain >= IN_VAIN && is_ready(call.fd(), direction) {
                true if ends && is_in_frame() => {
                    Thread::rest_until(super::after(PAUSE).min(own.unwrap_or(u64::MAX)));
                    Ok(refusal(own).is_none() && own.is_none_or(|own| clock::now() < own))
                }
                true => Err(()),
                false => call.wait(direction, own).map_err(drop),
            }
        });
        let part = match part {
            Ok(Some(part)) => part,
            Ok(None) if done == 0 => timed_out(call.fd(), known.get().flatten()),
            Ok(None) => return done as isize,
            Err(()) => {
                let fd = call.fd();
                let is_over = untried(fd) == Some(0);
                in_kernel(|| if is_over { 0 } else { block(fd, done) })
            }
        };
        match part {
            ..0 if done != 0 => return done as isize,
            ..=0 => return done as isize + part,
            _ => done += part as usize,
        }
        if done >= wanted {
            return done as isize;
        }
    }
}

/// The most bytes that one call transfers.
const MOST_BYTES: usize = 0x7fff_f000;
/// The most buffers that a call takes.
const MOST_BUFFERS: usize = libc::UIO_MAXIOV as usize;

/// Whether the kernel could read so many values there.
pub(super) fn is_there<T>(at: *const T, count: usize) -> bool {
    all_pages(at.addr(), size_of::<T>().checked_mul(count), |word| {
        word::load(word).is_some()
    })
}

/// A record of C's: any bits of its size are a value.
///
/// # Safety
/// That is so.
pub(super) unsafe trait Record: Copy {}
// SAFETY: numbers and addresses.
unsafe impl Record for libc::timespec {}
// SAFETY: as above.
unsafe impl Record for libc::timeval {}
// SAFETY: as above.
unsafe impl Record for libc::msghdr {}
// SAFETY: as above.
unsafe impl Record for libc::sa_family_t {}
// SAFETY: as above.
unsafe impl Record for signal::Mask {}

/// The record at `at`. `None`: the kernel could not read it.
pub(super) fn value_at<T: Record>(at: *const T) -> Option<T> {
    // SAFETY: the kernel could read it, and a program keeps a record that it has given to a function of libc's until that has
    // returned. Any bits are a value. The kernel asks for no alignment.
    (!at.is_null() && is_there(at, 1)).then(|| unsafe { at.read_unaligned() })
}

/// Whether the kernel could write so many values there.
pub(super) fn can_be_written<T>(at: *mut T, count: usize) -> bool {
    let update = |word| word::update(word, |same| same).is_some();
    all_pages(at.addr(), size_of::<T>().checked_mul(count), update)
}

/// Asks for a word of each page of so many bytes, and for the last one. No address space has `None`.
fn all_pages(at: usize, length: Option<usize>, ask: fn(usize) -> bool) -> bool {
    // No system has smaller pages.
    const PAGE: usize = 4096;
    let Some(end) = length.and_then(|length| at.checked_add(length)) else {
        return false;
    };
    let pages = (at..end).step_by(PAGE);
    let last = (end != at).then(|| end - 1);
    pages.chain(last).all(|at| ask(at & !3))
}

/// The buffers of a call, as `readv(2)` has them; the kernel could read the records.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    at: *const iovec,
    count: usize,
    /// Of all of them together.
    pub(super) length: usize,
}

impl Buffers {
    /// `None`: the kernel does not take them.
    pub(super) fn new(at: *const iovec, count: usize) -> Option<Buffers> {
        if count > MOST_BUFFERS || !is_there(at, count) {
            return None;
        }
        let length = 0;
        let mut buffers = Buffers { at, count, length };
        let sum = |sum: usize, one: iovec| sum.saturating_add(one.iov_len);
        buffers.length = buffers.iter().fold(0, sum);
        isize::try_from(buffers.length).is_ok().then_some(buffers)
    }

    fn iter(self) -> impl Iterator<Item = iovec> {
        // SAFETY: `new` has found that the records can be read, and the program keeps them until its call is over.
        (0..self.count).map(move |i| unsafe { self.at.add(i).read_unaligned() })
    }

    /// Calls `f` with the records of what lies behind the first `done` bytes.
    pub(super) fn behind<T>(self, mut done: usize, f: impl FnOnce(*const iovec, usize) -> T) -> T {
        if done == 0 {
            return f(self.at, self.count);
        }
        let mut rest = Vec::with_capacity(self.count);
        for mut buffer in self.iter() {
            let skipped = done.min(buffer.iov_len);
            done -= skipped;
            buffer.iov_base = buffer.iov_base.wrapping_byte_add(skipped);
            buffer.iov_len -= skipped;
            if buffer.iov_len != 0 {
                rest.push(buffer);
            }
        }
        f(rest.as_ptr(), rest.len())
    }
}

/// `fd` is about to be closed.
#[inline]
fn will_close(fd: c_int) {
    operation!();
    if !is_forked_child() {
        watch::closing(fd);
    }
    Nature::forget(fd);
}

/// It was closed, or shut down.
#[inline]
fn has_closed(fd: c_int) {
    #[cfg(sim)]
    let _rest = crate::engine::hooks::without_points();
    if !is_forked_child() {
        watch::look_again(fd);
    }
}

/// Makes `call`, which closes `fd`.
#[inline]
fn closing(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    will_close(fd);
    let answer = call();
    has_closed(fd);
    answer
}

/// What closes or shuts down, by `syscall(2)`; `None` for other calls.
pub(super) fn by_number(number: c_long, a: usize, b: usize, c: usize) -> Option<c_int> {
    // SAFETY: numbers, which the program means.
    unsafe {
        Some(match number {
            libc::SYS_close => close(a as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => dup2(a as c_int, b as c_int),
            libc::SYS_dup3 => dup3(a as c_int, b as c_int, c as c_int),
            libc::SYS_shutdown => shutdown(a as c_int, b as c_int),
            libc::SYS_close_range => close_range(a as c_uint, b as c_uint, c as c_int),
            _ => return None,
        })
    }
}

extern "C" fn closed(fd: usize, answer: c_int) -> c_int {
    has_closed(fd as c_int);
    answer
}

/// It may have been closed, or not.
extern "C" fn cancelled(fd: usize) {
    has_closed(fd as c_int);
}

around! {
    fn close(fd: c_int) -> c_int {
        before {
            will_close(fd);
            Decision::call(close::REAL.target(), fd as usize)
        }
        after closed,
        unwound cancelled,
    }
}

interposed! {
    fn dup2(from: c_int, to: c_int) -> c_int where real() {
        if from == to { real() } else { closing(to, real) }
    }

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int where real() {
        if from == to { real() } else { closing(to, real) }
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int where real() {
        if flags != 0 {
            return real();
        }
        let watches = !is_forked_child();
        if watches {
            watch::watched_from(first, last).for_each(watch::closing);
        }
        (first..=last.min(KNOWN as u32 - 1)).for_each(|fd| Nature::forget(fd as c_int));
        let answer = real();
        if watches {
            watch::watched_from(first, last).for_each(watch::look_again);
        }
        answer
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int where real() {
        let answer = real();
        has_closed(fd);
        answer
    }
}
