//! Who has had a whole time slice stands behind who has not, but not for ever.
//!
//! A *fresh* thread is new, was woken, or gave way by itself: it may need the processor for a
//! moment only, and somebody may be waiting for what it does. A *preempted* one computes. Where
//! both wait, a fresh one goes first; else it would wait for as many time slices as threads
//! compute.
//!
//! *Aging*: when those preempted have been passed over for [`AGING`], one of them goes first. So
//! beside any number of fresh threads the n-th of those preempted is taken from its queue after n ×
//! `AGING` and 2n looks at the queue, at the latest.
//!
//! The word says since when they have been passed over, on the monotonic clock.
//!
//! | word | `is_due` at `now` | new word |
//! |---|---|---|
//! | `NOT_YET` | no | `now` |
//! | less than `AGING` before `now` | no | the same |
//! | longer ago | yes, to one of those who ask at once | `NOT_YET` |
//!
//! The time counts from the next fresh thread that is taken, not from the turn: that may have been
//! a whole time slice, after which it would be due again, and no fresh thread would ever run.
//!
//! Memory orderings: all Relaxed. The word publishes nothing; whoever takes a thread does so under
//! its queue's lock.

use super::Readied;
use crate::engine::atomic::{AtomicU64, Ordering::Relaxed};

/// In nanoseconds: a time slice, as it is by default.
pub(super) const AGING: u64 = 10_000_000;

const NOT_YET: u64 = u64::MAX;

/// Whether a thread that has become ready in this way stands behind those that are fresh.
#[inline(always)]
pub(super) fn is_preempted(how: Readied) -> bool {
    how == Readied::Preempted
}

/// Since when those preempted have been passed over.
pub(super) struct Aging(AtomicU64);

impl Aging {
    pub(super) const fn new() -> Aging {
        Aging(AtomicU64::new(NOT_YET))
    }

    /// Fresh threads wait, and preempted ones: whether it is one of the latter's turn.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        let since = self.0.load(Relaxed);
        let new = match since {
            NOT_YET => now,
            since if now.saturating_sub(since) < AGING => return false,
            _ => NOT_YET,
        };
        let is_ours = self
            .0
            .compare_exchange(since, new, Relaxed, Relaxed)
            .is_ok();
        is_ours && new == NOT_YET
    }

    /// No fresh thread waits: nobody is passed over.
    #[inline]
    pub(super) fn reset(&self) {
        if self.0.load(Relaxed) != NOT_YET {
            self.0.store(NOT_YET, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_each_time() {
        let aging = Aging::new();
        let looks = (0..10 * AGING).step_by(AGING as usize / 10);
        let turns: Vec<_> = looks.filter(|&now| aging.is_due(now)).collect();
        let each = AGING + AGING / 10;
        let expected: Vec<_> = (0..9).map(|turn| AGING + turn * each).collect();
        assert_eq!(turns, expected);
        // Where a turn takes as long as aging, fresh threads have every other look.
        let looks = (20 * AGING..30 * AGING).step_by(AGING as usize);
        assert_eq!(looks.filter(|&now| aging.is_due(now)).count(), 5);
        aging.reset();
        assert!(!aging.is_due(40 * AGING), "nobody was passed over");
        assert!(aging.is_due(50 * AGING));
    }
}
