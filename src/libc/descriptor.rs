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

use core::ffi::c_int;
use core::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::{errno, in_kernel, set_errno, uninterrupted};
use crate::engine::facade::may_block;
use crate::engine::hooks::watch::{Call, Purpose};
use crate::sys::{clock, word};

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
    const ALL: [Nature; 4] = [Nature::Socket, Nature::Pipe, Nature::Device, Nature::File];

    fn place(fd: c_int) -> Option<&'static AtomicU8> {
        NATURES.get(usize::try_from(fd).ok()?)
    }

    /// The nature of `fd`. `None`: it is not open.
    #[inline]
    pub(super) fn of(fd: c_int) -> Option<Nature> {
        match Nature::place(fd).map_or(0, |known| known.load(Relaxed)) {
            0 => Nature::ask(fd),
            known => Some(Nature::ALL[usize::from(known) - 1]),
        }
    }

    /// Asks the kernel.
    #[cold]
    pub(super) fn ask(fd: c_int) -> Option<Nature> {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a valid place, read if the call has filled it in.
        let kind = unsafe {
            if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
                return None;
            }
            stat.assume_init().st_mode & libc::S_IFMT
        };
        let nature = match kind {
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

    pub(super) fn forget_all(first: u32, last: u32) {
        (first..=last.min(KNOWN as u32 - 1)).for_each(|fd| Nature::forget(fd as c_int));
    }
}

/// Whether `fd` is in non-blocking mode.
pub(super) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: the call asks for flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_NONBLOCK != 0
}

/// What `poll` says at this moment of `fd`: its answer, and which of `events` are there, or errors.
fn polled(fd: c_int, events: i16) -> (c_int, i16) {
    let mut asked = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one valid record, and no waiting.
    (unsafe { super::poll::now(&mut asked, 1) }, asked.revents)
}

/// Whether `poll` says at this moment that `fd` is ready for `events`, or that it has an error.
pub(super) fn is_ready(fd: c_int, events: i16) -> bool {
    polled(fd, events).0 != 0
}

/// The length of the time-out that a socket has for a direction, in nanoseconds, if it has one.
fn own_time_out(fd: c_int, purpose: Purpose) -> Option<u64> {
    let name = match purpose {
        Purpose::Read => libc::SO_RCVTIMEO,
        _ => libc::SO_SNDTIMEO,
    };
    let [seconds, micros] = option::<[u64; 2]>(fd, name)?;
    let nanos = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(micros * 1_000);
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
    set_errno(libc::EAGAIN);
    -1
}

/// Makes `call`, if `fd` is ready for `purpose` at this moment.
pub(super) fn ready_then(fd: c_int, purpose: Purpose, call: impl FnOnce() -> isize) -> isize {
    match is_ready(fd, events_of(purpose)) {
        true => may_block(call),
        false => not_ready(),
    }
}

