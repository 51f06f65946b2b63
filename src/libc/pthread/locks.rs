//! Mutexes, reader-writer locks, semaphores.
//!
//! glibc's mutex is a word, which libc's functions change, and the fields that are read here:
//!
//! | offset in a mutex | |
//! |---|---|
//! | 4 | how many times a recursive one is locked |
//! | 8 | the name of the thread that owns it; 0: nobody |
//! | 16 | its kind |
//!
//! | in a reader-writer lock | |
//! |---|---|
//! | 24 | the name of the thread that has it for writing |
//! | 28 | not 0: process-shared |
//! | 48 | which threads it prefers |
//!
//! | in a semaphore | |
//! |---|---|
//! | 8 | not 0: process-shared; semaphores that have names are |
//!
//! The place of a mutex's kind is fixed by the static initialisers that programs have. The owner is a green thread's
//! own name, in its thread-local block, so the thread can go to another kernel thread meanwhile. A thread that locks a normal
//! mutex twice waits for ever, as in libc.
//!
//! A thread that gives a reader-writer lock back wakes all that wait to read, and the first that waits to write; they
//! compete as in libc. A lock that prefers writers (`PREFER_WRITER_NONRECURSIVE`) wakes the first
//! writer, and readers only if there is none. A reader that comes while a green writer waits for such a lock queues
//! behind it. A writer that gives up lets the readers look again, on any thread: libc refuses such a lock to readers
//! for as long as one of its own writers waits.
//!
//! `sem_post` is the only function of this folder that may be called in a signal handler: the table defers
//! wake-ups that a handler cannot make (`inside`).

use core::ffi::c_int;

use libc::{CLOCK_REALTIME, clockid_t, pthread_mutex_t, pthread_rwlock_t, sem_t, timespec};

use super::condition::must_stand;
use super::{FOR_EVER, LOCK, Libcs, Limit, Object, POST, READ, TABLE, WRITE, my_id, wait, wake};
use crate::engine::facade::{blocking, is_forked_child};
use crate::libc::{addresses::Events, count_parked, errno, fail, in_kernel, is_hooked, set_errno};

/// Declares the three forms of a function that waits for an object: for ever, until the real clock shows a time, and until some
/// clock does.
macro_rules! waiting {
    ($wait:ident($Object:ty): $for_ever:ident, $timed:ident, $clocked:ident) => {
        hooked! {
            fn $for_ever(object: Object<$Object>) -> c_int where real() {
                $wait(object, FOR_EVER, &real)
            }

            fn $timed(object: Object<$Object>, time: *const timespec) -> c_int where real() {
                $wait(object, Limit(CLOCK_REALTIME, Some(time)), &real)
            }

            fn $clocked(object: Object<$Object>, clock: clockid_t, time: *const timespec) -> c_int
            where real() {
                $wait(object, Limit(clock, Some(time)), &real)
            }
        }
    };
}

const COUNT: usize = 4;
const OWNER: usize = 8;
const KIND: usize = 16;

/// The type, in the kind's lowest bits.
const TYPE: u32 = 3;
const RECURSIVE: u32 = libc::PTHREAD_MUTEX_RECURSIVE as u32;
const ERRORCHECK: u32 = libc::PTHREAD_MUTEX_ERRORCHECK as u32;
/// Robust, inherits a priority, has a ceiling, process-shared.
const SPECIAL: u32 = 16 | 32 | 64 | 128;

impl Object<pthread_mutex_t> {
    /// The thread that libc has noted as its owner; 0: none.
    pub(super) fn owner(self) -> u32 {
        self.load(OWNER)
    }

    fn is_mine(self) -> bool {
        Some(self.owner()) == my_id()
    }

    /// Whether libc alone knows how to wait for it.
    pub(super) fn is_special(self) -> bool {
        self.load(KIND) & SPECIAL != 0
    }

    /// Whether libc refuses the calling thread to unlock it.
    pub(super) fn may_not_unlock(self) -> bool {
        matches!(self.load(KIND) & TYPE, RECURSIVE | ERRORCHECK) && !self.is_mine()
    }
}

/// Locks the mutex; the calling thread is hooked. The time is looked at if it has to wait; `real` makes libc's call.
fn mutex_or(mutex: Object<pthread_mutex_t>, limit: Limit, real: Libcs<'_>) -> c_int {
    if !limit.has_clock() {
        return libc::EINVAL;
    }
    // libc's attempt would leave a robust mutex locked that cannot be recovered.
    if mutex.is_special() {
        return blocking(real);
    }
    // SAFETY: a valid mutex.
    let attempt = || unsafe { libc::pthread_mutex_trylock(mutex.0) };
    let first = attempt();
    if first != libc::EBUSY {
        return first;
    }
    // If the caller owns the mutex, libc's call fails at once.
    if mutex.load(KIND) & TYPE == ERRORCHECK && mutex.is_mine() {
        return blocking(real);
    }
    count_parked();
    if !limit.is_valid() {
        return libc::EINVAL;
    }
    let answer = wait(mutex.address(), LOCK, limit, |_| match attempt() {
        libc::EBUSY => must_stand(mutex).map(Err),
        answer => Some(Ok(answer)),
    });
    match answer {
        None => libc::ETIMEDOUT,
        Some(Ok(answer)) => answer,
        Some(Err(stand)) => stand.waiting(mutex.address(), || blocking(real)),
    }
}

