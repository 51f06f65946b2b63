//! Semaphores.
//!
//! `sem_post` is the only function of this folder that may be called in a signal handler: the table defers
//! wake-ups that a handler cannot make (`inside`).
//!
//! The word at offset 8 says whether a semaphore is process-shared; those that have names are.

use core::ffi::c_int;

use libc::{sem_t, timespec};

use super::{Asked, FOR_EVER, POST, is_shared, real_time, wait as wait_for, wake};
use crate::libc::{count_parked, errno, fail, hooked, in_kernel, interposed, set_errno};

const SHARED: usize = 8;

/// Takes one; the calling thread is hooked. `real` makes libc's call.
unsafe fn take_or(semaphore: *mut sem_t, asked: Asked, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's time.
    let Some(until) = (unsafe { asked.until() }) else {
        return fail(libc::EINVAL);
    };
    let errno_before = errno();
    // SAFETY: the caller's semaphore. It fails with EAGAIN only if there is none to take.
    let attempt = || unsafe { libc::sem_trywait(semaphore) == 0 };
    if attempt() {
        return 0;
    }
    // SAFETY: the caller's semaphore, in glibc's layout.
    if unsafe { is_shared(semaphore, SHARED) } {
        return in_kernel(real);
    }
    count_parked();
    match wait_for(semaphore as usize, POST, until, |_| attempt().then_some(())) {
        Some(()) => {
            set_errno(errno_before);
            0
        }
        None => fail(libc::ETIMEDOUT),
    }
}

hooked! {
    fn sem_wait(semaphore: *mut sem_t) -> c_int {
        // SAFETY: the caller's semaphore.
        unsafe { take_or(semaphore, FOR_EVER, || sem_wait::real(semaphore)) }
    }

    fn sem_timedwait(semaphore: *mut sem_t, time: *const timespec) -> c_int {
        // SAFETY: the caller's semaphore and time.
        unsafe { take_or(semaphore, real_time(time), || sem_timedwait::real(semaphore, time)) }
    }

    fn sem_clockwait(
        semaphore: *mut sem_t,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int {
        let asked = Asked(clock, Some(time));
        // SAFETY: the caller's semaphore and time.
        unsafe { take_or(semaphore, asked, || sem_clockwait::real(semaphore, clock, time)) }
    }
}

interposed! {
    fn sem_post(semaphore: *mut sem_t) -> c_int {
        // SAFETY: the caller's semaphore.
        let answer = unsafe { sem_post::real(semaphore) };
        if answer == 0 {
            wake(semaphore as usize, POST, 1);
        }
        answer
    }
}
