//! [`Barrier`]: a wait queue, and how many have arrived, under the queue's lock.
//!
//! The last to arrive takes all the others out of the queue in the same step in which it sets the
//! count back to zero. So the next round, which may begin before they run, has nothing to do with
//! them.
//!
//! Orderings: what was done before the barrier is seen after it: everybody passes the queue's lock
//! before the last one does, whose wake-ups publish.

use core::fmt;

use crate::engine::door::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::engine::door::queue::{Position, WaitQueue};

/// Lets a number of threads wait for each other, again and again: [`std::sync::Barrier`], which
/// blocks only the green thread.
///
/// ```
/// use greenthread::sync::Barrier;
///
/// let barrier = Barrier::new(10);
/// let leaders: usize = greenthread::scope(|scope| {
///     let threads: Vec<_> = (0..10)
///         .map(|_| scope.spawn(|| barrier.wait().is_leader()))
///         .collect();
///     threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
/// });
/// assert_eq!(leaders, 1);
/// ```
pub struct Barrier {
    queue: WaitQueue,
    /// In this round. Changed with the queue's list in hand.
    arrived: AtomicUsize,
    size: usize,
}

/// Who waited at a [`Barrier`]; [`std::sync::BarrierWaitResult`].
pub struct BarrierWaitResult(bool);

impl Barrier {
    /// A barrier for `n` threads: `n - 1` wait for one more. Nobody waits at one for no thread, or
    /// for one.
    #[must_use]
    #[inline]
    pub const fn new(n: usize) -> Barrier {
        Barrier {
            queue: WaitQueue::new(0),
            arrived: AtomicUsize::new(0),
            size: n,
        }
    }

    /// Blocks until all have arrived. For one of them, the last, the result says that it is the
    /// leader.
    pub fn wait(&self) -> BarrierWaitResult {
        let locked = self.queue.lock();
        let arrived = self.arrived.load(Relaxed) + 1;
        if arrived < self.size {
            self.arrived.store(arrived, Relaxed);
            let _woken = locked.wait(Position::Back, 0, None, Some, || ());
            return BarrierWaitResult(false);
        }
        self.arrived.store(0, Relaxed);
        locked.wake_all(|flags| flags);
        BarrierWaitResult(true)
    }
}

impl BarrierWaitResult {
    /// Whether this thread was chosen to do what one must do.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult")
            .field("is_leader", &self.is_leader())
            .finish()
    }
}
