//! [`Condvar`]: a wait queue beside a mutex.
//!
//! | thread | does |
//! |---|---|
//! | waiter | queues, unlocks the mutex, blocks, locks the mutex again |
//! | notifier | loads the queue's word; if threads wait, takes out the first or all, wakes them |
//!
//! Invariants:
//! 1. A waiter is in the queue before it unlocks the mutex. So a thread that then locks the mutex
//!    and changes the data finds the waiter there: the mutex orders the two, which is why the
//!    notifier's load may be Relaxed.
//! 2. A notification is never lost. `notify_one` ends the wait of a thread whose claim it wins. A
//!    thread whose time is up at that moment has either lost its claim, and then reports no
//!    time-out, or is passed over, and another one is taken.
//!
//! Orderings: the mutex's, and the queue's own.

use core::mem::ManuallyDrop;
use core::time::Duration;

use super::mutex::MutexGuard;
use super::poison::{self, LockResult, PoisonError};
use crate::atomic::{Ordering::Relaxed, const_fn};
use crate::sys::{clock, perturb};
use crate::wait::queue::{Position, WaitQueue, Waited};
use crate::wait::{WaitKind, WaitReason, raise};

/// A condition variable: threads wait on it until data behind a [`Mutex`](super::Mutex) has
/// changed.
///
/// A thread that waits gives up the mutex for that time. Another thread locks the mutex, changes
/// the data and notifies the condition variable. It works as [`std::sync::Condvar`] does and blocks
/// only the green thread.
///
/// Threads are woken in the order in which they began to wait, and none is woken without a
/// notification. Still, a third thread may lock the mutex between the notification and the return
/// of [`wait`](Condvar::wait), so check the condition in a loop or call
/// [`wait_while`](Condvar::wait_while). Waits on one condition variable may use different mutexes.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Arc, Condvar, Mutex};
///
/// let pair = Arc::new((Mutex::new(false), Condvar::new()));
/// let other = Arc::clone(&pair);
/// greenthread::spawn(move || {
///     let (ready, changed) = &*other;
///     *ready.lock().unwrap() = true;
///     changed.notify_one();
/// });
///
/// let (ready, changed) = &*pair;
/// let mut guard = ready.lock().unwrap();
/// while !*guard {
///     guard = changed.wait(guard).unwrap();
/// }
/// ```
pub struct Condvar {
    queue: WaitQueue,
}

/// The result of a timed wait on a [`Condvar`], which tells whether the wait timed out.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (mutex, condvar) = (Mutex::new(0), Condvar::new());
/// let guard = mutex.lock().unwrap();
/// let (guard, result) = condvar.wait_timeout(guard, Duration::from_millis(1)).unwrap();
/// assert!(result.timed_out());
/// assert_eq!(*guard, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns `true` if the time was up before a notification came.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, condvar) = (Mutex::new(true), Condvar::new());
    /// let guard = mutex.lock().unwrap();
    /// let timeout = Duration::from_secs(60);
    /// // The condition is false already, so there is nothing to wait for.
    /// let (_guard, result) = condvar.wait_timeout_while(guard, timeout, |ready| !*ready).unwrap();
    /// assert!(!result.timed_out());
    /// ```
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// For reports.
static CONDVAR: WaitKind = WaitKind::unwinding("condition variable");

impl Condvar {
    const_fn! {
        /// Creates a condition variable on which no thread waits yet.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::sync::Condvar;
        ///
        /// static CHANGED: Condvar = Condvar::new();
        /// ```
        #[must_use]
        #[inline]
        pub const fn new() -> Condvar {
            Condvar {
                queue: WaitQueue::new(0),
            }
        }
    }

