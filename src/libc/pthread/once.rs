//! `pthread_once`: ours for all threads.
//!
//! | the control word | |
//! |---|---|
//! | 0 | nobody has called yet, or a call has unwound |
//! | process id × 4 + 1 | a thread of that process calls; in a forked child that thread is gone, and another calls again |
//! | 2 | done, as in glibc |
//!
//! Orderings: "done" is stored with Release and read with Acquire.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::pthread_once_t;

use super::{Object, futex_wait, futex_wake};
use crate::libc::{around, is_on};
use crate::sys::unwinding::Next;

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
