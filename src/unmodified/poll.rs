//! `poll`, `ppoll`: asked without waiting first, and again whenever one of the descriptors may be ready.
//!
//! A call with a signal mask that differs from the thread's is libc's: it waits for a signal, too.

use core::ffi::{c_int, c_ulong};

use super::{errno, hooked, in_kernel, must_hold, nanos, uninterrupted, value_at};
use crate::engine::door::watch::{self, Interest};
use crate::engine::door::{self, clock, signal};

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

/// Asks with `look`, which does not wait, until its answer is not 0, or until `deadline`. In between it waits for one of
/// `interests`. `None`: the caller is to make the call that blocks.
pub(super) fn until(
    deadline: Option<u64>,
    interests: impl FnOnce() -> Vec<Interest>,
    mut look: impl FnMut() -> c_int,
) -> Option<c_int> {
    let first = look();
    if first != 0 || deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Some(first);
    }
    let (before, interests) = (errno(), interests());
    let mut in_vain = 0;
    loop {
        let has_come = watch::wait_for_any(&interests, deadline).ok()?;
        let answer = look();
        if answer == 0 && has_come {
            // An end or an error comes unasked, and `select` may not count it: then it comes at once, always.
            in_vain += 1;
            if in_vain > IN_VAIN {
                let pause = clock::now().saturating_add(PAUSE);
                door::sleep_until(deadline.unwrap_or(u64::MAX).min(pause));
            }
        }
        if answer != 0 || !has_come {
            if answer >= 0 {
                super::set_errno(before);
            }
            return Some(answer);
        }
    }
}

/// Makes the call that blocks until `deadline`; it gets the time that is left.
pub(super) fn block(deadline: Option<u64>, call: impl Fn(Option<u64>) -> c_int) -> c_int {
    let left = || deadline.map(|deadline| deadline.saturating_sub(clock::now()));
    in_kernel(|| call(left()))
}

/// A time-out in milliseconds.
pub(super) fn millis_of(time: Option<u64>) -> c_int {
    time.map_or(-1, |time| {
        time.div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX)
    })
}

/// Calls `call` with a time-out.
pub(super) fn with_time<T>(time: Option<u64>, call: impl FnOnce(*const libc::timespec) -> T) -> T {
    let time = time.map(|time| libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    });
    call(time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref))
}

/// The deadline of a time-out in milliseconds. `None`: there is none.
pub(super) fn after_millis(millis: c_int) -> Option<u64> {
    let millis = u64::try_from(millis).ok()?;
    Some(match millis {
        0 => 0,
        _ => clock::now().saturating_add(millis * 1_000_000),
    })
}

/// Whether a call with this mask waits for other signals than the thread does anyway; or the mask cannot be
/// read.
///
/// # Safety
/// The mask is null or valid, or the kernel cannot read it either.
pub(super) unsafe fn changes_mask(mask: *const libc::sigset_t) -> bool {
    // SAFETY: a set begins with the kernel's mask; any bits are one.
    !mask.is_null() && unsafe { value_at(mask.cast::<signal::Mask>()) } != Some(signal::mask())
}

/// The deadline of a time-out. An error: the kernel does not accept it, or cannot read it.
///
/// # Safety
/// The time is null or valid, or cannot be read.
pub(super) unsafe fn deadline_of(time: *const libc::timespec) -> Result<Option<u64>, ()> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    match unsafe { value_at(time) }.and_then(nanos) {
        Some(0) => Ok(Some(0)),
        Some(time) => Ok(Some(clock::now().saturating_add(time))),
        None => Err(()),
    }
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
        let deadline = after_millis(millis);
        // SAFETY: the caller's records: the first look has found them valid.
        unsafe {
            until(deadline, || interests_of(records, count), || now(records, count))
                .unwrap_or_else(|| block(deadline, |left| poll::real(records, count, millis_of(left))))
        }
    }

    fn ppoll(
        records: *mut libc::pollfd,
        count: c_ulong,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let Ok(deadline) = deadline_of(time) else {
                return ppoll::real(records, count, time, mask); // which refuses it
            };
            let real = |left| with_time(left, |time| ppoll::real(records, count, time, mask));
            match changes_mask(mask) {
                true => None,
                false => until(deadline, || interests_of(records, count), || now(records, count)),
            }
            .unwrap_or_else(|| block(deadline, real))
        }
    }
}

// What fortified C calls: it has checked nothing yet.
hooked! {
fn __poll_chk(
    records: *mut libc::pollfd,
    count: c_ulong,
    millis: c_int,
    room: usize,
) -> c_int {
    // SAFETY: there is as much room as was found now; or the program ends.
    unsafe {
        must_hold(room / size_of::<libc::pollfd>() >= count as usize);
        super::poll::poll(records, count, millis)
    }
}

fn __ppoll_chk(
    records: *mut libc::pollfd,
    count: c_ulong,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        must_hold(room / size_of::<libc::pollfd>() >= count as usize);
        super::poll::ppoll(records, count, time, mask)
    }
}
}
