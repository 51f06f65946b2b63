//! How often a green thread has left its stack, and since when it is as it is, for observers.
//!
//! The kernel thread that runs a green thread writes both words, a plain store each; any thread reads
//! them. The count lets a reader see whether what it has read of a suspended thread belongs together
//! (`inspect::threads`). The time is the coarse clock's ([`clock::coarse`]): a few milliseconds off while the
//! program is busy.
//!
//! Orderings: the count is stored before the run loop says that the thread has left
//! (`Worker::current`, a Release), so a reader that sees this sees the count. A reader that sees the count sees what the
//! thread did before: it is stored with Release.

use crate::engine::atomic::{AtomicU32, Ordering};
use crate::engine::sys::clock;

pub(crate) struct Since {
    turns: AtomicU32,
    /// In milliseconds of the coarse clock.
    at: AtomicU32,
}

impl Default for Since {
    fn default() -> Since {
        Since {
            turns: AtomicU32::new(0),
            at: AtomicU32::new(0),
        }
    }
}

impl Since {
    /// For debuggers.
    pub(crate) const AT: usize = core::mem::offset_of!(Since, at);

    /// From now on the thread runs, or is parked, or waits for its first run. (A thread that gives way keeps the
    /// time when it was resumed: that was a time slice ago at most.)
    #[inline(always)]
    pub(crate) fn note_time(&self) {
        self.at.store(clock::coarse(), Ordering::Relaxed);
    }

    /// The thread has left its stack.
    #[inline(always)]
    pub(crate) fn left(&self) {
        let turns = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        // Release: partner: Acquire in `inspect::threads`.
        self.turns.store(turns, Ordering::Release);
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// For how many milliseconds it has been as it is. The coarse clock stands still while the program rests, so
    /// the real one is asked.
    pub(crate) fn millis(&self) -> u32 {
        let now = (clock::now() / 1_000_000) as u32;
        now.wrapping_sub(self.at.load(Ordering::Relaxed))
    }
}