waiting!(mutex_or(pthread_mutex_t): pthread_mutex_lock, pthread_mutex_timedlock, pthread_mutex_clocklock);

interposed! {
    // The caller owns the mutex, so nobody frees it before it is unlocked.
    fn pthread_mutex_unlock(mutex: Object<pthread_mutex_t>) -> c_int where real() {
        operation!();
        let stays_locked = mutex.load(KIND) & TYPE == RECURSIVE && mutex.load(COUNT) > 1;
        let answer = real();
        if answer == 0 && !stays_locked {
            wake(mutex.address(), LOCK, 1);
        }
        answer
    }
}

const WRITER: usize = 24;
const RWLOCK_SHARED: usize = 28;
const PREFERENCE: usize = 48;
const PREFERS_WRITERS: u32 = 2;

impl Object<pthread_rwlock_t> {
    fn prefers_writers(self) -> bool {
        self.load(PREFERENCE) == PREFERS_WRITERS
    }
}

/// Locks it, to `READ` or to `WRITE`; the calling thread is hooked. `limit` and `real` as in `mutex`.
fn lock_or(lock: Object<pthread_rwlock_t>, to: Events, limit: Limit, real: Libcs<'_>) -> c_int {
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
    if lock.load(RWLOCK_SHARED) != 0 {
        return blocking(real);
    }
    count_parked();
    if Some(lock.load(WRITER)) == my_id() {
        return libc::EDEADLK;
    }
    if !limit.is_valid() {
        return libc::EINVAL;
    }
    let answer = wait(lock.address(), to, limit, |beside| {
        if gives_way && beside.has(WRITE) {
            return None;
        }
        Some(attempt()).filter(|&answer| answer != libc::EBUSY)
    });
    answer.unwrap_or(libc::ETIMEDOUT)
}

/// Locks it for reading.
fn read_or(lock: Object<pthread_rwlock_t>, limit: Limit, real: Libcs<'_>) -> c_int {
    lock_or(lock, READ, limit, real)
}

/// Locks it for writing, on any thread; `limit` and `real` as in `mutex`.
fn write_or(lock: Object<pthread_rwlock_t>, limit: Limit, real: Libcs<'_>) -> c_int {
    let answer = match is_hooked() {
        true => lock_or(lock, WRITE, limit, real),
        false => real(),
    };
    if answer == libc::ETIMEDOUT && lock.prefers_writers() && !is_forked_child() {
        TABLE.wake(lock.address(), READ, usize::MAX);
    }
    answer
}

waiting!(read_or(pthread_rwlock_t): pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock);

hooked! {
    fn pthread_rwlock_wrlock(lock: Object<pthread_rwlock_t>) -> c_int where real() {
        lock_or(lock, WRITE, FOR_EVER, &real)
    }
}

interposed! {
    fn pthread_rwlock_timedwrlock(lock: Object<pthread_rwlock_t>, time: *const timespec) -> c_int
    where real() {
        operation!();
        write_or(lock, Limit(CLOCK_REALTIME, Some(time)), &real)
    }

    fn pthread_rwlock_clockwrlock(
        lock: Object<pthread_rwlock_t>, clock: clockid_t, time: *const timespec,
    ) -> c_int where real() {
        operation!();
        write_or(lock, Limit(clock, Some(time)), &real)
    }

    // The caller holds the lock, so nobody frees it before it is unlocked.
    fn pthread_rwlock_unlock(lock: Object<pthread_rwlock_t>) -> c_int where real() {
        operation!();
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

const SEMAPHORE_SHARED: usize = 8;

/// Takes one; the calling thread is hooked. `real` makes libc's call.
fn take_or(semaphore: Object<sem_t>, limit: Limit, real: Libcs<'_>) -> c_int {
    if !limit.is_valid() {
        return fail(libc::EINVAL);
    }
    let errno_before = errno();
    // SAFETY: a valid semaphore. The call fails with EAGAIN only if there is none to take.
    let attempt = || unsafe { (libc::sem_trywait(semaphore.0) == 0).then_some(()) };
    if attempt().is_some() {
        return 0;
    }
    if semaphore.load(SEMAPHORE_SHARED) != 0 {
        return in_kernel(real);
    }
    count_parked();
    match wait(semaphore.address(), POST, limit, |_| attempt()) {
        Some(()) => {
            set_errno(errno_before);
            0
        }
        None if limit.has_come() => fail(libc::ETIMEDOUT),
        None => fail(libc::EINTR),
    }
}

waiting!(take_or(sem_t): sem_wait, sem_timedwait, sem_clockwait);

interposed! {
    fn sem_post(semaphore: Object<sem_t>) -> c_int where real() {
        operation!();
        let answer = real();
        if answer == 0 {
            wake(semaphore.address(), POST, 1);
        }
        answer
    }
}
