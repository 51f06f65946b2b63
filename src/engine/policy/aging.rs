//! Aging: threads that were preempted stand behind those that were not, but not for ever.
//!
//! A *fresh* thread is new, was woken, or gave way by itself: it may need the processor for a
//! moment only, and another thread may be waiting for its result. A *preempted* thread computes.
//! Where both wait, the fresh one goes first; otherwise it would wait for as many time slices as
//! there are threads that compute.
//!
//! When the preempted threads have been passed over for [`AGING`], one of them goes first. So
//! beside any number of fresh threads the n-th preempted one is taken from its queue after n ×
//! `AGING` and 2n looks at the queue, at the latest.
//!
//! One word says since when the preempted threads have been passed over, on the monotonic clock.
//!
//! | word | `is_due` at `now` | new word |
//! |---|---|---|
//! | `NOT_YET` | no | `now` |
//! | less than `AGING` before `now` | no | the same |
//! | longer ago | yes, to one of the callers that ask at once | `NOT_YET` |
//!
//! The time counts from the next fresh thread that is taken, not from the preempted thread's turn.
//! That turn may have taken a whole time slice, after which the next one would be due at once, and
//! no fresh thread would ever run.
//!
//! Memory orderings: all Relaxed. The word publishes nothing; threads are taken under their queue's
//! lock.

use super::Readied;
use super::tuning::AGING;
use crate::engine::atomic::{AtomicU64, Ordering::Relaxed};

const NOT_YET: u64 = u64::MAX;

/// Returns whether a thread that became ready in this way stands behind the fresh ones.
#[inline(always)]
pub(super) fn is_preempted(how: Readied) -> bool {
    how == Readied::Preempted
}

/// Measures since when the preempted threads have been passed over.
pub(super) struct Aging(AtomicU64);

impl Aging {
    pub(super) const fn new() -> Aging {
        Aging(AtomicU64::new(NOT_YET))
    }

    /// Returns whether it is a preempted thread's turn, now that both fresh and preempted threads
    /// wait.
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

    /// Notes that no fresh thread waits, so that no preempted one is passed over.
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
