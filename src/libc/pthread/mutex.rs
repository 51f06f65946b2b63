//! Mutexes.
//!
//! glibc's mutex is a word, which libc's functions change, and the fields that are read here:
//!
//! | offset | |
//! |---|---|
//! | 4 | how many times a recursive one is locked |
//! | 8 | the name of the thread that owns it; 0: nobody |
//! | 16 | its kind |
//!
//! The kind's place is fixed by the static initialisers that programs have. The owner is a green thread's
//! own name, in its thread-local block, so the thread can go to another kernel thread meanwhile.
//!
//! A thread that locks a normal mutex twice waits for ever, as in libc.

use core::ffi::c_int;

use libc::{clockid_t, pthread_mutex_t, timespec};

use super::silent::must_stand;
use super::{FOR_EVER, LOCK, Limit, Object, my_id, real_time, wait, wake};
use crate::engine::facade::blocking;
use crate::libc::{count_parked, hooked, interposed};

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
fn lock_or(mutex: Object<pthread_mutex_t>, limit: Limit, real: impl Fn() -> c_int) -> c_int {
    if !limit.has_clock() {
        return libc::EINVAL;
    }
    // Libc's attempt leaves a robust one locked that nobody can recover.
    if mutex.is_special() {
        return blocking(real);
    }
    // SAFETY: a valid mutex.
    let attempt = || unsafe { libc::pthread_mutex_trylock(mutex.0) };
    let first = attempt();
    if first != libc::EBUSY {
        return first;
    }
    // If it is the caller's own, libc's call fails at once.
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

hooked! {
    fn pthread_mutex_lock(mutex: Object<pthread_mutex_t>) -> c_int where real() {
        lock_or(mutex, FOR_EVER, real)
    }

    fn pthread_mutex_timedlock(mutex: Object<pthread_mutex_t>, time: *const timespec) -> c_int
    where real() {
        lock_or(mutex, real_time(time), real)
    }

    fn pthread_mutex_clocklock(
        mutex: Object<pthread_mutex_t>, clock: clockid_t, time: *const timespec,
    ) -> c_int where real() {
        lock_or(mutex, Limit(clock, Some(time)), real)
    }
}

interposed! {
    // The caller owns the mutex, so nobody frees it before it is unlocked.
    fn pthread_mutex_unlock(mutex: Object<pthread_mutex_t>) -> c_int where real() {
        let stays_locked = mutex.load(KIND) & TYPE == RECURSIVE && mutex.load(COUNT) > 1;
        let answer = real();
        if answer == 0 && !stays_locked {
            wake(mutex.address(), LOCK, 1);
        }
        answer
    }
}
