//! Scoped threads: they may borrow from the thread that makes the scope, which ends after them.
//!
//! Ordering: a thread leaves with a Release after its packet has given up closure and result, and
//! the scope's last look at the count is an Acquire: after that, nothing that the threads borrowed
//! is touched.

use core::marker::PhantomData;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::Builder;
use super::spawn::{Joiner, Result};
use crate::engine::door::Waiter;
use crate::engine::door::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::door::clock;
use crate::engine::door::handle::Thread;
use crate::engine::door::perturb;

/// The data that a scope and its threads share.
pub(crate) struct ScopeData {
    running: AtomicUsize,
    panicked: AtomicBool,
    all_done: Waiter,
}

impl ScopeData {
    pub(super) fn enter(&self) {
        if self.running.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
            crate::engine::door::die("too many threads in one scope");
        }
    }

    /// Counts out a thread, which has given up all that it borrowed. `unhandled` says that it
    /// panicked and was not joined.
    pub(super) fn leave(&self, unhandled: bool) {
        if unhandled {
            self.panicked.store(true, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `scope`.
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            perturb::point("scope: last");
            self.all_done.wake();
        }
    }
}

/// A scope to spawn threads in; [`scope`] makes it.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// /// Doubles the numbers, each in a thread of its own.
/// fn double<'scope>(s: &'scope thread::Scope<'scope, '_>, numbers: &'scope mut [i32]) {
///     for number in numbers {
///         s.spawn(|| *number *= 2);
///     }
/// }
///
/// let mut numbers = [1, 2, 3];
/// thread::scope(|s| double(s, &mut numbers));
/// assert_eq!(numbers, [2, 4, 6]);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    // Invariant in both lifetimes, as std's.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A handle to wait for a scoped thread and to get its result, like
/// [`std::thread::ScopedJoinHandle`].
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let words = ["one", "two"];
/// thread::scope(|s| {
///     let handle: thread::ScopedJoinHandle<'_, usize> = s.spawn(|| words.len());
///     assert_eq!(handle.join().unwrap(), 2);
/// });
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    joiner: Joiner<T>,
    scope: PhantomData<&'scope ()>,
}

/// Makes a scope for threads that borrow, like [`std::thread::scope`].
///
/// It returns when all threads of the scope have ended.
///
/// # Panics
///
/// If a thread that was not joined by hand has panicked. If `f` panics, with the payload of that
/// panic.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let mut numbers = vec![1, 2, 3];
/// let mut sum = 0;
/// thread::scope(|s| {
///     s.spawn(|| numbers.push(4));
///     s.spawn(|| sum += 10);
/// });
/// assert_eq!((numbers.len(), sum), (4, 10));
/// ```
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        data: Arc::new(ScopeData {
            running: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            all_done: Waiter::new(),
        }),
        scope: PhantomData,
        env: PhantomData,
    };
    // The threads must be waited for even if `f` panics.
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // Acquire: pairs with the Release in `leave`.
    while scope.data.running.load(Ordering::Acquire) != 0 {
        scope.data.all_done.wait(None);
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.data.panicked.load(Ordering::Relaxed) => {
            panic!("a scoped thread panicked")
        }
        Ok(result) => result,
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a thread in this scope.
    ///
    /// # Panics
    ///
    /// If the thread cannot be started; [`Builder::spawn_scoped`] returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let numbers = [1, 2, 3];
    /// let sum = thread::scope(|s| {
    ///     let first = s.spawn(|| numbers[0]);
    ///     let rest = s.spawn(|| numbers[1..].iter().sum::<i32>());
    ///     first.join().unwrap() + rest.join().unwrap()
    /// });
    /// assert_eq!(sum, 6);
    /// ```
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match Builder::new().spawn_scoped(self, f) {
            Ok(handle) => handle,
            Err(error) => panic!("failed to spawn thread: {error}"),
        }
    }

    pub(super) fn data(&self) -> Arc<ScopeData> {
        self.data.clone()
    }
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(joiner: Joiner<T>) -> ScopedJoinHandle<'scope, T> {
        ScopedJoinHandle {
            joiner,
            scope: PhantomData,
        }
    }

    /// Returns a handle to the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// thread::scope(|s| {
    ///     let parked = s.spawn(thread::park);
    ///     parked.thread().unpark();
    /// });
    /// ```
    pub fn thread(&self) -> &Thread {
        self.joiner.thread()
    }

    /// Waits until the thread has ended, and returns its result; see
    /// [`JoinHandle::join`](crate::JoinHandle::join).
    ///
    /// # Errors
    ///
    /// The payload of the panic, if the thread panicked. [`scope`] then does not panic because of
    /// it.
    ///
    /// # Panics
    ///
    /// If a thread waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// thread::scope(|s| {
    ///     let thread = s.spawn(|| panic!("on purpose"));
    ///     assert!(thread.join().is_err());
    /// });
    /// ```
    pub fn join(self) -> Result<T> {
        self.joiner.join()
    }

    /// Waits like [`ScopedJoinHandle::join`], but for `timeout` at most.
    ///
    /// # Errors
    ///
    /// The handle itself, if the time is up first.
    ///
    /// # Panics
    ///
    /// If a thread waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::Duration;
    ///
    /// thread::scope(|s| {
    ///     let parked = s.spawn(thread::park);
    ///     let parked = parked.join_timeout(Duration::from_millis(1)).unwrap_err();
    ///     parked.thread().unpark();
    /// });
    /// ```
    pub fn join_timeout(self, timeout: Duration) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::after(timeout))
    }

    /// Waits like [`ScopedJoinHandle::join`], but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// The handle itself, if the deadline passes first.
    ///
    /// # Panics
    ///
    /// If a thread waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::Instant;
    ///
    /// thread::scope(|s| {
    ///     let parked = s.spawn(thread::park);
    ///     let parked = parked.join_deadline(Instant::now()).unwrap_err();
    ///     parked.thread().unpark();
    /// });
    /// ```
    pub fn join_deadline(self, deadline: Instant) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::at(deadline))
    }

    fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.joiner.join_by(deadline).map_err(Self::new)
    }

    /// Returns whether the thread's closure has returned. This never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// thread::scope(|s| {
    ///     let parked = s.spawn(thread::park);
    ///     assert!(!parked.is_finished());
    ///     parked.thread().unpark();
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.joiner.is_finished()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field(
                "running_threads",
                &self.data.running.load(Ordering::Relaxed),
            )
            .field("panicked", &self.data.panicked.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}
