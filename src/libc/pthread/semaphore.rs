//! Semaphores.
//!
//! `sem_post` is the only function of this folder that may be called in a signal handler: the table defers
//! wake-ups that a handler cannot make (`inside`).
//!
//! The word at offset 8 says whether a semaphore is process-shared; those that have names are.

use core::ffi::c_int;

use libc::{clockid_t, sem_t, timespec};

use super::{FOR_EVER, Limit, Object, POST, real_time, wait as wait_for, wake};
use crate::libc::{count_parked, errno, fail, hooked, in_kernel, interposed, set_errno};

const SHARED: usize = 8;

/// Takes one; the calling thread is hooked. `real` makes libc's call.
fn take_or(semaphore: Object<sem_t>, limit: Limit, real: impl Fn() -> c_int) -> c_int {
    if !limit.is_valid() {
        return fail(libc::EINVAL);
    }
    let errno_before = errno();
    // SAFETY: a valid semaphore. The call fails with EAGAIN only if there is none to take.
    let attempt = || unsafe { libc::sem_trywait(semaphore.0) == 0 };
    if attempt() {
        return 0;
    }
    if semaphore.load(SHARED) != 0 {
        return in_kernel(real);
    }
    count_parked();
    match wait_for(semaphore.address(), POST, limit, |_| {
        attempt().then_some(())
    }) {
        Some(()) => {
            set_errno(errno_before);
            0
        }
        None => fail(libc::ETIMEDOUT),
    }
}

hooked! {
    fn sem_wait(semaphore: Object<sem_t>) -> c_int where real() {
        take_or(semaphore, FOR_EVER, real)
    }

    fn sem_timedwait(semaphore: Object<sem_t>, time: *const timespec) -> c_int where real() {
        take_or(semaphore, real_time(time), real)
    }

    fn sem_clockwait(semaphore: Object<sem_t>, clock: clockid_t, time: *const timespec) -> c_int
    where real() {
        take_or(semaphore, Limit(clock, Some(time)), real)
    }
}

interposed! {
    fn sem_post(semaphore: Object<sem_t>) -> c_int where real() {
        let answer = real();
        if answer == 0 {
            wake(semaphore.address(), POST, 1);
        }
        answer
    }
}
