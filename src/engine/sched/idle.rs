//! The idle word: how many processors sleep, how many are awake and how many of these search for
//! work, in one atomic word.
//!
//! It answers one question without a lock: must a thread that has just made work ready wake a
//! sleeper? The argument that no wake-up is lost is in `idle.md` beside this file. A list of
//! sleepers, last in first out, under a lock, decides *which* sleeper is woken; this word decides
//! *whether* one is.
//!
//! # Use
//!
//! ```text
//!     readier   push
//!               claim_wake(): no  → done: nobody sleeps, or somebody searches
//!                             yes → lock; pop the last sleeper; unlock; wake it as a searcher
//!
//!     searcher  found work
//!               found() and there is more: go on as a readier                        (the ramp)
//!
//!     sleeper   lock; push itself to the list; announce_sleep(was_searching); unlock
//!               look again everywhere (queues, timers, events): nothing there → block
//!               something there, or woken by a deadline → get up
//!
//!     get up    lock
//!               not in the list               → a waker chose us: its wake-up makes us a searcher
//!               in the list, cancel_sleep()   → remove itself; unlock; go on as a searcher
//!               in the list, and it refuses   → unlock; block: a waker is on its way to the list
//!
//!     retire    lock; not into the list; retire(was_searching); unlock; more to do? as a readier
//!
//!     resizer   fewer: lock; in the list and withdraw() → out of the list; unlock
//!               more:  lock; push the new one; appear(); unlock; work to do? as a readier
//! ```
//!
//! # Invariants
//!
//! 1. While the lock is free: sleepers in the list = `sleeping` + claims whose pop is still to
//!    come. So a claimer always finds a sleeper. A sleeper that finds `sleeping` = 0 while it is in
//!    the list must not leave: the claimers have promised to wake every sleeper in it. Hence
//!    `cancel_sleep` can be refused. (A sleeper that lay down later may be popped in our place:
//!    then it searches instead of us, and our count is still right.)
//! 2. A sleeper gets up as a searcher, however it gets up. A searcher ends by [`IdleWord::found`],
//!    [`IdleWord::announce_sleep`] or [`IdleWord::retire`], nothing else (a searcher that stops for
//!    another reason says `found`).
//! 3. From the moment of a claim there is a searcher, though no processor runs yet: one wake-up at
//!    a time is under way.
//! 4. Every existing processor is asleep or awake; a claimed one is awake.
//!
//! # Memory orderings
//!
//! All changes are Relaxed read-modify-writes. Two things matter: their one modification order, and
//! two SeqCst fences. One fence is in `announce_sleep` (and in `appear` and `retire`, which are
//! like it) between the announcement and the re-check; the other is in `claim_wake` between the
//! push (or `found`) and the look at the word. They are each other's partners. Data travels by the
//! queues and by the list's lock.

use crate::engine::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    const_fn, fence,
};
use crate::engine::sys::perturb;

/// One sleeping processor: the lowest 16 bits count them. (There are at most 4096.)
const SLEEPER: u64 = 1;
/// One searching processor: the next 16 bits count them.
const SEARCHER: u64 = 1 << 16;
/// One processor that is awake, searching or not: the high half counts them.
const AWAKE: u64 = 1 << 32;

/// Sleeping, searching and waking processors. See the file's header.
#[derive(Debug)]
pub(crate) struct IdleWord {
    word: AtomicU64,
}

impl IdleWord {
    const_fn! {
        /// A word with `awake` processors awake; none sleeps and none searches.
        pub(crate) const fn new(awake: u32) -> Self {
            Self {
                word: AtomicU64::new(awake as u64 * AWAKE),
            }
        }
    }

    // ---- a processor out of work ----

    /// Becomes a searcher, unless there are `limit` already.
    #[must_use]
    pub(crate) fn start_search(&self, limit: u32) -> bool {
        self.word
            .fetch_update(Relaxed, Relaxed, |w| {
                (searching(w) < limit).then(|| w + SEARCHER)
            })
            .is_ok()
    }

    /// A searcher stops searching. True: it was the last, and must see whether another is needed
    /// ([`Self::claim_wake`]): readiers relied on it and it can do only one thing at a time. It may
    /// look for work first, after a SeqCst fence (partner: in `claim_wake`).
    #[must_use = "the last searcher must call claim_wake"]
    pub(crate) fn found(&self) -> bool {
        let before = searching(self.word.fetch_sub(SEARCHER, Relaxed));
        if before == 0 {
            crate::engine::sys::die("who does not search has found something");
        }
        before == 1
    }

