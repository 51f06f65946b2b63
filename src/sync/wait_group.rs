//! [`WaitGroup`]: crossbeam's; a count of handles, and a wait queue.
//!
//! Invariants:
//! 1. The count never rises from zero: a clone is made from a handle, which counts.
//! 2. No wake-up is lost: who waits looks at the count with the queue's list in hand, and who
//!    brings it to zero then takes the list. One of the two is first; either the waiter is found,
//!    or it sees zero.
//!
//! Orderings: leaving is Release and seeing zero Acquire, so that what each did before it left is
//! seen by whoever waited.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use crate::engine::door::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::engine::door::clock;
use crate::engine::door::queue::{Position, WaitQueue, Waited};

/// Lets threads wait until all of a changing number of threads have finished something:
/// `crossbeam_utils::sync::WaitGroup`, which blocks only the green thread.
///
/// Unlike a [`Barrier`](super::Barrier) it need not know the number of threads, which make
/// themselves known by cloning it; and it is used once.
///
/// ```
/// use greenthread::sync::WaitGroup;
///
/// let group = WaitGroup::new();
/// for _ in 0..4 {
///     let group = group.clone();
///     greenthread::spawn(move || {
///         // Do some work, then
///         drop(group);
///     });
/// }
/// group.wait();
/// ```
pub struct WaitGroup {
    inner: Arc<Inner>,
}

struct Inner {
    queue: WaitQueue,
    count: AtomicUsize,
}

impl Inner {
    /// False: the time was up.
    fn wait(&self, deadline: Option<u64>) -> bool {
        let waited = self.queue.wait(Position::Back, 0, deadline, |state| {
            // Acquire: pairs with the Release in `drop`.
            (self.count.load(Acquire) != 0).then_some(state)
        });
        waited != Waited::TimedOut
    }
}

impl WaitGroup {
    /// A group of one: this handle.
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup {
            inner: Arc::new(Inner {
                queue: WaitQueue::new(0),
                count: AtomicUsize::new(1),
            }),
        }
    }

    /// Drops this handle and waits until all others are dropped or wait too.
    pub fn wait(self) {
        self.leave().wait(None);
    }

    /// [`wait`](WaitGroup::wait), for `timeout` at most; false if the time is up. Not in crossbeam.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// let other = group.clone();
    /// assert!(!group.wait_timeout(Duration::from_millis(1)));
    /// assert!(other.wait_timeout(Duration::ZERO));
    /// ```
    #[must_use = "false means that not all have finished"]
    pub fn wait_timeout(self, timeout: Duration) -> bool {
        self.leave().wait(Some(clock::after(timeout)))
    }

    fn leave(self) -> Arc<Inner> {
        self.inner.clone()
    }
}

impl Default for WaitGroup {
    fn default() -> WaitGroup {
        WaitGroup::new()
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> WaitGroup {
        let before = self.inner.count.fetch_add(1, Relaxed);
        assert!(before < usize::MAX / 2, "a WaitGroup of {before} handles");
        WaitGroup {
            inner: self.inner.clone(),
        }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Inner::wait`. Acquire: pairs with this same Release
        // of those who left before, for those who are woken here.
        if self.inner.count.fetch_sub(1, AcqRel) == 1 {
            self.inner.queue.lock().wake_all(|flags| flags);
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("count", &self.inner.count.load(Relaxed))
            .finish()
    }
}
