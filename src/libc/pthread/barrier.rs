//! Barriers. A private one is ours for all threads: the memory is laid out anew.
//!
//! | offset | ours | glibc's |
//! |---|---|---|
//! | 0 | how many threads have come in this round | |
//! | 4 | the round: the futex on which threads wait | |
//! | 8 | how many threads it takes | the same |
//! | 12 | [`OURS`] | 0, or 128: process-shared |
//! | 16 | how many threads are inside: the futex on which the thread waits that destroys it | |
//!
//! A thread comes by one change of the first two words. The last one of a round empties the count and begins the
//! next round, which lets the others go. Threads may come for the next round before the others have left.
//!
//! A barrier may be destroyed, and its memory freed, as soon as one thread has returned. So a thread takes itself out
//! of `inside` as its last step, and `pthread_barrier_destroy` waits for that. Wakers know the memory by its address only.
//!
//! Orderings: threads come with AcqRel and see the new round with Acquire, so what they did before the barrier
//! happens before what they do after it. A thread leaves with Release, and the one that destroys sees that with Acquire.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use libc::{pthread_barrier_t, pthread_barrierattr_t};

use super::{field, futex_wait, futex_wake};
use crate::libc::{interposed, is_on};

const ROUND: usize = 4;
const COUNT: usize = 8;
const MARK: usize = 12;
const INSIDE: usize = 16;

/// No value of glibc's.
const OURS: u32 = 0x6772_6e74;

/// The round, and below it how many threads have come in it.
unsafe fn state<'a>(barrier: *mut pthread_barrier_t) -> &'a AtomicU64 {
    // SAFETY: the caller's barrier, which is aligned to eight bytes. x86-64 has the lower half first, and an access to
    // one half agrees with those to both.
    unsafe { AtomicU64::from_ptr(barrier.cast()) }
}

unsafe fn is_ours(barrier: *mut pthread_barrier_t) -> bool {
    // SAFETY: the caller's barrier.
    unsafe { field(barrier, MARK) }.load(Relaxed) == OURS
}

interposed! {
    fn pthread_barrier_init(
        barrier: *mut pthread_barrier_t,
        attributes: *const pthread_barrierattr_t,
        count: c_uint,
    ) -> c_int {
        let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
        // SAFETY: the caller's places.
        unsafe {
            if !attributes.is_null() {
                libc::pthread_barrierattr_getpshared(attributes, &mut shared);
            }
            let is_acceptable = (1..=c_int::MAX as c_uint).contains(&count);
            if shared != libc::PTHREAD_PROCESS_PRIVATE || !is_acceptable || !is_on() {
                return pthread_barrier_init::real(barrier, attributes, count);
            }
            state(barrier).store(0, Relaxed);
            field(barrier, COUNT).store(count, Relaxed);
            field(barrier, MARK).store(OURS, Relaxed);
            field(barrier, INSIDE).store(0, Relaxed);
        }
        0
    }

    fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
        // SAFETY: the caller's barrier, which stays as long as this thread is inside.
        unsafe {
            if !is_ours(barrier) {
                return crate::engine::facade::blocking(|| pthread_barrier_wait::real(barrier));
            }
            let (state, inside) = (state(barrier), field(barrier, INSIDE));
            let count = u64::from(field(barrier, COUNT).load(Relaxed));
            inside.fetch_add(1, Relaxed);
            let next = |state: u64| match state as u32 as u64 + 1 == count {
                // Nobody has come in the next round.
                true => (state >> 32).wrapping_add(1) << 32,
                false => state + 1,
            };
            // AcqRel: partners are the other threads of the round, here and below.
            let before = state
                .fetch_update(AcqRel, Relaxed, |state| Some(next(state)))
                .unwrap_or_default();
            let (round, mine) = (field(barrier, ROUND), (before >> 32) as u32);
            let is_last = next(before) as u32 == 0;
            if is_last {
                futex_wake(round, u32::MAX);
            } else {
                // Acquire: partner is the AcqRel above.
                while round.load(Acquire) == mine {
                    futex_wait(round, mine);
                }
            }
            // Release: partner is the Acquire of the thread that destroys the barrier.
            if inside.fetch_sub(1, Release) == 1 {
                futex_wake(inside, 1);
            }
            match is_last {
                true => libc::PTHREAD_BARRIER_SERIAL_THREAD,
                false => 0,
            }
        }
    }

    fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
        // SAFETY: the caller's barrier.
        unsafe {
            if !is_ours(barrier) {
                return crate::engine::facade::blocking(|| pthread_barrier_destroy::real(barrier));
            }
            let inside = field(barrier, INSIDE);
            loop {
                // Acquire: partner is the Release with which a thread leaves.
                match inside.load(Acquire) {
                    0 => break,
                    some => futex_wait(inside, some),
                }
            }
            field(barrier, MARK).store(0, Relaxed);
        }
        0
    }
}
