//! Semaphores.
//!
//! `sem_post` is the only function of this folder that may be called in a signal handler: the table defers
//! wake-ups that a handler cannot make (`wait::inside`).
//!
//! The word at offset 8 says whether a semaphore is process-shared; those that have names are.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{sem_t, timespec};

use super::{POST, Until, field, is_accepted, says_shared, wait as wait_for, wake};
use crate::unmodified::{count_parked, errno, fail, hooked, in_kernel, interposed, set_errno};

const SHARED: usize = 8;

/// Takes one; the calling thread is hooked. `real` makes libc's call.
unsafe fn take_or(semaphore: *mut sem_t, until: Until, real: impl Fn() -> c_int) -> c_int {
    let errno_before = errno();
    // SAFETY: the caller's semaphore. It fails with EAGAIN only if there is none to take.
    let attempt = || unsafe { libc::sem_trywait(semaphore) == 0 };
    if attempt() {
        return 0;
    }
    // SAFETY: the caller's semaphore, in glibc's layout.
    let is_shared = unsafe { says_shared(field(semaphore, SHARED).load(Relaxed)) };
    if is_shared {
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
        unsafe { take_or(semaphore, Until::NEVER, || sem_wait::real(semaphore)) }
    }

    fn sem_timedwait(semaphore: *mut sem_t, time: *const timespec) -> c_int {
        // SAFETY: the caller's semaphore and time.
        unsafe {
            match Until::new(libc::CLOCK_REALTIME, time) {
                Some(until) => take_or(semaphore, until, || sem_timedwait::real(semaphore, time)),
                None => fail(libc::EINVAL),
            }
        }
    }

    fn sem_clockwait(
        semaphore: *mut sem_t,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int {
        // SAFETY: the caller's semaphore and time.
        unsafe {
            match Until::new(clock, time).filter(|_| is_accepted(clock)) {
                Some(until) => {
                    take_or(semaphore, until, || sem_clockwait::real(semaphore, clock, time))
                }
                None => fail(libc::EINVAL),
            }
        }
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
