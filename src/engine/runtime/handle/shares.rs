//! Who still needs a thread's data: [`Shares`], a count of owners and two flags, in one word.
//!
//! The thread, its joiner and each handle own a share of one piece of memory (`runtime::packet`), and who gives up
//! the last share frees it. The thread's result goes earlier: when it has *finished*, and its joiner has *gone*
//! without it, the second of the two drops it.
//!
//! | step | by | the word | then |
//! |---|---|---|---|
//! | `new` | the spawner | two shares | |
//! | `add` | an owner | one share more | |
//! | `finish` | the thread | `FINISHED` | was `GONE` there? The thread drops the result |
//! | `leave` | the joiner | `FINISHED` is there: nothing | it drops the result, and then gives up its share |
//! | | | else `GONE`, and one share less, in one step | |
//! | `give_up` | an owner | one share less | was it the last? It frees the memory |
//!
//! A thread whose result needs no dropping does not finish: then nobody drops the result, and that is right.
//!
//! # Invariants
//! 1. One thread sets each flag, once, and owns a share until after that.
//! 2. An owner that finds its share to be the only one stays alone: only owners make new ones. So it gives that up without
//!    an instruction that locks.
//!
//! # Memory orderings
//! - Each owner's accesses come before the freeing: Release in `leave` and `give_up`, Acquire by who frees.
//! - The result is written before it is dropped: Release in `finish`, Acquire in `leave`.

use crate::engine::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    const_fn, fence,
};
use crate::engine::sys::{perturb, sanitizer};

/// The thread's result is there, and needs dropping.
const FINISHED: usize = 1;
/// The joiner has gone without the result.
const GONE: usize = 2;
const SHARE: usize = 4;

/// The word. See the file's header.
pub(crate) struct Shares(AtomicUsize);

/// What is left to do for a joiner that goes.
#[must_use]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// To free the memory.
    Memory,
    /// To drop the result, and to give up the share, which the joiner still owns.
    Result,
}

impl Shares {
    const_fn! {
        /// The shares of a thread and of its joiner.
        pub(crate) const fn new() -> Shares {
            Shares(AtomicUsize::new(2 * SHARE))
        }
    }

    const_fn! {
        /// The share of a thread that has no joiner.
        pub(crate) const fn of_nobodys_thread() -> Shares {
            Shares(AtomicUsize::new(SHARE | GONE))
        }
    }

    /// One owner more.
    pub(crate) fn add(&self) {
        // Relaxed: the caller is an owner, as the new one then is.
        if self.0.fetch_add(SHARE, Relaxed) > usize::MAX / 2 {
            crate::engine::sys::die("a thread has too many handles");
        }
    }

    /// One owner less. True: the caller frees the memory.
    #[inline]
    #[must_use = "true means that the memory is the caller's to free"]
    pub(crate) fn give_up(&self) -> bool {
        // Acquire: what the other owners did; partner: Release below, and in `leave`.
        if Shares::is_one(self.0.load(Acquire)) {
            return true;
        }
        perturb::point("shares: not alone");
        // Release: what the caller did; partners: Acquire above, below, and in `leave`.
        let is_last = Shares::is_one(self.0.fetch_sub(SHARE, Release));
        if is_last && sanitizer::IS_TSAN {
            self.0.load(Acquire); // to it a fence is nothing
        } else if is_last {
            fence(Acquire);
        }
        is_last
    }

    /// The thread has left its result, which needs dropping. True: nobody else will drop it.
    #[must_use = "true means that the result is the caller's to drop"]
    pub(crate) fn finish(&self) -> bool {
        // Release: the result; partner: Acquire in `leave`.
        self.0.fetch_or(FINISHED, Release) & GONE != 0
    }

    /// The joiner goes without the result.
    pub(crate) fn leave(&self) -> Left {
        // Acquire, each time: the result; partner: Release in `finish`. Or what the other owners did; partner: Release
        // in `give_up`.
        let mut seen = self.0.load(Acquire);
        loop {
            if seen & FINISHED != 0 {
                return Left::Result;
            }
            if Shares::is_one(seen) {
                return Left::Memory;
            }
            perturb::point("shares: leaving");
            let next = seen - SHARE + GONE;
            // Release: what the caller did; partner: Acquire in `give_up`.
            match self.0.compare_exchange(seen, next, Release, Acquire) {
                Ok(_) => return Left::Nothing,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the joiner has gone: then nobody waits for the end. A no may be out of date.
    #[inline]
    pub(crate) fn has_no_joiner(&self) -> bool {
        self.0.load(Relaxed) & GONE != 0
    }

    /// For reports: how many owners there are, by the word's value.
    pub(crate) fn count(word: usize) -> usize {
        word / SHARE
    }

    fn is_one(word: usize) -> bool {
        Shares::count(word) == 1
    }
}
