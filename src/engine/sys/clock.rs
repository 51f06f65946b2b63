//! Clocks, in nanoseconds.

use std::time::{Duration, Instant};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// `nanos` as the kernel takes times.
pub(super) fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// The calling kernel thread sleeps for `nanos`, or until a signal comes.
pub(super) fn sleep(nanos: u64) {
    let time = timespec(nanos);
    // SAFETY: the kernel reads a valid time, and is given no place to write to.
    let _ = unsafe { super::call(libc::SYS_nanosleep, &[&raw const time as usize, 0]) };
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = timespec(0);
    // SAFETY: writes to a valid timespec. It fails only for a clock that does not exist: then 0 is
    // returned.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock, which `Instant` and futexes use too.
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// When `duration` will be over; [`NEVER`] if that is beyond the clock.
pub(crate) fn after(duration: Duration) -> u64 {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
    now().saturating_add(nanos)
}

/// `deadline` on the monotonic clock.
pub(crate) fn at(deadline: Instant) -> u64 {
    after(deadline.saturating_duration_since(Instant::now()))
}

/// CPU time used by the kernel thread behind `clock` (see [`super::kernel_thread::cpu_clock`]).
pub(crate) fn cpu_time(clock: libc::clockid_t) -> u64 {
    read(clock)
}
