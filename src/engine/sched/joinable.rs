//! Who gives back the stack of a thread of C's: a pthread is the address of a control block, and names its thread until
//! somebody has joined or detached that. So a joinable thread that has ended keeps its stack, of which the control block is a
//! part, until then; and a thread that was joined or detached early keeps it until it has left it.
//!
//! One word in the stack decides. `0` is the stack of a thread that is none of C's: its end alone gives the stack back.
//!
//! | bit | since |
//! |---|---|
//! | `PTHREAD` | the thread is one of C's |
//! | `CLAIMED` | it is being joined, or was joined or detached: nobody else may |
//! | `LEFT` | the joiner, or who has detached it, needs the pthread no more |
//! | `ENDED` | the thread has left the stack, and its block is as good as new |
//!
//! | verb | by | the word | then |
//! |---|---|---|---|
//! | `begin` | the spawner | `PTHREAD`; detached: also `CLAIMED`, `LEFT` | |
//! | `claim` | a joiner, a detacher | `CLAIMED`, unless it is there | refused: EINVAL |
//! | `give_up` | a joiner whose time is up | not `CLAIMED` | |
//! | `leave` | who has claimed | `LEFT` | was `ENDED` there? The caller gives the stack back |
//! | `end` | the run loop | `ENDED` | was `LEFT` there, or the word 0? The run loop gives the stack back |
//! | `forget` | the next owner of the stack | 0 | |
//!
//! A joiner waits for the thread's end (`runtime::handle`) between `claim` and `leave`. That end is said on the thread's own
//! stack, so `end` may come after `leave`.
//!
//! # Invariants
//! 1. Of `leave` and `end`, which change one word, the second gives the stack back, once.
//! 2. As long as a pthread may be used, its stack belongs to its thread, or to nobody.
//!
//! # Memory orderings
//! What the thread and the run loop did with the stack comes before it is given back: AcqRel in `end` and in `leave`, which are
//! partners.

use crate::engine::atomic::{AtomicU32, Ordering::*};

const PTHREAD: u32 = 1;
const CLAIMED: u32 = 2;
const LEFT: u32 = 4;
const ENDED: u32 = 8;

#[derive(Default)]
pub(crate) struct Joinable(AtomicU32);

impl Joinable {
    /// The stack's next thread is none of C's, as far as this knows.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        // Relaxed: the stack is the caller's, who got it through a list.
        self.0.store(0, Relaxed);
    }

    /// The stack's thread, which has not begun, is one of C's.
    pub(crate) fn begin(&self, is_detached: bool) {
        let detached = if is_detached { CLAIMED | LEFT } else { 0 };
        // Relaxed: the queue publishes it to the thread, and the program its pthread to others.
        self.0.store(PTHREAD | detached, Relaxed);
    }

    /// Whether the thread is one of C's.
    pub(crate) fn is_pthread(&self) -> bool {
        self.0.load(Relaxed) & PTHREAD != 0
    }

    /// Whether the thread has been detached.
    pub(crate) fn is_detached(&self) -> bool {
        self.0.load(Relaxed) & (LEFT | ENDED) == LEFT
    }

    /// Whether the thread has left the stack.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Relaxed) & ENDED != 0
    }

    /// The caller is to join or to detach the thread. False: another thread is, or was.
    pub(crate) fn claim(&self) -> bool {
        self.0.fetch_or(CLAIMED, Relaxed) & CLAIMED == 0
    }

    /// The caller has claimed the thread, and joins it no more.
    pub(crate) fn give_up(&self) {
        self.0.fetch_and(!CLAIMED, Relaxed);
    }

    /// The caller has claimed the thread, and needs the pthread no more. True: the stack is the caller's, to give it back.
    #[must_use = "true means that the stack is the caller's"]
    pub(crate) fn leave(&self) -> bool {
        // AcqRel: partner: in `end`.
        self.0.fetch_or(LEFT, AcqRel) & ENDED != 0
    }

    /// The thread has left the stack. True: the stack is the caller's, to give it back.
    #[inline(always)]
    #[must_use = "true means that the stack is the caller's"]
    pub(crate) fn end(&self) -> bool {
        // Relaxed: the word is 0 for the whole life of a thread that is none of C's.
        // AcqRel: partner: in `leave`.
        self.0.load(Relaxed) == 0 || self.0.fetch_or(ENDED, AcqRel) & LEFT != 0
    }
}
