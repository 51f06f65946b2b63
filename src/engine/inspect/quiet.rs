//! Tells the reporter when threads have become quiet, so that it looks for a deadlock.
//!
//! | word | the reporter |
//! |---|---|
//! | `UNINTERESTED` | is at work, or no new wait can make a deadlock, or nobody looks for one |
//! | `INTERESTED` | sleeps on the word |
//! | `TOLD` | is to look |
//!
//! No deadlock is overlooked: the reporter looks once more after it has become interested. A thread that waits later
//! finds it so.

use crate::engine::atomic::{AtomicU32, Ordering};
use crate::engine::sys::futex;

const UNINTERESTED: u32 = 0;
const INTERESTED: u32 = 1;
const TOLD: u32 = 2;

static WORD: AtomicU32 = AtomicU32::new(UNINTERESTED);

/// A kernel thread begins to wait, or a cluster has come to rest.
#[inline]
pub(crate) fn tell() {
    if WORD.load(Ordering::Relaxed) == INTERESTED {
        tell_now();
    }
}

/// The reporter is to look at its other duties. It may be in a signal handler that the caller is.
#[cold]
pub(crate) fn tell_now() {
    // Release: what the caller has done before; partner: Acquire in `wait`.
    WORD.store(TOLD, Ordering::Release);
    futex::wake(&WORD, 1);
}

/// The reporter is interested from now on.
pub(crate) fn be_interested() {
    // SeqCst: the look that follows comes after it. A waiter's record is written before `tell`, whose load
    // may be older; the reporter then looks again when the next thread waits, or the cluster rests.
    let _ = WORD.compare_exchange(
        UNINTERESTED,
        INTERESTED,
        Ordering::SeqCst,
        Ordering::Relaxed,
    );
}

/// The reporter sleeps until it is told something, or until `deadline` (monotonic nanoseconds), and is not
/// interested any more. Returns whether it was told.
pub(crate) fn wait(deadline: Option<u64>) -> bool {
    loop {
        let seen = WORD.load(Ordering::Relaxed);
        if seen == TOLD || deadline.is_some_and(|at| crate::engine::sys::clock::now() >= at) {
            break;
        }
        futex::wait(&WORD, seen, deadline);
    }
    // Acquire: partner: Release in `tell_now`.
    WORD.swap(UNINTERESTED, Ordering::Acquire) == TOLD
}
