//! Waiting for one of several descriptors: `poll`, `ppoll`, `select`, `pselect`; and `epoll_wait`, `epoll_pwait`, `epoll_pwait2`.
//! The kernel is asked without waiting first, and again whenever one of the descriptors may be ready.
//!
//! An epoll instance is one descriptor that can be waited for. Of the threads that wait for one instance an event wakes one, as
//! the kernel does it; if there are more events than that thread takes, the next one is woken when its call is over.
//!
//! A call with a signal mask that differs from the thread's is libc's: it waits for a signal, too. `select` leaves in its
//! time-out what is left of it, as Linux does.

use core::ffi::{c_int, c_ulong};
use core::pin::pin;
use core::ptr::{self, null, null_mut};
use std::io;

use libc::{epoll_event, fd_set, pollfd, sigset_t, timespec, timeval};

use super::announced::polled;
use super::descriptor::{can_be_written, until, value_at};
use super::pthread::signals::under;
use super::{after, fail, in_kernel, must_hold, nanos, sum, uninterrupted};
use crate::engine::facade::blocking;
use crate::engine::hooks::watch::{self, Call, Direction, Interest};
use crate::sys::{self, clock, signal};
use crate::wait::refusal;

/// Until when a call waits, with which signal mask or none, and how libc's call is made for the time that is left.
#[derive(Clone, Copy)]
pub(super) struct Limit<'a> {
    deadline: Option<u64>,
    mask: *const sigset_t,
    real: &'a dyn Fn(Option<u64>) -> c_int,
}

/// Runs `call`, which has a time-out of so many milliseconds. (Negative: for ever.)
fn for_millis(
    millis: c_int,
    mask: *const sigset_t,
    real: impl Fn(c_int) -> c_int,
    call: impl FnOnce(Limit<'_>) -> c_int,
) -> c_int {
    let limit = u64::try_from(millis).ok();
    let millis = |left: u64| left.div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX);
    call(Limit {
        deadline: limit.map(|limit| after(limit * 1_000_000)),
        mask,
        real: &|left| real(left.map_or(-1, millis)),
    })
}

/// Runs `call`, which has a time-out in a record.
pub(super) fn for_time(
    time: *const timespec,
    mask: *const sigset_t,
    real: impl Fn(*const timespec) -> c_int,
    call: impl FnOnce(Limit<'_>) -> c_int,
) -> c_int {
    let limit = value_at(time).and_then(nanos);
    if limit.is_none() && !time.is_null() {
        return real(time); // which refuses it
    }
    call(Limit {
        deadline: limit.map(after),
        mask,
        real: &|left| {
            let left = left.map(clock::timespec);
            real(left.as_ref().map_or(null(), ptr::from_ref))
        },
    })
}

impl Limit<'_> {
    fn left(self) -> Option<u64> {
        let left = |deadline: u64| deadline.saturating_sub(clock::now());
        self.deadline.map(left)
    }

    /// Makes libc's call.
    pub(super) fn block(self) -> c_int {
        // The first word of libc's set is the kernel's mask.
        match value_at(self.mask.cast::<signal::Mask>()) {
            Some(mask) => blocking(|| under(mask, || self.once())),
            None => in_kernel(|| self.once()),
        }
    }

    /// Makes libc's call once.
    pub(super) fn once(self) -> c_int {
        (self.real)(self.left())
    }

    /// Makes a call that waits. `look` asks without waiting, and its answer is not 0 if there is something to tell; `wait`
    /// waits in between, as in [`until`]. If it cannot, or the mask is not the thread's, libc's call is made. Whether frames end
    /// the call is known to `wait`, and `ends` says it, too.
    fn wait(
        self,
        ends: bool,
        look: impl Fn() -> c_int,
        wait: impl FnMut(u32) -> io::Result<bool>,
    ) -> c_int {
        let tells = |&answer: &c_int| answer != 0 || self.left() == Some(0);
        let look = || Some(look()).filter(tells);
        // The first words of libc's set are the kernel's mask.
        let mask = self.mask.cast::<signal::Mask>();
        let waits = mask.is_null() || value_at(mask) == Some(signal::mask());
        match waits.then(|| until(look, wait)) {
            Some(Ok(Some(answer))) => answer,
            // The time is up: the call's, or that of a frame, which is never an answer of its own.
            Some(Ok(None)) => refusal(self.deadline).map_or(0, fail),
            // In a frame, which is to end the call, it is made again and again.
            None if ends => polled(|| Some(in_kernel(|| (self.real)(Some(0)))).filter(tells))
                .unwrap_or_else(|| self.block()),
            _ => self.block(),
        }
    }
}

