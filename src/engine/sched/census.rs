//! How many green threads of a cluster live, and how the thread that closes the cluster learns that the
//! last one has ended.
//!
//! A spawn and an end are each one plain store, into a count of the processor where they happen. There is no
//! number of the living that all would write: it is the sum of the spawns less the sum of the ends, and is taken
//! only when it is asked for. Threads that own no processor count in a shared place, `outside`.
//!
//! The closer says that it closes, makes a barrier, and looks; then it sleeps until it is woken, and looks
//! again. A thread that has ended is counted by its run loop, which then asks whether the cluster closes,
//! and only if so whether anybody lives:
//!
//! ```text
//!   end                                     closer
//!   ended += 1                              closing = true
//!   compiler fence                          membarrier
//!   closing? then: fence, sums              fence, sums
//!   nobody lives: wake the closer           somebody lives: sleep
//! ```
//!
//! | an end whose question found | is seen by |
//! |---|---|
//! | `closing` not set | the closer, and all that make their fence after the barrier |
//! | `closing` set | any thread that makes its fence later, be it the closer or another end |
//!
//! Invariants:
//! 1. A thread's spawn is counted before the thread can run, its end after all that it does, its own spawns
//!    included; and the end before the question.
//! 2. Ends are counted with Release, and all are summed before any spawn is, with an Acquire fence between. So with an
//!    end the sums have its spawn, and what its thread has spawned: their difference is never negative. A spawn
//!    that is seen too late only makes a sum too small, so it needs no order of its own.
//! 3. If the closer finds no difference, no thread lives. The spawns in its sum are those of the threads whose ends are
//!    in it, and these have spawned nobody else (2). It knows of every spawn from outside: nobody else has
//!    the runtime any more. So nobody is left who could spawn a thread. What the threads did comes before
//!    what the closer does next.
//! 4. The closer does not sleep for ever. Of all that make a fence and sum while the cluster closes, the last to
//!    make its fence sees every end, by the table. If it is the closer, it does not sleep; if not, it wakes the
//!    closer. (A wake-up that comes before the sleep ends the sleep at once: `sched::park`.)
//! 5. A wake-up may come too early: an end may see `closing` and not see a spawn from outside that came before. So
//!    the closer looks again.
//!
//! The fence before the sums cannot be left to the membarrier: of two threads that end at once after it, on two
//! processors, neither might see the other's count.

use crate::engine::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, const_fn, fence};
use crate::engine::sys::{kernel_thread, perturb};

/// A count that one owner increments and everybody reads.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const_fn! {
        pub(crate) const fn new() -> Counter {
            Counter(AtomicU64::new(0))
        }
    }

    /// Called by the owner only: no locked instruction.
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        let count = self.0.load(Ordering::Relaxed) + count;
        // Release: a thread that sees an end sees what came before it; partner: the Acquire fence in `Census::live`.
        // (Other counts order nothing, and share this code.)
        self.0.store(count, Ordering::Release);
    }

    /// Called by any thread.
    pub(crate) fn add_shared(&self, count: u64) {
        // Release: as in `add`.
        self.0.fetch_add(count, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The spawns and the ends in one place.
pub(crate) struct Counts {
    pub(crate) spawned: Counter,
    pub(crate) ended: Counter,
}

impl Counts {
    const_fn! {
        pub(crate) const fn new() -> Counts {
            Counts {
                spawned: Counter::new(),
                ended: Counter::new(),
            }
        }
    }
}

/// What a cluster has of this, beside the counts of its processors.
pub(crate) struct Census {
    /// Of threads without a processor: shared.
    pub(crate) outside: Counts,
    /// A thread waits for the last green thread to end.
    closing: Closing,
}

/// It lies apart: each end reads it, while others spawn from outside.
#[repr(align(128))]
struct Closing(AtomicBool);

impl Census {
    const_fn! {
        pub(crate) const fn new() -> Census {
            Census {
                outside: Counts::new(),
                closing: Closing(AtomicBool::new(false)),
            }
        }
    }

    /// How many green threads have been spawned and have not ended. `inside` goes through the counts of all
    /// processors, those too that have come since it was last called.
    pub(crate) fn live<'a, I: Iterator<Item = &'a Counts>>(&self, inside: impl Fn() -> I) -> usize {
        let sum = |count: fn(&Counts) -> u64| {
            let inside = inside().map(count).sum::<u64>();
            inside + count(&self.outside)
        };
        let ended = sum(|counts| counts.ended.get());
        // Acquire: with an end comes the spawn (invariant 2); partner: Release in `Counter::add` and
        // `Counter::add_shared`.
        fence(Ordering::Acquire);
        let spawned = sum(|counts| counts.spawned.get());
        (spawned - ended) as usize
    }

    /// A green thread has ended, and been counted. True: it was the last of a closing cluster, or may have been, and
    /// the caller wakes the closer.
    #[inline]
    pub(crate) fn was_last<'a, I: Iterator<Item = &'a Counts>>(
        &self,
        inside: impl Fn() -> I,
    ) -> bool {
        // SeqCst: partner: the barrier in `close`: the closer sees our count, or we see that it closes.
        compiler_fence(Ordering::SeqCst);
        self.closing.0.load(Ordering::Relaxed) && self.is_drained(inside)
    }

    #[cold]
    fn is_drained<'a, I: Iterator<Item = &'a Counts>>(&self, inside: impl Fn() -> I) -> bool {
        // SeqCst: of two that sum at once, two ends or an end and the closer, one sees the other's count; partner:
        // itself. (For the closer its barrier would do.)
        fence(Ordering::SeqCst);
        self.live(inside) == 0
    }

    /// Returns when every green thread has ended. `wait` returns after [`was_last`](Census::was_last) has been true
    /// for somebody. Nobody spawns from outside any more.
    pub(crate) fn close<'a, I: Iterator<Item = &'a Counts>>(
        &self,
        inside: impl Fn() -> I,
        wait: impl Fn(),
    ) {
        self.closing.0.store(true, Ordering::Relaxed);
        perturb::point("close: closing");
        // Partner: the compiler fence in `was_last`: a thread that does not see `closing` has counted before our sums.
        kernel_thread::barrier();
        while !self.is_drained(&inside) {
            wait();
        }
    }
}
