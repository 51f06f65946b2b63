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

use libc::{clockid_t, pthread_rwlock_t, timespec};

use super::{
    FOR_EVER, Limit, Object, READ, TABLE, WRITE, my_id, real_time, wait as wait_for, wake,
};
use crate::engine::facade::{blocking, is_forked_child};
use crate::libc::addresses::Events;
use crate::libc::{count_parked, hooked, interposed, is_hooked};

const WRITER: usize = 24;
const SHARED: usize = 28;
const PREFERENCE: usize = 48;
const PREFERS_WRITERS: u32 = 2;

impl Object<pthread_rwlock_t> {
    fn prefers_writers(self) -> bool {
        self.load(PREFERENCE) == PREFERS_WRITERS
    }
}

/// Locks it, to `READ` or to `WRITE`; the calling thread is hooked. `limit` and `real` as in `mutex`.
fn lock_or(
    lock: Object<pthread_rwlock_t>,
    to: Events,
    limit: Limit,
    real: impl Fn() -> c_int,
) -> c_int {
    if !limit.has_clock() {
        return libc::EINVAL;
    }
    // SAFETY: a valid lock.
    let attempt = || unsafe {
        match to {
            READ => libc::pthread_rwlock_tryrdlock(lock.0),
            _ => libc::pthread_rwlock_trywrlock(lock.0),
        }
    };
    let gives_way = to == READ && lock.prefers_writers();
    if !(gives_way && TABLE.may_have_after_locked(lock.address())) {
        let first = attempt();
        if first != libc::EBUSY {
            return first;
        }
    }
    if lock.load(SHARED) != 0 {
        return blocking(real);
    }
    count_parked();
    if Some(lock.load(WRITER)) == my_id() {
        return libc::EDEADLK;
    }
    if !limit.is_valid() {
        return libc::EINVAL;
    }
    let answer = wait_for(lock.address(), to, limit, |beside| {
        if gives_way && beside.has(WRITE) {
            return None;
        }
        Some(attempt()).filter(|&answer| answer != libc::EBUSY)
    });
    answer.unwrap_or(libc::ETIMEDOUT)
}

/// Locks it for writing, on any thread; `limit` and `real` as in `mutex`.
fn write_or(lock: Object<pthread_rwlock_t>, limit: Limit, real: impl Fn() -> c_int) -> c_int {
    let answer = match is_hooked() {
        true => lock_or(lock, WRITE, limit, real),
        false => real(),
    };
    if answer == libc::ETIMEDOUT && lock.prefers_writers() && !is_forked_child() {
        TABLE.wake(lock.address(), READ, usize::MAX);
    }
    answer
}

hooked! {
    fn pthread_rwlock_rdlock(lock: Object<pthread_rwlock_t>) -> c_int where real() {
        lock_or(lock, READ, FOR_EVER, real)
    }

    fn pthread_rwlock_wrlock(lock: Object<pthread_rwlock_t>) -> c_int where real() {
        lock_or(lock, WRITE, FOR_EVER, real)
    }

    fn pthread_rwlock_timedrdlock(lock: Object<pthread_rwlock_t>, time: *const timespec) -> c_int
    where real() {
        lock_or(lock, READ, real_time(time), real)
    }

    fn pthread_rwlock_clockrdlock(
        lock: Object<pthread_rwlock_t>, clock: clockid_t, time: *const timespec,
    ) -> c_int where real() {
        lock_or(lock, READ, Limit(clock, Some(time)), real)
    }
}

interposed! {
    fn pthread_rwlock_timedwrlock(lock: Object<pthread_rwlock_t>, time: *const timespec) -> c_int
    where real() {
        write_or(lock, real_time(time), real)
    }

    fn pthread_rwlock_clockwrlock(
        lock: Object<pthread_rwlock_t>, clock: clockid_t, time: *const timespec,
    ) -> c_int where real() {
        write_or(lock, Limit(clock, Some(time)), real)
    }

    // The caller holds the lock, so nobody frees it before it is unlocked.
    fn pthread_rwlock_unlock(lock: Object<pthread_rwlock_t>) -> c_int where real() {
        let (prefers_writers, address) = (lock.prefers_writers(), lock.address());
        let answer = real();
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
