//! A processor's local run queue: crossbeam's deque, kept within its first 64 slots, where it never
//! allocates.

use core::ptr::NonNull;

use crossbeam_deque::{Steal, Stealer, Worker};

use super::Ready;
use crate::engine::green::Green;

/// The number of threads that fit before the deque allocates. One slot is left over, since a thief
/// moves at most half of the threads at once.
pub(crate) const CAPACITY: usize = 63;
/// The greatest number of threads that a thief takes at once.
pub(crate) const BATCH: usize = 32;

/// A run queue. The holder of the processor's seat, one at a time, pushes and pops; others steal
/// and ask for its length.
pub(crate) struct LocalQueue {
    worker: Worker<NonNull<Green>>,
    stealer: Stealer<NonNull<Green>>,
}

// SAFETY: `worker` is used by the holder of the seat only, as the methods' contracts demand, and
// seats change hands with a Release and an Acquire (`sched::ownership`).
unsafe impl Sync for LocalQueue {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for LocalQueue {}

fn ready(pointer: NonNull<Green>) -> Ready {
    // SAFETY: queues hold records of green threads, which are never freed; each is in one once.
    Ready::new(unsafe { pointer.as_ref() })
}

impl LocalQueue {
    pub(crate) fn new(last_in_first_out: bool) -> LocalQueue {
        let worker = match last_in_first_out {
            true => Worker::new_lifo(),
            false => Worker::new_fifo(),
        };
        let stealer = worker.stealer();
        LocalQueue { worker, stealer }
    }

    /// # Safety
    /// The caller holds the seat.
    #[inline]
    pub(crate) unsafe fn push(&self, thread: Ready) {
        debug_assert!(self.worker.len() <= CAPACITY);
        self.worker.push(NonNull::from(thread.into_green()));
    }

    /// # Safety
    /// The caller holds the seat.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<Ready> {
        self.worker.pop().map(ready)
    }

    /// Returns the number of threads that may still be pushed, at least: only the holder of the seat
    /// pushes, and others only take.
    #[inline]
    pub(crate) fn space(&self) -> usize {
        CAPACITY.saturating_sub(self.worker.len())
    }

    /// Moves half of this queue to `thief`, except for one thread, which is returned. May touch
    /// thread-locals.
    ///
    /// # Safety
    /// The caller holds the seat that `thief` belongs to, and `thief` is empty.
    pub(crate) unsafe fn steal_half(&self, thief: &LocalQueue) -> Option<Ready> {
        loop {
            let stolen = self
                .stealer
                .steal_batch_with_limit_and_pop(&thief.worker, BATCH);
            match stolen {
                Steal::Success(pointer) => return Some(ready(pointer)),
                Steal::Empty => return None,
                Steal::Retry => core::hint::spin_loop(),
            }
        }
    }

    /// Returns the number of threads; any thread may ask.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.stealer.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stealer.is_empty()
    }
}
