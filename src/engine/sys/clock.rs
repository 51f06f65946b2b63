//! Clocks, in nanoseconds.

use std::time::{Duration, Instant};

use crate::engine::atomic::{AtomicU32, Ordering};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// `nanos` as the kernel takes times.
pub(crate) fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// libc's `clock_gettime`, whose name is ours. It is found when the program is loaded; until then the system call does
/// the same.
#[cfg(answers)]
mod of_libc {
    use core::mem::transmute;

    use crate::engine::atomic::{AtomicUsize, Ordering};
    use crate::engine::sys::call;

    type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
    /// 0: not found yet. Relaxed: the address is all that there is to see.
    static GETTIME: AtomicUsize = AtomicUsize::new(0);

    /// Clocks are read by the function at `address`, which is libc's; 0: by the system call.
    pub(crate) fn is_read_by(address: usize) {
        GETTIME.store(address, Ordering::Relaxed);
    }

    /// # Safety
    /// As the function demands.
    pub(crate) unsafe fn get(clock: libc::clockid_t, time: *mut libc::timespec) -> i32 {
        // SAFETY: the place is one that the function may write to, the caller says; libc's function of that name.
        unsafe {
            match GETTIME.load(Ordering::Relaxed) {
                0 => match call(libc::SYS_clock_gettime, &[clock as usize, time as usize]) {
                    Ok(_) => 0,
                    Err(errno) => {
                        *libc::__errno_location() = errno;
                        -1
                    }
                },
                real => transmute::<usize, GetTime>(real)(clock, time),
            }
        }
    }
}

#[cfg(not(answers))]
use libc::clock_gettime as get;
#[cfg(answers)]
pub(crate) use of_libc::{get, is_read_by};

fn nanos(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock, which `Instant` and futexes use too.
pub(crate) fn now() -> u64 {
    let mut time = timespec(0);
    // SAFETY: writes to a valid place. The clock exists, so the call does not fail.
    unsafe { get(libc::CLOCK_MONOTONIC, &mut time) };
    nanos(&time)
}

/// A timer of the system's that sends the process a signal. It stays as long as the process; a forked child has none.
pub(crate) struct Timer(i32);

impl Timer {
    pub(crate) fn of_signal(signal: i32) -> Option<Timer> {
        // SAFETY: zeroes are a valid event.
        let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, signal);
        let mut number = 0;
        let places = [&raw const event as usize, &raw mut number as usize];
        let arguments = [libc::CLOCK_MONOTONIC as usize, places[0], places[1]];
        // SAFETY: the kernel reads the event, and writes the timer's number, an `int`.
        let made = unsafe { super::call(libc::SYS_timer_create, &arguments) };
        made.ok().map(|_| Timer(number))
    }

    /// It goes off once, `nanos` from now; 0: it does not go off. A signal handler may call this.
    pub(crate) fn set(&self, nanos: u64) {
        let time = libc::itimerspec {
            it_interval: timespec(0),
            it_value: timespec(nanos),
        };
        let arguments = [self.0 as usize, 0, &raw const time as usize, 0];
        // SAFETY: the kernel reads a valid time, and is given no place to write to.
        let _ = unsafe { super::call(libc::SYS_timer_settime, &arguments) };
    }
}

/// The coarse clock: milliseconds of the monotonic clock, as somebody last noted them. Alone on its
/// cache line: every switch reads it.
#[repr(align(128))]
struct Coarse(AtomicU32);
static COARSE: Coarse = Coarse(AtomicU32::new(0));

/// The coarse clock. It wraps after 49 days.
#[inline(always)]
pub(crate) fn coarse() -> u32 {
    COARSE.0.load(Ordering::Relaxed)
}

/// For debuggers: where the coarse clock lies.
pub(crate) const fn coarse_address() -> *const () {
    (&raw const COARSE).cast()
}

/// Sets the coarse clock: `now` is the time of a moment ago. Callers are the monitors, each time that
/// they look, and processors that were idle.
pub(crate) fn note(now: u64) {
    let millis = (now / 1_000_000) as u32;
    // Written only when it changes: other processors read the line.
    if coarse() != millis {
        COARSE.0.store(millis, Ordering::Relaxed);
    }
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

/// CPU time used by the calling kernel thread. It touches no thread-local.
pub(crate) fn own_cpu_time() -> u64 {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time used by the kernel thread behind `clock` (see [`super::kernel_thread::cpu_clock`]); 0 if there is no such
/// thread, or a filter forbids the question.
pub(crate) fn cpu_time(clock: libc::clockid_t) -> u64 {
    let mut time = timespec(0);
    let arguments = [clock as usize, &raw mut time as usize];
    // SAFETY: the kernel writes to a valid place.
    let _ = unsafe { super::call(libc::SYS_clock_gettime, &arguments) };
    nanos(&time)
}
