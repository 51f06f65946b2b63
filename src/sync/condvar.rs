//! [`Condvar`]: a wait queue beside a mutex.
//!
//! | thread | does |
//! |---|---|
//! | waiter | queues, unlocks the mutex, blocks, locks the mutex again |
//! | notifier | one load: nobody waits? Else takes the first, or all, out of the queue; wakes |
//!
//! Invariants:
//! 1. A waiter is in the queue before it unlocks the mutex. So whoever changes under the mutex what
//!    the waiter looked at, finds it there: the mutex orders the two, which is why the notifier's
//!    load may be Relaxed.
//! 2. A notification is never lost. `notify_one` ends the wait of one whose claim it wins; one
//!    whose time is up at this moment has either lost its claim, and reports no time-out, or is
//!    passed over, and another is taken.
//!
//! Orderings: the mutex's, and the queue's own.

use core::fmt;
use core::time::Duration;

use super::mutex::MutexGuard;
use super::poison::{self, LockResult, PoisonError};
use crate::engine::door::atomic::{Ordering::Relaxed, const_fn};
use crate::engine::door::clock;
use crate::engine::door::queue::{Position, WaitQueue, Waited};

/// Lets threads wait until something that a mutex protects has changed: [`std::sync::Condvar`],
/// which blocks only the green thread.
///
/// The longest waiting thread is woken first. No thread is woken without having been notified, but
/// the mutex may have been locked by others in between: look again at what you waited for, or use
/// [`wait_while`](Condvar::wait_while). Waits on one condition variable may use different mutexes.
///
/// ```
/// use std::sync::Arc;
/// use greenthread::sync::{Condvar, Mutex};
///
/// let pair = Arc::new((Mutex::new(false), Condvar::new()));
/// let other = pair.clone();
/// greenthread::spawn(move || {
///     *other.0.lock().unwrap() = true;
///     other.1.notify_one();
/// });
/// let (ready, changed) = &*pair;
/// let ready = changed.wait_while(ready.lock().unwrap(), |ready| !*ready).unwrap();
/// assert!(*ready);
/// ```
pub struct Condvar {
    queue: WaitQueue,
}

/// Whether a timed wait on a [`Condvar`] ended because its time was up;
/// [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was up and no notification was received.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    const_fn! {
        /// A condition variable that nobody waits for.
        #[must_use]
        #[inline]
        pub const fn new() -> Condvar {
            Condvar {
                queue: WaitQueue::new(0),
            }
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. A notification sent
    /// after the mutex is unlocked is not missed.
    ///
    /// # Errors
    /// The mutex is poisoned when it is locked again. The error contains the guard.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_by(&mut guard, None);
        poison::checked(guard.is_poisoned(), guard)
    }

    /// [`wait`](Condvar::wait), as long as `condition` holds.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// [`wait`](Condvar::wait), for `dur` at most, not counting the time to lock the mutex again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::{Condvar, Mutex};
    ///
    /// let (mutex, never) = (Mutex::new(()), Condvar::new());
    /// let guard = mutex.lock().unwrap();
    /// let (_guard, result) = never.wait_timeout(guard, Duration::from_millis(1)).unwrap();
    /// assert!(result.timed_out());
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        dur: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until(guard, clock::after(dur))
    }

    /// [`wait_while`](Condvar::wait_while), for `dur` at most. The result tells whether the
    /// condition still held when the time was up.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        dur: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let deadline = clock::after(dur);
        while condition(&mut *guard) {
            if clock::now() >= deadline {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_until(guard, deadline)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// [`wait_timeout`](Condvar::wait_timeout) in milliseconds. False if the time was up.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    #[deprecated(
        since = "0.1.0",
        note = "replaced by `Condvar::wait_timeout`, as in std"
    )]
    pub fn wait_timeout_ms<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        ms: u32,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let in_time = |(guard, result): (_, WaitTimeoutResult)| (guard, !result.timed_out());
        self.wait_timeout(guard, Duration::from_millis(u64::from(ms)))
            .map(in_time)
            .map_err(|error| PoisonError::new(in_time(error.into_inner())))
    }

    /// Wakes the thread that waits longest, if any waits.
    #[inline]
    pub fn notify_one(&self) {
        if self.queue.state(Relaxed).has_waiters() {
            self.wake_one();
        }
    }

    /// Wakes all threads that wait now.
    #[inline]
    pub fn notify_all(&self) {
        if self.queue.state(Relaxed).has_waiters() {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let first = self.queue.lock().pop(0);
        if let Some(first) = first {
            first.wake();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.queue.lock().wake_all(|flags| flags);
    }

    fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: u64,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let timed_out = WaitTimeoutResult(self.wait_by(&mut guard, Some(deadline)));
        poison::checked(guard.is_poisoned(), (guard, timed_out))
    }

    /// Unlocks the guard's mutex, waits, and locks it again. Whether the time was up.
    fn wait_by<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<u64>) -> bool {
        let waited = guard.unlocked(|mutex| {
            let locked = self.queue.lock();
            let unlock = || mutex.unlock();
            locked.wait(Position::Back, 0, deadline, Some, unlock).ok()
        });
        waited == Some(Waited::TimedOut)
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
