//! Barriers and `pthread_once`: ours for all threads, built on futexes, which park.
//!
//! # `pthread_once`
//!
//! | the control word | |
//! |---|---|
//! | 0 | nobody has called yet, or a call has unwound |
//! | process id × 4 + 1 | a thread of that process calls; in a forked child that thread is gone, and another calls again |
//! | 2 | done, as in glibc |
//!
//! Orderings: "done" is stored with Release and read with Acquire.
//!
//! # Barriers
//!
//! The memory of a private one is laid out anew:
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

use libc::{PTHREAD_PROCESS_PRIVATE, pthread_barrier_t, pthread_barrierattr_t, pthread_once_t};

use super::{Object, futex_wait, futex_wake};
use crate::engine::facade::blocking;
use crate::libc::is_on;
use crate::sys::libraries::Next;

const DONE: u32 = 2;

/// Says how the call has ended. The number is the control word's address, or 0: it was libc's.
fn end(word: usize, how: u32) {
    if word != 0 {
        // The control word is there for as long as the call has not ended.
        let word = Object(word as *mut pthread_once_t).word(0);
        // Release: partner is the Acquire of those that find it done. The word may be gone afterwards.
        word.store(how, Release);
        futex_wake(word, u32::MAX);
    }
}

extern "C" fn done(word: usize, _: c_int) -> c_int {
    end(word, DONE);
    0
}

extern "C" fn unwound(word: usize) {
    end(word, 0);
}

around! {
    fn pthread_once(
        control: Object<pthread_once_t>, initialise: unsafe extern "C-unwind" fn(),
    ) -> c_int {
        before {
            let word = control.word(0);
            // Acquire: partner is the Release in `end`.
            if word.load(Acquire) & DONE != 0 {
                return Next::answer(0);
            }
            if !is_on() {
                return Next::call(pthread_once::target(), 0);
            }
            let calling = std::process::id() << 2 | 1;
            loop {
                // Acquire: as above.
                match word.load(Acquire) {
                    done if done & DONE != 0 => return Next::answer(0),
                    busy if busy == calling => futex_wait(word, busy),
                    free => {
                        // Acquire: what a call that has unwound did is seen by the next.
                        if word.compare_exchange(free, calling, Acquire, Relaxed).is_ok() {
                            // It takes no arguments, and does not look at those that it gets.
                            return Next::call(initialise as *const (), control.address());
                        }
                    }
                }
            }
        }
        after done,
        unwound unwound,
    }
}

const ROUND: usize = 4;
const COUNT: usize = 8;
const MARK: usize = 12;
const INSIDE: usize = 16;

/// No value of glibc's.
const OURS: u32 = 0x6772_6e74;

impl Object<pthread_barrier_t> {
    /// The round, and below it how many threads have come in it.
    fn state<'a>(self) -> &'a AtomicU64 {
        // SAFETY: a valid object, aligned to eight bytes. The lower half comes first, and an access to one half agrees with
        // those to both.
        unsafe { AtomicU64::from_ptr(self.0.cast()) }
    }

    fn is_ours(self) -> bool {
        self.load(MARK) == OURS
    }
}

interposed! {
    fn pthread_barrier_init(
        barrier: Object<pthread_barrier_t>, attributes: *const pthread_barrierattr_t, count: c_uint,
    ) -> c_int where real() {
        let mut shared = PTHREAD_PROCESS_PRIVATE;
        if !attributes.is_null() {
            // SAFETY: the caller's attributes, and a place of ours.
            unsafe { libc::pthread_barrierattr_getpshared(attributes, &mut shared) };
        }
        let is_acceptable = (1..=c_int::MAX as c_uint).contains(&count);
        if shared != PTHREAD_PROCESS_PRIVATE || !is_acceptable || !is_on() {
            return real();
        }
        barrier.state().store(0, Relaxed);
        for (offset, value) in [(COUNT, count), (MARK, OURS), (INSIDE, 0)] {
            barrier.word(offset).store(value, Relaxed);
        }
        0
    }

    // The barrier stays as long as this thread is inside.
    fn pthread_barrier_wait(barrier: Object<pthread_barrier_t>) -> c_int where real() {
        if !barrier.is_ours() {
            return blocking(real);
        }
        let (round, inside) = (barrier.word(ROUND), barrier.word(INSIDE));
        let count = u64::from(barrier.load(COUNT));
        inside.fetch_add(1, Relaxed);
        let next = |state: u64| match u64::from(state as u32) + 1 == count {
            // Nobody has come in the next round.
            true => (state >> 32).wrapping_add(1) << 32,
            false => state + 1,
        };
        // AcqRel: partners are the other threads of the round, here and below.
        let before = barrier
            .state()
            .fetch_update(AcqRel, Relaxed, |state| Some(next(state)))
            .unwrap_or_default();
        let mine = (before >> 32) as u32;
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
        if is_last { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
    }

    fn pthread_barrier_destroy(barrier: Object<pthread_barrier_t>) -> c_int where real() {
        if !barrier.is_ours() {
            return blocking(real);
        }
        let inside = barrier.word(INSIDE);
        // Acquire: partner is the Release with which a thread leaves.
        while let some @ 1.. = inside.load(Acquire) {
            futex_wait(inside, some);
        }
        barrier.word(MARK).store(0, Relaxed);
        0
    }
}
