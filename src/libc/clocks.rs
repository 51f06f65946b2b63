//! A green thread's CPU time: `clock_gettime`, `clock_getres`, `getrusage`. How it is measured: `sched::cpu_time`.
//!
//! `clock_gettime` is on the way of every `Instant`: for another clock than a thread's, ours compares the number and goes
//! on to libc's (`sys::clock`), which the runtime's own questions come to at once.

use core::ffi::{c_int, c_long};

use super::answered;
use super::macros::{exported, libc_functions, when_loaded};
use crate::engine::hooks::thread_clock;
use crate::sys::{call as kernel_call, clock};

/// The system call, or our answer in its place, as libc's functions return it.
///
/// # Safety
/// As the system call demands.
unsafe fn ask(number: c_long, first: c_int, place: usize) -> c_int {
    let arguments = [first as usize, place];
    // SAFETY: the caller's promise.
    unsafe {
        answered(
            thread_clock(number, &arguments).unwrap_or_else(|| kernel_call(number, &arguments)),
        )
    }
}

libc_functions! {
    fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int;
}

when_loaded!(clock::is_read_by(clock_gettime::REAL.find()));

exported! {
    fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
        let is_of_thread = clock == libc::CLOCK_THREAD_CPUTIME_ID || clock < 0;
        // SAFETY: the caller's arguments.
        unsafe {
            match is_of_thread {
                false => clock::get(clock, time),
                true => ask(libc::SYS_clock_gettime, clock, time as usize),
            }
        }
    }

    fn clock_getres(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { ask(libc::SYS_clock_getres, clock, time as usize) }
    }

    fn getrusage(whose: c_int, usage: *mut libc::rusage) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { ask(libc::SYS_getrusage, whose, usage as usize) }
    }
}
