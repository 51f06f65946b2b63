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
use core::sync::atomic::Ordering::Relaxed;

use libc::{pthread_mutex_t, timespec};

use super::silent::must_stand;
use super::{Asked, FOR_EVER, LOCK, field, my_id, real_time, wait, wake};
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

/// The kind of a mutex that threads use.
unsafe fn kind(mutex: *mut pthread_mutex_t) -> u32 {
    // SAFETY: the caller's mutex, in glibc's layout.
    unsafe { field(mutex, KIND) }.load(Relaxed)
}

/// The thread that libc has noted as its owner; 0: none.
pub(super) unsafe fn owner(mutex: *mut pthread_mutex_t) -> u32 {
    // SAFETY: the caller's mutex, in glibc's layout.
    unsafe { field(mutex, OWNER) }.load(Relaxed)
}

/// Whether libc alone knows how to wait for it.
pub(super) unsafe fn is_special(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's mutex.
    unsafe { kind(mutex) & SPECIAL != 0 }
}

/// Whether libc refuses the calling thread to unlock it.
pub(super) unsafe fn may_not_unlock(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's mutex, in glibc's layout.
    unsafe { matches!(kind(mutex) & TYPE, RECURSIVE | ERRORCHECK) && Some(owner(mutex)) != my_id() }
}

/// Locks the mutex; the calling thread is hooked. The time is looked at if it has to wait; `real` makes libc's call.
unsafe fn lock_or(mutex: *mut pthread_mutex_t, asked: Asked, real: impl Fn() -> c_int) -> c_int {
    if !asked.has_clock() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's mutex. (Libc's attempt leaves a robust one locked that nobody can recover.)
    if unsafe { is_special(mutex) } {
        return blocking(real);
    }
    // SAFETY: the caller's mutex.
    let attempt = || unsafe { libc::pthread_mutex_trylock(mutex) };
    let first = attempt();
    if first != libc::EBUSY {
        return first;
    }
    // SAFETY: the caller's mutex, in glibc's layout. If it is the caller's own, libc's call fails at once.
    if unsafe { kind(mutex) & TYPE == ERRORCHECK && Some(owner(mutex)) == my_id() } {
        return blocking(real);
    }
    count_parked();
    // SAFETY: the caller's time.
    let Some(until) = (unsafe { asked.until() }) else {
        return libc::EINVAL;
    };
    let address = mutex as usize;
    let answer = wait(address, LOCK, until, |_| match attempt() {
        // SAFETY: the caller's mutex.
        libc::EBUSY => unsafe { must_stand(mutex) }.map(Err),
        answer => Some(Ok(answer)),
    });
    match answer {
        None => libc::ETIMEDOUT,
        Some(Ok(answer)) => answer,
        Some(Err(stand)) => stand.waiting(address, || blocking(real)),
    }
}

hooked! {
    fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the caller's mutex.
        unsafe { lock_or(mutex, FOR_EVER, || pthread_mutex_lock::real(mutex)) }
    }

    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int {
        // SAFETY: the caller's mutex and time.
        unsafe { lock_or(mutex, real_time(time), || pthread_mutex_timedlock::real(mutex, time)) }
    }

    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int {
        let asked = Asked(clock, Some(time));
        // SAFETY: the caller's mutex and time.
        unsafe { lock_or(mutex, asked, || pthread_mutex_clocklock::real(mutex, clock, time)) }
    }
}

interposed! {
    fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the caller's mutex, which it owns, so nobody frees it before it is unlocked.
        unsafe {
            let stays_locked =
                kind(mutex) & TYPE == RECURSIVE && field(mutex, COUNT).load(Relaxed) > 1;
            let answer = pthread_mutex_unlock::real(mutex);
            if answer == 0 && !stays_locked {
                wake(mutex as usize, LOCK, 1);
            }
            answer
        }
    }
}
