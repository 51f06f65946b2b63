//! `poll`, `ppoll`: asked without waiting first, and again whenever one of the descriptors may be ready.
//!
//! A call with a signal mask that differs from the thread's is libc's: it waits for a signal, too.

use core::ffi::{c_int, c_ulong};
use core::ptr::null;

use super::descriptor::value_at;
use super::{errno, fortified, hooked, in_kernel, nanos, set_errno, uninterrupted};
use crate::engine::hooks::watch::{self, Interest};
use crate::sys::{clock, signal};

/// After so many events in a row that are none for the caller it pauses after each, for so many nanoseconds.
const IN_VAIN: u32 = 10;
const PAUSE: u64 = 2_000_000;

/// What `poll` says at this moment.
///
/// # Safety
/// The records are valid.
pub(super) unsafe fn now(records: *mut libc::pollfd, count: c_ulong) -> c_int {
    // SAFETY: the caller's promise.
    uninterrupted(|| unsafe { poll::real(records, count, 0) })
}

/// Asks with `look`, which does not wait, until its answer is not 0, or until `deadline`. In between `wait` waits for an
/// event, and says whether one has come; it hears how many were in vain so far. `None`: the caller is to make the call
/// that blocks.
pub(super) fn until<E>(
    deadline: Option<u64>,
    mut look: impl FnMut() -> c_int,
    mut wait: impl FnMut(u32) -> Result<bool, E>,
) -> Option<c_int> {
    let first = look();
    if first != 0 || deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Some(first);
    }
    let before = errno();
    let mut in_vain = 0;
    loop {
        let has_come = wait(in_vain).ok()?;
        let answer = look();
        if answer != 0 || !has_come {
            if answer >= 0 {
                set_errno(before);
            }
            return Some(answer);
        }
        in_vain += 1;
    }
}

/// [`until`], for one of several descriptors.
pub(super) fn until_any(
    deadline: Option<u64>,
    interests: impl Fn() -> Vec<Interest>,
    look: impl FnMut() -> c_int,
) -> Option<c_int> {
    let mut kept = None;
    until(deadline, look, |in_vain| {
        // An end or an error comes unasked, and `select` may not count it: then it comes at once, always.
        if in_vain > IN_VAIN {
            let pause = clock::now().saturating_add(PAUSE);
            crate::thread::Thread::sleep_until(deadline.unwrap_or(u64::MAX).min(pause));
        }
        watch::wait_for_any(kept.get_or_insert_with(&interests), deadline)
    })
}

/// Makes the call that blocks until `deadline`; it gets the time that is left.
pub(super) fn block(deadline: Option<u64>, call: impl Fn(Option<u64>) -> c_int) -> c_int {
    let left = || deadline.map(|deadline| deadline.saturating_sub(clock::now()));
    in_kernel(|| call(left()))
}

/// The point in time at which `nanos` are over; none at all are over by now, and at once.
pub(super) fn after(nanos: u64) -> u64 {
    match nanos {
        0 => 0,
        _ => clock::now().saturating_add(nanos),
    }
}

/// A call with a time-out in milliseconds, and a mask or none: `wait` waits, if it can, or `real` makes libc's.
///
/// # Safety
/// The mask is null or valid, or the kernel cannot read it either.
pub(super) unsafe fn for_millis(
    millis: c_int,
    mask: *const libc::sigset_t,
    wait: impl FnOnce(Option<u64>) -> Option<c_int>,
    real: impl Fn(c_int) -> c_int,
) -> c_int {
    let limit = u64::try_from(millis).ok();
    let deadline = limit.map(|millis| after(millis * 1_000_000));
    let millis_of = |time: u64| time.div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX);
    // SAFETY: the caller's promise.
    let waits = unsafe { !changes_mask(mask) };
    let answer = waits.then(|| wait(deadline)).flatten();
    answer.unwrap_or_else(|| block(deadline, |left| real(left.map_or(-1, millis_of))))
}

/// The same with a time-out in a record.
///
/// # Safety
/// As above; and the time is null or valid, or cannot be read.
pub(super) unsafe fn for_time(
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
    wait: impl FnOnce(Option<u64>) -> Option<c_int>,
    real: impl Fn(*const libc::timespec) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (deadline, waits) = unsafe {
        let nanos = value_at(time).and_then(nanos);
        if nanos.is_none() && !time.is_null() {
            return real(time); // which refuses it
        }
        (nanos.map(after), !changes_mask(mask))
    };
    let answer = waits.then(|| wait(deadline)).flatten();
    answer.unwrap_or_else(|| {
        block(deadline, |left| {
            let left = left.map(clock::timespec);
            real(left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref))
        })
    })
}

/// Whether a call with this mask waits for other signals than the thread does anyway; or the mask cannot be
/// read.
///
/// # Safety
/// The mask is null or valid, or the kernel cannot read it either.
unsafe fn changes_mask(mask: *const libc::sigset_t) -> bool {
    // SAFETY: a set begins with the kernel's mask; any bits are one.
    !mask.is_null() && unsafe { value_at(mask.cast::<signal::Mask>()) } != Some(signal::mask())
}

/// # Safety
/// The records are valid.
unsafe fn interests_of(records: *const libc::pollfd, count: c_ulong) -> Vec<Interest> {
    let interest = |i| {
        // SAFETY: the caller's promise.
        let record = unsafe { &*records.add(i) };
        (record.fd >= 0).then_some(Interest {
            fd: record.fd,
            events: i32::from(record.events as u16),
        })
    };
    (0..count as usize).filter_map(interest).collect()
}

hooked! {
    fn poll(records: *mut libc::pollfd, count: c_ulong, millis: c_int) -> c_int {
        // SAFETY: the caller's records: the first look has found them valid.
        unsafe {
            let interests = || interests_of(records, count);
            let wait = |deadline| until_any(deadline, interests, || now(records, count));
            for_millis(millis, null(), wait, |left| poll::real(records, count, left))
        }
    }

    fn ppoll(
        records: *mut libc::pollfd,
        count: c_ulong,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int {
        // SAFETY: as above.
        unsafe {
            let interests = || interests_of(records, count);
            let wait = |deadline| until_any(deadline, interests, || now(records, count));
            for_time(time, mask, wait, |left| ppoll::real(records, count, left, mask))
        }
    }
}

fortified! {
    fn __poll_chk(records: *mut libc::pollfd, count: c_ulong, millis: c_int, room: usize) -> c_int {
        room / size_of::<libc::pollfd>() >= count as usize => poll(records, count, millis)
    }

    fn __ppoll_chk(
        records: *mut libc::pollfd,
        count: c_ulong,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
        room: usize,
    ) -> c_int {
        room / size_of::<libc::pollfd>() >= count as usize => ppoll(records, count, time, mask)
    }
}