    /// Unlocks the mutex, blocks the current thread until it is notified, and locks the mutex
    /// again.
    ///
    /// Unlocking and waiting are one step: a notification that is sent after the mutex is unlocked
    /// is not missed.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned when it is locked again. The error contains the
    /// guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    ///
    /// let (queue, filled) = (Mutex::new(Vec::new()), Condvar::new());
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         queue.lock().unwrap().push("job");
    ///         filled.notify_one();
    ///     });
    ///     let mut guard = queue.lock().unwrap();
    ///     while guard.is_empty() {
    ///         guard = filled.wait(guard).unwrap();
    ///     }
    ///     assert_eq!(guard.pop(), Some("job"));
    /// });
    /// ```
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (guard, _) = self.wait_by(guard, None);
        poison::checked(guard.lock.is_poisoned(), guard)
    }

    /// Blocks the current thread until `condition` is false, waiting as [`wait`](Condvar::wait)
    /// does.
    ///
    /// The condition is checked with the mutex locked, for the first time before the first wait:
    /// the call returns at once if the condition is false then.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned when it is locked again. The error contains the
    /// guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    ///
    /// let (pending, changed) = (Mutex::new(3), Condvar::new());
    /// greenthread::scope(|scope| {
    ///     for _ in 0..3 {
    ///         scope.spawn(|| {
    ///             *pending.lock().unwrap() -= 1;
    ///             changed.notify_one();
    ///         });
    ///     }
    ///     let guard = pending.lock().unwrap();
    ///     let guard = changed.wait_while(guard, |pending| *pending > 0).unwrap();
    ///     assert_eq!(*guard, 0);
    /// });
    /// ```
    pub fn wait_while<'a, T, F: FnMut(&mut T) -> bool>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits as [`wait`](Condvar::wait) does, but for no longer than `dur`.
    ///
    /// The time that it takes to lock the mutex again is not counted.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned when it is locked again. The error contains the
    /// guard and the result of the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, never) = (Mutex::new(()), Condvar::new());
    /// let guard = mutex.lock().unwrap();
    /// let (_guard, result) = never.wait_timeout(guard, Duration::from_millis(1)).unwrap();
    /// assert!(result.timed_out());
    /// ```
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        dur: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until(guard, clock::after(dur))
    }

    /// Blocks until `condition` is false, as [`wait_while`](Condvar::wait_while) does, but for no
    /// longer than `dur` in all.
    ///
    /// The result says that the wait timed out if the condition is still true after that time.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned when it is locked again. The error contains the
    /// guard and the result of the wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *ready.lock().unwrap() = true;
    ///         changed.notify_one();
    ///     });
    ///     let guard = ready.lock().unwrap();
    ///     let timeout = Duration::from_secs(60);
    ///     let (guard, result) = changed
    ///         .wait_timeout_while(guard, timeout, |ready| !*ready)
    ///         .unwrap();
    ///     assert!(*guard && !result.timed_out());
    /// });
    /// ```
    pub fn wait_timeout_while<'a, T, F: FnMut(&mut T) -> bool>(
        &self,
        mut guard: MutexGuard<'a, T>,
        dur: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let deadline = clock::after(dur);
        while condition(&mut *guard) {
            if clock::now() >= deadline {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_until(guard, deadline)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Waits as [`wait_timeout`](Condvar::wait_timeout) does, for no longer than `ms` milliseconds.
    ///
    /// The boolean is `false` if the wait timed out.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned when it is locked again. The error contains the
    /// guard and the boolean.
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

    /// Wakes the thread that has waited longest on this condition variable, if there is one.
    ///
    /// The call does nothing if no thread waits: notifications are not kept for later.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Condvar, Mutex};
    ///
    /// let pair = Arc::new((Mutex::new(false), Condvar::new()));
    /// let other = Arc::clone(&pair);
    /// let waiter = greenthread::spawn(move || {
    ///     let (ready, changed) = &*other;
    ///     let guard = ready.lock().unwrap();
    ///     *changed.wait_while(guard, |ready| !*ready).unwrap()
    /// });
    ///
    /// *pair.0.lock().unwrap() = true;
    /// pair.1.notify_one();
    /// assert!(waiter.join().unwrap());
    /// ```
    #[inline]
    pub fn notify_one(&self) {
        perturb::point("condvar: notifying");
        if self.queue.state(Relaxed).has_waiters() {
            self.wake_one();
        }
    }

    /// Wakes all threads that wait on this condition variable now.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Condvar, Mutex};
    ///
    /// let (open, changed) = (Mutex::new(false), Condvar::new());
    /// greenthread::scope(|scope| {
    ///     for _ in 0..10 {
    ///         scope.spawn(|| {
    ///             let guard = open.lock().unwrap();
    ///             let _open = changed.wait_while(guard, |open| !*open).unwrap();
    ///         });
    ///     }
    ///     *open.lock().unwrap() = true;
    ///     changed.notify_all();
    /// });
    /// ```
    #[inline]
    pub fn notify_all(&self) {
        perturb::point("condvar: notifying");
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
        guard: MutexGuard<'a, T>,
        deadline: u64,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, timed_out) = self.wait_by(guard, Some(deadline));
        let poisoned = guard.lock.is_poisoned();
        poison::checked(poisoned, (guard, WaitTimeoutResult(timed_out)))
    }

    /// Unlocks the guard's mutex, waits, and locks it again. Also returns whether the wait timed out. If it unwinds, because a
    /// frame has ended, it does not lock the mutex again: the holder may wait for this thread.
    fn wait_by<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        let guard = ManuallyDrop::new(guard);
        let locked = self.queue.lock();
        let unlock = || guard.lock.raw.unlock();
        let reason = WaitReason::new(&CONDVAR, self);
        let waited = locked.wait(reason, Position::Back, 0, deadline, Some, unlock);
        let timed_out = waited == Waited::TimedOut;
        if timed_out {
            raise(deadline);
        }
        guard.lock.raw.lock(None);
        (ManuallyDrop::into_inner(guard), timed_out)
    }
}
