//! The state word of the reader-writer lock, and the rule by which a thread may overtake others that
//! wait for it.
//!
//! ```text
//!   | since: 30 bits | readers: 31 bits | WOKEN | QUEUED | WRITER |
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | `WRITER` | a writer holds the lock |
//! | `QUEUED` | the queue may not be empty; `since` tells when its first thread came |
//! | `WOKEN` | a writer was taken out of the queue and will try again |
//! | `readers` | the number of readers that hold the lock |
//!
//! A thread that comes by while others wait may overtake them ("barging"): it is running, they are
//! not. But once the first of them has waited for [`PATIENCE`], no thread overtakes it any more,
//! and the lock is handed to it. (A writer that was woken is no longer in the queue. While it is on
//! its way others overtake; if it is late it queues again in front of all, and writes into `since`
//! again the time at which its wait began.)
//!
//! Orderings: none of its own. `raw_rwlock` reads and changes the word.

use crate::sys::clock;

pub(crate) const WRITER: u64 = 1;
pub(crate) const QUEUED: u64 = 1 << 1;
pub(crate) const WOKEN: u64 = 1 << 2;
pub(crate) const READER: u64 = 1 << 3;
pub(crate) const READERS: u64 = SINCE - READER;
const SINCE: u64 = 1 << 34;

/// Ticks of 2^16 ns, about 1 ms in all, after which no thread overtakes a waiter any more.
const PATIENCE: u32 = 16;
const TICK_SHIFT: u32 = 16;
const TICKS: u32 = (u64::MAX / SINCE) as u32;

#[derive(Clone, Copy)]
pub(crate) struct State(pub(crate) u64);

impl State {
    #[inline(always)]
    pub(crate) fn has(self, parts: u64) -> bool {
        self.0 & parts != 0
    }

    #[inline(always)]
    pub(crate) fn readers(self) -> u64 {
        (self.0 & READERS) / READER
    }

    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        !self.has(WRITER | READERS)
    }

    #[inline(always)]
    fn may_overtake(self) -> bool {
        !self.has(QUEUED) || self.may_overtake_waiters()
    }

    #[cold]
    #[inline(never)]
    fn may_overtake_waiters(self) -> bool {
        self.has(WOKEN) || !is_late((self.0 / SINCE) as u32, now())
    }

    #[inline(always)]
    pub(crate) fn may_read(self) -> bool {
        !self.has(WRITER) && self.may_overtake()
    }

    #[inline(always)]
    pub(crate) fn may_write(self) -> bool {
        self.is_free() && self.may_overtake()
    }

    /// Returns the state with `QUEUED`, where the first in the queue has waited since `since`.
    #[inline]
    pub(crate) fn queued(self, since: u32) -> State {
        State(self.0 & (SINCE - 1) | (u64::from(since) * SINCE) | QUEUED)
    }
}

/// Returns the time in ticks, cut to the width of its field: it wraps after some hours.
#[inline]
pub(crate) fn now() -> u32 {
    (clock::now() >> TICK_SHIFT) as u32 & TICKS
}

/// Returns whether no thread may overtake a thread that has waited since `since`.
#[inline]
pub(crate) fn is_late(since: u32, now: u32) -> bool {
    now.wrapping_sub(since) & TICKS >= PATIENCE
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    #[test]
    fn no_thread_overtakes_one_that_has_waited_long() {
        let long_ago = now().wrapping_sub(PATIENCE) & TICKS;
        for readers in [0, READER] {
            // The clock may go on meanwhile: then the states are asked once more.
            let (may_read, may_write) = loop {
                let since = now();
                let fresh = State(readers).queued(since);
                let answers = (fresh.may_read(), fresh.may_write());
                if !is_late(since, now()) {
                    break answers;
                }
            };
            assert!(may_read);
            assert_eq!(may_write, readers == 0);
            let late = State(readers).queued(long_ago);
            assert!(!late.may_read() && !late.may_write());
            let woken = State(late.0 | WOKEN);
            assert!(woken.may_read());
        }
        assert!(State(0).queued(TICKS).has(QUEUED));
        assert!(!State(0).queued(TICKS).has(WRITER | READERS | WOKEN));
    }

    #[test]
    fn the_clock_wraps() {
        for since in [0, 1, TICKS - PATIENCE, TICKS - 1, TICKS] {
            for (passed, late) in [
                (0, false),
                (PATIENCE - 1, false),
                (PATIENCE, true),
                (TICKS, true),
            ] {
                assert_eq!(
                    is_late(since, since.wrapping_add(passed) & TICKS),
                    late,
                    "{since} {passed}"
                );
            }
        }
    }
}