    /// Called under the list's lock, with ourselves in the list. Afterwards the caller must check
    /// everything again before it blocks.
    pub(crate) fn announce_sleep(&self, was_searching: bool) {
        self.stop(was_searching, SLEEPER);
        // Partner: the fence in `claim_wake`.
        fence(SeqCst);
    }

    /// This is one step, so that nobody sees us in neither state, or in both.
    fn stop(&self, was_searching: bool, then: u64) {
        let gone = if was_searching {
            AWAKE + SEARCHER
        } else {
            AWAKE
        };
        let before = self.word.fetch_add(then.wrapping_sub(gone), Relaxed);
        perturb::point("idle: announced");
        if awake(before) == 0 || was_searching && searching(before) == 0 {
            crate::engine::sys::die("who is not awake, or does not search, goes to sleep");
        }
    }

    /// Called under the list's lock, with ourselves in the list. True: we sleep no more, are a
    /// searcher, and leave the list. False: every sleeper in the list is going to be woken; stay in
    /// it and block.
    #[must_use]
    pub(crate) fn cancel_sleep(&self) -> bool {
        self.sleeper_to_searcher(|_| true)
    }

    // ---- a thread that has made work ready ----

    /// Called after the push. True: the caller, nobody else, must pop one sleeper from the list and
    /// wake it, as a searcher.
    #[must_use = "true means that the caller must wake one sleeper"]
    pub(crate) fn claim_wake(&self) -> bool {
        // Partner: the fence in `announce_sleep`.
        fence(SeqCst);
        self.sleeper_to_searcher(|w| searching(w) == 0)
    }

    /// One sleeper becomes a searcher, if there is one and `allowed`.
    fn sleeper_to_searcher(&self, allowed: impl Fn(u64) -> bool) -> bool {
        perturb::point("idle: claiming");
        self.word
            .fetch_update(Relaxed, Relaxed, |w| {
                (sleeping(w) > 0 && allowed(w)).then(|| w - SLEEPER + SEARCHER + AWAKE)
            })
            .is_ok()
    }

    // ---- more processors, or fewer ----

    /// Called under the list's lock, not in the list: a processor that was awake goes out of use.
    /// Afterwards the caller must check everything as a sleeper does, and wake a sleeper for any
    /// work that it sees.
    pub(crate) fn retire(&self, was_searching: bool) {
        self.stop(was_searching, 0);
        // Partner: the fence in `claim_wake`: readiers relied on us, if we searched.
        fence(SeqCst);
    }

    /// Called under the list's lock: a sleeper in it goes out of use, and leaves the list. False:
    /// all sleepers in the list are going to be woken.
    #[must_use]
    pub(crate) fn withdraw(&self) -> bool {
        self.word
            .fetch_update(Relaxed, Relaxed, |w| (sleeping(w) > 0).then(|| w - SLEEPER))
            .is_ok()
    }

    /// Called under the list's lock, with a new processor in the list, asleep. Afterwards the
    /// caller must check everything, as any sleeper does, and wake a sleeper for any work that it
    /// sees.
    pub(crate) fn appear(&self) {
        self.word.fetch_add(SLEEPER, Relaxed);
        // Partner: the fence in `claim_wake`: a readier may have found nobody to wake.
        fence(SeqCst);
    }

    // ---- for all threads ----

    /// Whether nobody sleeps or searches. A hint.
    #[inline(always)]
    pub(crate) fn is_everybody_busy(&self) -> bool {
        self.word.load(Relaxed) as u32 == 0
    }

    /// How many processors are awake, woken ones that do not run yet included.
    pub(crate) fn awake(&self) -> u32 {
        awake(self.word.load(Relaxed))
    }

    /// How many processors sleep.
    pub(crate) fn sleeping(&self) -> u32 {
        sleeping(self.word.load(Relaxed))
    }

    /// How many processors search.
    pub(crate) fn searching(&self) -> u32 {
        searching(self.word.load(Relaxed))
    }
}

fn sleeping(word: u64) -> u32 {
    word as u16 as u32
}

fn searching(word: u64) -> u32 {
    (word >> 16) as u16 as u32
}

fn awake(word: u64) -> u32 {
    (word >> 32) as u32
}