/// The wait in between of a call that waits for any of several descriptors.
fn any(
    deadline: Option<u64>,
    interests: impl Fn() -> Vec<Interest>,
) -> impl FnMut(u32) -> io::Result<bool> {
    /// After so many events in a row that are none for the caller it pauses after each, for so many nanoseconds.
    const IN_VAIN: u32 = 10;
    const PAUSE: u64 = 2_000_000;
    let mut kept = None;
    move |in_vain| {
        // The kernel tells of an end or an error unasked, and `select` may not count it. Then each wait would end at once.
        if in_vain > IN_VAIN {
            crate::thread::Thread::rest_until(deadline.unwrap_or(u64::MAX).min(after(PAUSE)));
        }
        watch::wait_for_any(kept.get_or_insert_with(&interests), deadline)
    }
}

/// Blocks the kernel thread until `fd` is ready.
pub(super) fn wait_for(fd: c_int, direction: Direction) -> isize {
    let mut record = sys::pollfd(fd, direction as i16);
    // SAFETY: one record.
    uninterrupted(|| unsafe { poll::real(&mut record, 1, -1) });
    0
}

/// `poll` and `ppoll`.
fn polling(records: *mut pollfd, count: c_ulong, limit: Limit<'_>) -> c_int {
    let interest = |i| {
        // SAFETY: the kernel has read and written the records when the call looked, before it waits.
        let record = unsafe { records.add(i).read() };
        (record.fd >= 0).then_some(Interest {
            fd: record.fd,
            events: i32::from(record.events as u16),
        })
    };
    let interests = || (0..count as usize).filter_map(interest).collect();
    // SAFETY: the caller's records.
    let look = || uninterrupted(|| unsafe { poll::real(records, count, 0) });
    limit.wait(true, look, any(limit.deadline, interests))
}

