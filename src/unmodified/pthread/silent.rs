//! Mutexes that libc unlocks without a word: in `pthread_cond_wait` of a kernel thread.
//!
//! Around that call the kernel thread raises a counter in a slot of a table, chosen by the mutex's address. A green thread
//! that finds the mutex taken looks at the counter under its bucket's lock, before it is parked. If the
//! counter is not 0, one green thread *stands* for all others that wait for this mutex: it makes libc's call, on a
//! kernel thread that it blocks. The others are parked: when the standing thread has the mutex
//! and gives it back, it does so by our function, which wakes the next.
//!
//! | the slot's word | |
//! |---|---|
//! | `waits` | how many kernel threads may unlock a mutex of this slot without a word |
//! | `standing` | the mutex for which a green thread stands; 0: none |
//!
//! No wake-up is lost. Let a green thread G be parked for a mutex. It took the bucket's lock, made a fence, saw
//! the mutex taken (by a thread H), and saw `waits` = 0 or another thread that stands.
//! 1. H gives the mutex back by our function, or has raised the counter for a silent unlock and looked into the
//!    bucket since. In both cases H makes a fence and looks at the bucket.
//! 2. If H's fence comes after G's, H finds the bucket not empty, and wakes G or one that is before G. That
//!    thread takes the mutex, or stands for it, or queues again because the next
//!    holder came first, to which all this applies.
//! 3. If H's fence comes before G's, G sees what H did before it. If that was an unlock, G does not see the
//!    mutex taken by H's lock. If that was the counter's rise, G sees the counter raised, and is not parked;
//!    or G sees it lowered, which H does after it has locked the mutex again: then G has seen this new lock, or
//!    a later one, and H's *next* step, which has a fence after the lowering, is the H of 1.
//! 4. A thread that stands ends with the mutex, which it gives back by our function, or without it (its time is up): then
//!    it clears `standing`, makes a fence, and wakes another. G saw `standing` before it was cleared, so
//!    G's fence came first, and G is found.
//!
//! Orderings: all accesses are Relaxed. The fences are those of `wait::addresses`.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::{LOCK, TABLE};
use crate::engine::door::is_forked_child;

const SLOTS: usize = 256;

/// A cache line for each: threads count in them.
#[repr(align(64))]
struct Slot {
    waits: AtomicU32,
    standing: AtomicUsize,
}

static SLOTS_OF_MUTEXES: [Slot; SLOTS] = [const {
    Slot {
        waits: AtomicU32::new(0),
        standing: AtomicUsize::new(0),
    }
}; SLOTS];

fn slot(mutex: usize) -> &'static Slot {
    let hash = (mutex as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &SLOTS_OF_MUTEXES[(hash >> 48) as usize % SLOTS]
}

/// Runs `wait`, libc's wait with this mutex.
///
/// A thread that is cancelled in it unwinds, and lowers the counter on its way. Where a program does not unwind,
/// the counter stays: some locks then cost more than they need.
pub(super) fn unlocking<T>(mutex: usize, wait: impl FnOnce() -> T) -> T {
    struct Raised(&'static Slot);
    impl Drop for Raised {
        fn drop(&mut self) {
            self.0.waits.fetch_sub(1, Relaxed);
        }
    }
    let slot = slot(mutex);
    slot.waits.fetch_add(1, Relaxed);
    let _raised = Raised(slot);
    if !is_forked_child() {
        // The one who is woken stands for the others.
        TABLE.wake(mutex, LOCK, 1);
    }
    wait()
}

/// How a green thread waits for a mutex that may be unlocked without a word.
pub(super) enum Stand {
    /// As the one that stands for all.
    ForAll,
    /// As one more: the slot's thread stands for another mutex.
    Alone,
}

/// Asks whether the caller, which has found the mutex taken and holds its bucket's lock, may be parked. If not, it
/// calls [`Stand::waiting`].
pub(super) fn must_stand(mutex: usize) -> Option<Stand> {
    let slot = slot(mutex);
    if slot.waits.load(Relaxed) == 0 {
        return None;
    }
    let stand = slot.standing.compare_exchange(0, mutex, Relaxed, Relaxed);
    match stand {
        Ok(_) => Some(Stand::ForAll),
        Err(standing) if standing == mutex => None,
        Err(_) => Some(Stand::Alone),
    }
}

impl Stand {
    /// Runs `lock`, libc's call, which returns whether the caller has the mutex now.
    pub(super) fn waiting(self, mutex: usize, lock: impl FnOnce() -> i32) -> i32 {
        let answer = lock();
        if matches!(self, Stand::ForAll) {
            slot(mutex).standing.store(0, Relaxed);
        }
        if answer != 0 {
            // Another takes its place.
            TABLE.wake(mutex, LOCK, 1);
        }
        answer
    }
}