/// Whether `fd` is a stream socket.
pub(super) fn is_stream(fd: c_int) -> bool {
    option::<c_int>(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// Whether a try has failed because it would block, or because it has begun to connect the socket.
fn would_block() -> bool {
    matches!(errno(), libc::EAGAIN | libc::EINPROGRESS)
}

/// Whether a TCP connection has broken, and there is nothing more to read. The next call has the error: a call
/// that has done a part does not take it.
fn is_over(fd: c_int) -> bool {
    let protocol = || option::<c_int>(fd, libc::SO_PROTOCOL);
    polled(fd, 0).1 & libc::POLLHUP != 0
        && matches!(protocol(), Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
        && queued(fd, libc::FIONREAD) == 0
}

/// After so many waits that were in vain the kernel is asked whether the descriptor is ready all the same:
/// then it waits for something that only it knows.
const IN_VAIN: u32 = 3;

/// A call that may be made of several parts, each of which waits until it can go on.
pub(super) struct Waiter<'a> {
    call: Pin<&'a Call>,
    purpose: Purpose,
    /// Since when it waits, and until when; known once it would block.
    deadline: Option<Option<u64>>,
}

impl<'a> Waiter<'a> {
    pub(super) fn new(call: Pin<&'a Call>, purpose: Purpose) -> Waiter<'a> {
        Waiter {
            call,
            purpose,
            deadline: None,
        }
    }

    /// Tries `attempt` until it no longer would block, and waits in between. If the thread cannot wait, makes
    /// the call `block`, which blocks the kernel thread.
    ///
    /// Both get the descriptor, and return a negative number with `errno` set if they fail.
    pub(super) fn run(
        &mut self,
        mut attempt: impl FnMut(c_int) -> isize,
        block: impl Fn(c_int) -> isize,
    ) -> isize {
        let block = |fd| in_kernel(|| block(fd));
        let mut attempt = |fd| uninterrupted(|| attempt(fd));
        let before = errno();
        let mut in_vain = 0;
        loop {
            let result = attempt(self.call.fd());
            if result >= 0 {
                if self.deadline.is_some() {
                    set_errno(before);
                }
                return result;
            }
            if !would_block() {
                return result;
            }
            let deadline = match self.deadline {
                Some(deadline) => deadline,
                None => {
                    let (fd, refusal) = (self.call.fd(), errno());
                    if is_nonblocking(fd) {
                        set_errno(refusal);
                        return -1;
                    }
                    let limit = own_time_out(fd, self.purpose);
                    *self
                        .deadline
                        .insert(limit.map(|limit| clock::now().saturating_add(limit)))
                }
            };
            if in_vain >= IN_VAIN && is_ready(self.call.fd(), events_of(self.purpose)) {
                return block(self.call.fd());
            }
            match self.call.wait(self.purpose, deadline) {
                Ok(true) => in_vain += 1,
                Ok(false) => {
                    // It may be ready although no event has come.
                    let result = attempt(self.call.fd());
                    if result < 0 && would_block() {
                        set_errno(libc::EAGAIN);
                    }
                    return result;
                }
                Err(_) => return block(self.call.fd()),
            }
        }
    }
}

fn events_of(purpose: Purpose) -> i16 {
    match purpose {
        Purpose::Read => libc::POLLIN,
        _ => libc::POLLOUT,
    }
}

/// A call of one part.
pub(super) fn run(
    fd: c_int,
    purpose: Purpose,
    attempt: impl FnMut(c_int) -> isize,
    block: impl Fn(c_int) -> isize,
) -> isize {
    let call = pin!(Call::new(fd));
    Waiter::new(call.as_ref(), purpose).run(attempt, block)
}

/// A call that transfers `wanted` bytes in several parts, and returns their sum. If a part fails after another,
/// the sum is the result, as the kernel does it.
///
/// `attempt` and `block` get the descriptor and the number of bytes that are done.
pub(super) fn run_all(
    fd: c_int,
    purpose: Purpose,
    wanted: usize,
    mut attempt: impl FnMut(c_int, usize) -> isize,
    block: impl Fn(c_int, usize) -> isize,
) -> isize {
    let wanted = wanted.min(MOST_BYTES);
    let call = pin!(Call::new(fd));
    let mut waiter = Waiter::new(call.as_ref(), purpose);
    let mut done = 0;
    loop {
        // A part that is made after the end is empty.
        let is_done = |fd| done != 0 && is_over(fd);
        let attempt = |fd| if is_done(fd) { 0 } else { attempt(fd, done) };
        let block = |fd| if is_done(fd) { 0 } else { block(fd, done) };
        match waiter.run(attempt, block) {
            ..0 if done != 0 => return done as isize,
            part @ ..=0 => return done as isize + part,
            part => done += part as usize,
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
    all_pages(at, count, |word| word::load(word).is_ok())
}

/// The value at `at`. `None`: the kernel could not read it.
///
/// # Safety
/// If it can be read, it is a valid value.
pub(super) unsafe fn value_at<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: it can be read. The kernel asks for no alignment.
    (!at.is_null() && is_there(at, 1)).then(|| unsafe { at.read_unaligned() })
}

/// Whether the kernel could write so many values there.
pub(super) fn can_be_written<T>(at: *mut T, count: usize) -> bool {
    all_pages(at, count, |word| word::update(word, |same| same).is_ok())
}

/// Asks for a word of each page of so many values, and for the last one.
fn all_pages<T>(at: *const T, count: usize, ask: impl Fn(usize) -> bool) -> bool {
    // The smallest that there is.
    const PAGE: usize = 4096;
    let Some(length) = size_of::<T>().checked_mul(count) else {
        return false;
    };
    let Some(end) = at.addr().checked_add(length) else {
        return false;
    };
    let pages = (at.addr()..end).step_by(PAGE);
    let last = (length != 0).then(|| end - 1);
    pages.chain(last).all(|at| ask(at & !3))
}

/// The buffers of a call, as `readv(2)` has them; the kernel could read the records.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    pub(super) at: *const libc::iovec,
    pub(super) count: usize,
    /// Of all of them together.
    pub(super) length: usize,
}

impl Buffers {
    /// `None`: the kernel does not take them.
    pub(super) fn new(at: *const libc::iovec, count: usize) -> Option<Buffers> {
        if count > MOST_BUFFERS || !is_there(at, count) {
            return None;
        }
        // SAFETY: the records can be read.
        let lengths = (0..count).map(|i| unsafe { (*at.add(i)).iov_len });
        let length = lengths.fold(0, usize::saturating_add);
        let is_accepted = isize::try_from(length).is_ok();
        is_accepted.then_some(Buffers { at, count, length })
    }

    /// What is left of them behind the first `done` bytes.
    ///
    /// # Safety
    /// The records are there still.
    pub(super) unsafe fn rest(self, mut done: usize) -> Vec<libc::iovec> {
        let mut rest = Vec::with_capacity(self.count);
        for i in 0..self.count {
            // SAFETY: the caller's promise.
            let buffer = unsafe { *self.at.add(i) };
            let skipped = done.min(buffer.iov_len);
            done -= skipped;
            if skipped < buffer.iov_len {
                rest.push(libc::iovec {
                    iov_base: buffer.iov_base.wrapping_byte_add(skipped),
                    iov_len: buffer.iov_len - skipped,
                });
            }
        }
        rest
    }
}