hooked! {
    fn poll(records: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int where real(timeout) {
        for_millis(timeout, null(), real, |limit| polling(records, count, limit))
    }

    fn ppoll(
        records: *mut pollfd, count: c_ulong, time: *const timespec, mask: *const sigset_t,
    ) -> c_int where real(time) {
        for_time(time, mask, real, |limit| polling(records, count, limit))
    }
}

// What fortified C calls in the place of the others: it has checked nothing yet.
hooked! {
    fn __poll_chk(records: *mut pollfd, count: c_ulong, timeout: c_int, size: usize) -> c_int {
        must_hold(size / size_of::<pollfd>() >= count as usize);
        // SAFETY: the caller's arguments; the places are as long as was found now.
        unsafe { poll(records, count, timeout) }
    }

    fn __ppoll_chk(
        records: *mut pollfd, count: c_ulong, time: *const timespec, mask: *const sigset_t,
        size: usize,
    ) -> c_int {
        must_hold(size / size_of::<pollfd>() >= count as usize);
        // SAFETY: the caller's arguments; the places are as long as was found now.
        unsafe { ppoll(records, count, time, mask) }
    }
}

const BITS: usize = u64::BITS as usize;
/// The kernel accepts more descriptors than libc's type has place for. A longer set is libc's matter.
const WORDS: usize = size_of::<fd_set>() / size_of::<u64>();

/// The three sets of a `select`: the descriptors to read, to write, with something exceptional.
type Sets = [[u64; WORDS]; 3];

/// What the caller of a `select` waits for.
fn interests(sets: &Sets, count: c_int) -> Vec<Interest> {
    /// The events that the kernel counts for each set.
    const EVENTS: [i32; 3] = [
        libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDBAND | libc::EPOLLHUP | libc::EPOLLERR,
        libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND | libc::EPOLLERR,
        libc::EPOLLPRI,
    ];
    let interest = |fd: c_int| {
        let (word, bit) = (fd as usize / BITS, fd as usize % BITS);
        let wanted = sets.iter().zip(EVENTS);
        let wanted = wanted.filter(|(set, _)| set[word] >> bit & 1 != 0);
        let events = wanted.fold(0, |all, (_, events)| all | events);
        (events != 0).then_some(Interest { fd, events })
    };
    (0..count).filter_map(interest).collect()
}

/// `select` and `pselect`. The caller's sets stay as they are until there is an answer: each look is at a copy.
fn selecting(count: c_int, at: [*mut fd_set; 3], limit: Limit<'_>) -> c_int {
    let length = usize::try_from(count).unwrap_or(usize::MAX).div_ceil(BITS);
    let at = at.map(|at| at.cast::<u64>());
    let is_set = |at: &*mut u64| at.is_null() || can_be_written(*at, length);
    // A set that cannot be written is an error, which libc's function finds.
    if length > WORDS || !at.iter().all(is_set) {
        return limit.block();
    }
    let mut asked: Sets = [[0; WORDS]; 3];
    for (set, at) in asked.iter_mut().zip(at).filter(|(_, at)| !at.is_null()) {
        // SAFETY: so many words can be read there, and the set has as many at least.
        unsafe { set.as_mut_ptr().copy_from_nonoverlapping(at, length) };
    }
    let answer_with = |found: &Sets| {
        for (set, at) in found.iter().zip(at).filter(|(_, at)| !at.is_null()) {
            // SAFETY: so many words can be written there, and the program keeps its set until its call is over.
            unsafe { at.copy_from_nonoverlapping(set.as_ptr(), length) };
        }
    };
    let look = || {
        let mut found = asked;
        let [read, write, except] = core::array::from_fn(|i| match at[i].is_null() {
            true => null_mut(),
            false => found[i].as_mut_ptr().cast(),
        });
        // SAFETY: sets of ours. A call that is interrupted leaves them as they are.
        let answer =
            uninterrupted(|| unsafe { select::real(count, read, write, except, &mut timeval(0)) });
        if answer > 0 {
            answer_with(&found);
        }
        answer
    };
    let real = |left| {
        answer_with(&asked);
        (limit.real)(left)
    };
    let limit = Limit {
        real: &real,
        ..limit
    };
    let answer = limit.wait(true, look, any(limit.deadline, || interests(&asked, count)));
    if answer == 0 {
        answer_with(&[[0; WORDS]; 3]);
    }
    answer
}

pub(super) fn timeval(nanos: u64) -> timeval {
    timeval {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_usec: (nanos % 1_000_000_000 / 1_000) as libc::suseconds_t,
    }
}

hooked! {
    fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *mut timeval,
    ) -> c_int where real(time) {
        let asked = value_at(time);
        if asked.map_or(!time.is_null(), |asked| asked.tv_sec < 0 || asked.tv_usec < 0) {
            return real(time); // which refuses it
        }
        let deadline = asked.map(|asked| {
            after(sum(asked.tv_sec as u64, (asked.tv_usec as u64).saturating_mul(1_000)))
        });
        let real = |left: Option<u64>| {
            let mut left = left.map(timeval);
            real(left.as_mut().map_or(null_mut(), ptr::from_mut))
        };
        let limit = Limit { deadline, mask: null(), real: &real };
        let answer = selecting(count, [read, write, except], limit);
        if let Some(deadline) = deadline {
            // SAFETY: the caller's place, which could be read, and which libc's function writes to.
            unsafe { *time = timeval(deadline.saturating_sub(clock::now())) };
        }
        answer
    }

    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        time: *const timespec, mask: *const sigset_t,
    ) -> c_int where real(time) {
        for_time(time, mask, real, |limit| selecting(count, [read, write, except], limit))
    }
}

/// `epoll_wait` and its kin.
fn collecting(epoll: c_int, events: *mut epoll_event, size: c_int, limit: Limit<'_>) -> c_int {
    let call = pin!(Call::new(epoll, &watch::COLLECTED));
    let call = call.as_ref();
    // SAFETY: the caller's place for events.
    let look = || uninterrupted(|| unsafe { epoll_wait::real(call.fd(), events, size, 0) });
    limit.wait(false, look, |_| call.wait(Direction::Read, limit.deadline))
}

hooked! {
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, size: c_int, timeout: c_int) -> c_int
    where real(timeout) {
        for_millis(timeout, null(), real, |limit| collecting(epoll, events, size, limit))
    }

    fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, size: c_int, timeout: c_int, mask: *const sigset_t,
    ) -> c_int where real(timeout) {
        for_millis(timeout, mask, real, |limit| collecting(epoll, events, size, limit))
    }

    fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, size: c_int, time: *const timespec,
        mask: *const sigset_t,
    ) -> c_int where real(time) {
        for_time(time, mask, real, |limit| collecting(epoll, events, size, limit))
    }
}
