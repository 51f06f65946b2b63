//! [`Barrier`]: a wait queue, and the number of threads that have arrived, under the queue's lock.
//!
//! The last thread to arrive takes all the others out of the queue in the same step in which it
//! sets the count back to zero. So the next round, which may begin before they run, has nothing to
//! do with them.
//!
//! Orderings: each thread passes the queue's lock before the last one does, and the last one's
//! wake-ups publish. So what any thread did before the barrier is seen by all after it.

use core::mem::offset_of;

use crate::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::wait::queue::{Position, WaitQueue, Waited};
use crate::wait::{WaitKind, WaitReason, raise};

/// A point at which a fixed number of threads wait for each other.
///
/// Each thread calls [`wait`](Barrier::wait), and all of them go on once the last one has arrived.
/// The barrier can then be used again for the next round. It works as [`std::sync::Barrier`] does
/// and blocks only the green thread.
///
/// # Examples
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
    /// The number of threads that have arrived in this round. It changes only with the queue's list
    /// in hand.
    arrived: AtomicUsize,
    /// The number of this round, under the same lock.
    round: AtomicUsize,
    size: usize,
}

/// The result of [`Barrier::wait`], which tells whether the calling thread is the leader.
///
/// Exactly one thread of each round is the leader. It can do the work that must be done once a
/// round.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Barrier;
///
/// let barrier = Barrier::new(1);
/// let result = barrier.wait();
/// assert!(result.is_leader());
/// ```
#[derive(Debug)]
pub struct BarrierWaitResult {
    is_leader: bool,
}

/// For reports.
static BARRIER: WaitKind = WaitKind::unwinding("barrier").with_numbers(|address, facts| {
    facts.word("arrived", address + offset_of!(Barrier, arrived));
    facts.word("of", address + offset_of!(Barrier, size));
});

impl Barrier {
    /// Creates a barrier for `n` threads.
    ///
    /// The first `n - 1` threads that call [`wait`](Barrier::wait) block; the `n`-th wakes them
    /// all. A barrier for 0 threads or for 1 thread never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Barrier;
    ///
    /// let barrier = Barrier::new(10);
    /// ```
    #[must_use]
    #[inline]
    pub const fn new(n: usize) -> Barrier {
        Barrier {
            queue: WaitQueue::new(0),
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            size: n,
        }
    }

    /// Blocks the current thread until all threads of this round have called `wait`.
    ///
    /// The last thread to arrive does not block, and its result says that it is the leader.
    /// Everything that the threads did before the call is visible to all of them after it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Barrier;
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// let barrier = Barrier::new(4);
    /// let arrived = AtomicU32::new(0);
    /// greenthread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             arrived.fetch_add(1, Relaxed);
    ///             barrier.wait();
    ///             assert_eq!(arrived.load(Relaxed), 4);
    ///         });
    ///     }
    /// });
    /// ```
    pub fn wait(&self) -> BarrierWaitResult {
        let locked = self.queue.lock();
        let arrived = self.arrived.load(Relaxed) + 1;
        if arrived < self.size {
            self.arrived.store(arrived, Relaxed);
            let reason = WaitReason::new(&BARRIER, self);
            let round = self.round.load(Relaxed);
            let waited = locked.wait(reason, Position::Back, 0, None, Some, || ());
            if waited == Waited::TimedOut {
                self.take_back(round);
            }
            return BarrierWaitResult { is_leader: false };
        }
        self.arrived.store(0, Relaxed);
        self.round.fetch_add(1, Relaxed);
        locked.wake_all(|flags| flags);
        BarrierWaitResult { is_leader: true }
    }

    /// A frame of the calling thread, which waits in `round`, has ended. If the round goes on, the thread has not arrived.
    #[cold]
    fn take_back(&self, round: usize) {
        let locked = self.queue.lock();
        if self.round.load(Relaxed) == round {
            self.arrived.store(self.arrived.load(Relaxed) - 1, Relaxed);
            drop(locked);
            raise(None);
        }
    }
}

impl BarrierWaitResult {
    /// Returns `true` if the thread is the leader of its round.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Barrier;
    ///
    /// let barrier = Barrier::new(2);
    /// let (first, second) = greenthread::scope(|scope| {
    ///     let other = scope.spawn(|| barrier.wait().is_leader());
    ///     (barrier.wait().is_leader(), other.join().unwrap())
    /// });
    /// assert_ne!(first, second);
    /// ```
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}
