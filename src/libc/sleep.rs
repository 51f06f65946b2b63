//! Sleeping: `nanosleep`, `clock_nanosleep`, `usleep`, `sleep`. And giving way, `sched_yield`: libraries spin
//! with it for a while before they wait.
//!
//! A parked thread is not interrupted, so nothing is ever left of its sleep. A sleep until a time of a clock that
//! may jump looks at that clock again now and then: it can be set, or it goes on while the machine is suspended.
//! A sleep by a clock of CPU time is the kernel's.

use core::ffi::{c_int, c_uint};

use libc::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_TAI, TIMER_ABSTIME, clockid_t, timespec,
};

use super::descriptor::value_at;
use super::{after, count_parked, deadline_on, nanos, read, repeated};
use crate::engine::facade::{sleep_until, yield_now};

/// Sleeps until `clock` shows `time`.
fn sleep_on(clock: clockid_t, time: u64) {
    /// How long a sleep relies on a clock that may jump: it ends as late as this at most.
    const TRUST: u64 = 1_000_000_000;
    count_parked();
    loop {
        let end = deadline_on(clock, time);
        match clock {
            CLOCK_MONOTONIC => sleep_until(end),
            _ => sleep_until(end.min(after(TRUST))),
        }
        if read(clock) >= time {
            return;
        }
    }
}

/// Sleeps for `nanos`.
fn sleep_for(nanos: u64) {
    count_parked();
    sleep_until(after(nanos));
}

hooked! {
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int where real() {
        match value_at(time).and_then(nanos) {
            Some(time) => {
                sleep_for(time);
                0
            }
            None => real(),
        }
    }

    fn clock_nanosleep(
        clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec,
    ) -> c_int where real(time, left) {
        let is_known = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME | CLOCK_BOOTTIME | CLOCK_TAI);
        let is_absolute = flags & TIMER_ABSTIME != 0;
        if let Some(time) = value_at(time).and_then(nanos)
            && is_known
            && flags & !TIMER_ABSTIME == 0
        {
            match clock {
                _ if is_absolute => sleep_on(clock, time),
                CLOCK_BOOTTIME => sleep_on(clock, read(clock).saturating_add(time)),
                _ => sleep_for(time),
            }
            return 0;
        }
        // In the kernel, which reads the time before it writes what is left.
        let mut rest = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let left = if left.is_null() { &raw mut rest } else { left };
        let mut time = time;
        let sleep = || {
            let answer = real(time, left);
            if answer == libc::EINTR && !is_absolute {
                time = left;
            }
            answer
        };
        repeated(sleep, |answer| *answer == libc::EINTR)
    }

    fn sched_yield() -> c_int {
        yield_now();
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
