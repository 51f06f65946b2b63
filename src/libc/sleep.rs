//! Sleeping: `nanosleep`, `clock_nanosleep`, `usleep`, `sleep`. And giving way, `sched_yield`: libraries spin
//! with it for a while before they wait.
//!
//! A parked thread is not interrupted, so nothing is ever left of its sleep. A sleep until a time of a clock that
//! may jump looks at that clock again now and then: it can be set, or it goes on while the machine is suspended.
//! A sleep by a clock of CPU time is the kernel's.

use core::ffi::{c_int, c_uint};

use super::descriptor::value_at;
use super::{count_parked, deadline_on, hooked, nanos, read, repeated};
use crate::sys::clock;
use crate::thread::Thread;

/// How long a sleep relies on a clock that may jump: it ends as late as this at most.
const TRUST: u64 = 1_000_000_000;

/// Sleeps until `clock` shows `time`.
fn sleep_on(clock: libc::clockid_t, time: u64) {
    count_parked();
    loop {
        let end = deadline_on(clock, time);
        match clock {
            libc::CLOCK_MONOTONIC => Thread::sleep_until(end),
            _ => Thread::sleep_until(end.min(clock::now().saturating_add(TRUST))),
        }
        if read(clock) >= time {
            return;
        }
    }
}

/// Sleeps for `nanos`.
fn sleep_for(nanos: u64) {
    count_parked();
    Thread::sleep_until(clock::now().saturating_add(nanos));
}

/// `clock_nanosleep` in the kernel.
///
/// # Safety
/// That of the call.
unsafe fn sleep_in_kernel(
    clock: libc::clockid_t,
    flags: c_int,
    mut time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    let mut rest = core::mem::MaybeUninit::uninit();
    let left = if left.is_null() {
        rest.as_mut_ptr()
    } else {
        left
    };
    let sleep = || {
        // SAFETY: the caller's promise; the call reads the time before it writes what is left.
        let answer = unsafe { clock_nanosleep::real(clock, flags, time, left) };
        if answer == libc::EINTR && flags & libc::TIMER_ABSTIME == 0 {
            time = left;
        }
        answer
    };
    repeated(sleep, |answer| *answer == libc::EINTR)
}

hooked! {
    fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        // SAFETY: the caller's argument.
        match unsafe { value_at(time) }.and_then(nanos) {
            Some(time) => {
                sleep_for(time);
                0
            }
            // SAFETY: the caller's arguments.
            _ => unsafe { nanosleep::real(time, left) },
        }
    }

    fn clock_nanosleep(
        clock: libc::clockid_t,
        flags: c_int,
        time: *const libc::timespec,
        left: *mut libc::timespec,
    ) -> c_int {
        let is_known = matches!(
            clock,
            libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME | libc::CLOCK_BOOTTIME | libc::CLOCK_TAI
        );
        // SAFETY: the caller's argument.
        match unsafe { value_at(time) }.and_then(nanos) {
            Some(time) if is_known && flags & !libc::TIMER_ABSTIME == 0 => {
                match (flags & libc::TIMER_ABSTIME, clock) {
                    (0, libc::CLOCK_BOOTTIME) => sleep_on(clock, read(clock).saturating_add(time)),
                    (0, _) => sleep_for(time),
                    _ => sleep_on(clock, time),
                }
                0
            }
            // SAFETY: the caller's arguments.
            _ => unsafe { sleep_in_kernel(clock, flags, time, left) },
        }
    }

    fn sched_yield() -> c_int {
        Thread::yield_now();
        0
    }

    fn usleep(micros: c_uint) -> c_int {
        sleep_for(u64::from(micros) * 1_000);
        0
    }

    fn sleep(seconds: c_uint) -> c_uint {
        sleep_for(u64::from(seconds) * 1_000_000_000);
        0
    }
}
