//! Reader-writer locks.
//!
//! | offset | |
//! |---|---|
//! | 24 | the name of the thread that has it for writing |
//! | 28 | not 0: process-shared |
//! | 48 | which threads it prefers |
//!
//! A thread that gives the lock back wakes all that wait to read, and the first that waits to write; they
//! compete as in libc. A lock that prefers writers (`PREFER_WRITER_NONRECURSIVE`) wakes the first
//! writer, and readers only if there is none. A reader that comes while a green writer waits for such a lock queues
//! behind it. A writer that gives up lets the readers look again, on any thread: libc refuses such a lock to readers
//! for as long as one of its own writers waits.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use libc::{pthread_rwlock_t, timespec};

use super::{
    Asked, FOR_EVER, READ, TABLE, WRITE, field, is_shared, my_id, real_time, wait as wait_for, wake,
};
use crate::engine::facade::{blocking, is_forked_child};
use crate::libc::{count_parked, hooked, interposed, is_hooked};

const WRITER: usize = 24;
const SHARED: usize = 28;
const PREFERENCE: usize = 48;
const PREFERS_WRITERS: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Read,
    Write,
}

unsafe fn prefers_writers(lock: *mut pthread_rwlock_t) -> bool {
    // SAFETY: the caller's lock, in glibc's layout.
    unsafe { field(lock, PREFERENCE) }.load(Relaxed) == PREFERS_WRITERS
}

/// Locks it; the calling thread is hooked. `asked` and `real` as in `mutex`.
unsafe fn lock_or(
    lock: *mut pthread_rwlock_t,
    to: To,
    asked: Asked,
    real: impl Fn() -> c_int,
) -> c_int {
    if !asked.has_clock() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's lock.
    let attempt = || unsafe {
        match to {
            To::Read => libc::pthread_rwlock_tryrdlock(lock),
            To::Write => libc::pthread_rwlock_trywrlock(lock),
        }
    };
    let address = lock as usize;
    // SAFETY: the caller's lock.
    let prefers_writers = unsafe { prefers_writers(lock) };
    let gives_way = prefers_writers && to == To::Read;
    if !(gives_way && TABLE.may_have_after_locked(address)) {
        let first = attempt();
        if first != libc::EBUSY {
            return first;
        }
    }
    // SAFETY: the caller's lock, in glibc's layout.
    unsafe {
        if is_shared(lock, SHARED) {
            return blocking(real);
        }
        count_parked();
        if Some(field(lock, WRITER).load(Relaxed)) == my_id() {
            return libc::EDEADLK;
        }
    }
    // SAFETY: the caller's time.
    let Some(until) = (unsafe { asked.until() }) else {
        return libc::EINVAL;
    };
    let events = match to {
        To::Read => READ,
        To::Write => WRITE,
    };
    let answer = wait_for(address, events, until, |beside| {
        if gives_way && beside.has(WRITE) {
            return None;
        }
        Some(attempt()).filter(|&answer| answer != libc::EBUSY)
    });
    answer.unwrap_or(libc::ETIMEDOUT)
}

/// Locks it for writing, on any thread; `asked` and `real` as in `mutex`.
unsafe fn write_or(lock: *mut pthread_rwlock_t, asked: Asked, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's lock.
    let (answer, prefers_writers) = unsafe {
        let answer = match is_hooked() {
            true => lock_or(lock, To::Write, asked, real),
            false => real(),
        };
        (answer, answer == libc::ETIMEDOUT && prefers_writers(lock))
    };
    if prefers_writers && !is_forked_child() {
        TABLE.wake(lock as usize, READ, usize::MAX);
    }
    answer
}

hooked! {
    fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's lock.
        unsafe { lock_or(lock, To::Read, FOR_EVER, || pthread_rwlock_rdlock::real(lock)) }
    }

    fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's lock.
        unsafe { lock_or(lock, To::Write, FOR_EVER, || pthread_rwlock_wrlock::real(lock)) }
    }

    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int {
        let asked = real_time(time);
        // SAFETY: the caller's lock and time.
        unsafe { lock_or(lock, To::Read, asked, || pthread_rwlock_timedrdlock::real(lock, time)) }
    }

    fn pthread_rwlock_clockrdlock(
        lock: *mut pthread_rwlock_t,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int {
        let asked = Asked(clock, Some(time));
        // SAFETY: the caller's lock and time.
        unsafe {
            lock_or(lock, To::Read, asked, || pthread_rwlock_clockrdlock::real(lock, clock, time))
        }
    }
}

interposed! {
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int {
        // SAFETY: the caller's lock and time.
        unsafe { write_or(lock, real_time(time), || pthread_rwlock_timedwrlock::real(lock, time)) }
    }

    fn pthread_rwlock_clockwrlock(
        lock: *mut pthread_rwlock_t,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int {
        let asked = Asked(clock, Some(time));
        // SAFETY: the caller's lock and time.
        unsafe { write_or(lock, asked, || pthread_rwlock_clockwrlock::real(lock, clock, time)) }
    }

    fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's lock, which it holds, so nobody frees it before it is unlocked.
        let (prefers_writers, answer) =
            unsafe { (prefers_writers(lock), pthread_rwlock_unlock::real(lock)) };
        let address = lock as usize;
        if is_forked_child() || !TABLE.may_have_after_locked(address) {
            return answer;
        }
        if !prefers_writers {
            wake(address, READ, usize::MAX);
            wake(address, WRITE, 1);
        } else if wake(address, WRITE, 1) == 0 {
            wake(address, READ, usize::MAX);
        }
        answer
    }
}
