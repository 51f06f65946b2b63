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
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{field, futex_wait, futex_wake};
use crate::unmodified::{interposed, is_on};

const DONE: u32 = 2;

/// Says how the call has ended.
struct Calling<'a>(&'a AtomicU32, u32);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        // Release: partner is the Acquire of those that find it done. The word may be gone afterwards.
        self.0.store(self.1, Release);
        futex_wake(self.0, u32::MAX);
    }
}

interposed! {
    fn pthread_once(
        control: *mut libc::pthread_once_t,
        initialise: unsafe extern "C-unwind" fn(),
    ) -> c_int {
        // SAFETY: the caller's word.
        let word = unsafe { field(control, 0) };
        // Acquire: partner is the Release in `Calling`.
        if word.load(Acquire) & DONE != 0 {
            return 0;
        }
        if !is_on() {
            // SAFETY: the caller's arguments.
            return unsafe { pthread_once::real(control, initialise) };
        }
        // SAFETY: it takes nothing and cannot fail.
        let calling = (unsafe { libc::getpid() } as u32) << 2 | 1;
        loop {
            // Acquire: as above.
            match word.load(Acquire) {
                done if done & DONE != 0 => return 0,
                busy if busy == calling => futex_wait(word, busy),
                free => {
                    // Acquire: what a call that has unwound did is seen by the next.
                    if word.compare_exchange(free, calling, Acquire, Relaxed).is_ok() {
                        let mut end = Calling(word, 0);
                        // SAFETY: the caller's function. It may unwind.
                        unsafe { initialise() };
                        end.1 = DONE;
                        return 0;
                    }
                }
            }
        }
    }
}
