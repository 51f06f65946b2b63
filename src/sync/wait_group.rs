//! [`WaitGroup`], as in crossbeam: a count of handles, and a wait queue.
//!
//! Invariants:
//! 1. The count never rises from zero: a clone is made from a handle, which is counted itself.
//! 2. No wake-up is lost: a waiter looks at the count with the queue's list in hand, and the thread
//!    that brings the count to zero then takes the list. One of the two is first; either the waiter
//!    is found, or it sees zero.
//!
//! Orderings: leaving is Release and seeing zero Acquire, so that a waiter sees what each thread
//! did before it left.

use core::fmt;
use core::mem::offset_of;
use core::time::Duration;
use std::sync::Arc;

use crate::atomic::AtomicUsize;
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys::clock;
use crate::wait::queue::{Position, WaitQueue, Waited};
use crate::wait::{WaitKind, WaitReason, raise};

/// A handle of a group of threads, each of which can wait until the others have finished.
///
/// Each thread of the group has a clone of the handle and drops it when it has finished. Unlike a
/// [`Barrier`](super::Barrier), a group need not know the number of threads in advance, and it is
/// used once. It works as `crossbeam_utils::sync::WaitGroup` does and blocks only the green thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::WaitGroup;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static DONE: AtomicU32 = AtomicU32::new(0);
///
/// let group = WaitGroup::new();
/// for _ in 0..4 {
///     let group = group.clone();
///     greenthread::spawn(move || {
///         DONE.fetch_add(1, Relaxed);
///         drop(group);
///     });
/// }
/// group.wait();
/// assert_eq!(DONE.load(Relaxed), 4);
/// ```
pub struct WaitGroup(Arc<Inner>);

struct Inner {
    queue: WaitQueue,
    count: AtomicUsize,
}

/// For reports.
static WAIT_GROUP: WaitKind = WaitKind::unwinding("wait group").with_numbers(|address, facts| {
    facts.word("handles", address + offset_of!(Inner, count));
});

impl WaitGroup {
    /// Creates a group with one handle and returns that handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// group.wait(); // there is no other handle to wait for
    /// ```
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup(Arc::new(Inner {
            queue: WaitQueue::new(0),
            count: AtomicUsize::new(1),
        }))
    }

    /// Drops this handle and blocks the current thread until all handles have been dropped.
    ///
    /// A thread that waits has dropped its handle, so several threads of a group can wait for each
    /// other.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// let other = group.clone();
    /// let thread = greenthread::spawn(move || other.wait());
    /// group.wait();
    /// thread.join().unwrap();
    /// ```
    pub fn wait(self) {
        self.wait_by(None);
    }

    /// Drops this handle and waits as [`wait`](WaitGroup::wait) does, for no longer than `timeout`.
    ///
    /// Returns `false` if the time is up. crossbeam has no such method.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::WaitGroup;
    /// use std::time::Duration;
    ///
    /// let group = WaitGroup::new();
    /// let other = group.clone();
    /// assert!(!group.wait_timeout(Duration::from_millis(1)));
    /// assert!(other.wait_timeout(Duration::ZERO));
    /// ```
    #[must_use = "false means that not all have finished"]
    pub fn wait_timeout(self, timeout: Duration) -> bool {
        self.wait_by(Some(clock::after(timeout)))
    }

    /// Drops this handle and waits until the count is zero. Returns false if the time is up before that.
    fn wait_by(self, deadline: Option<u64>) -> bool {
        let inner = self.0.clone();
        drop(self);
        let reason = WaitReason::new(&WAIT_GROUP, &*inner);
        // Acquire: pairs with the Release in `drop`.
        let waits = |state| (inner.count.load(Acquire) != 0).then_some(state);
        let waited = (inner.queue).wait(reason, Position::Back, 0, deadline, waits);
        if waited == Waited::TimedOut {
            raise(deadline);
        }
        waited != Waited::TimedOut
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> WaitGroup {
        let before = self.0.count.fetch_add(1, Relaxed);
        assert!(before < usize::MAX / 2, "a WaitGroup of {before} handles");
        WaitGroup(self.0.clone())
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Inner::wait`. Acquire: pairs with this same Release
        // in threads that left before, on behalf of the threads that are woken here.
        if self.0.count.fetch_sub(1, AcqRel) == 1 {
            self.0.queue.lock().wake_all(|flags| flags);
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("count", &self.0.count.load(Relaxed))
            .finish()
    }
}
