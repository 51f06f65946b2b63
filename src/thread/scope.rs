//! Scoped threads: they may borrow from the thread that made the scope, which ends after them.
//!
//! Ordering: a thread leaves with a Release after its packet has given up closure and result, and
//! the scope's last look at the count is an Acquire: what the threads borrowed is not touched after
//! that.

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

/// What a scope and its threads share.
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

    /// A thread has given up all that it borrowed. `unhandled`: it panicked and nobody joined it.
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

/// A scope to spawn threads in; made by [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    // Invariant in both lifetimes, as std's.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A handle to a scoped thread, as [`std::thread::ScopedJoinHandle`].
pub struct ScopedJoinHandle<'scope, T> {
    joiner: Joiner<T>,
    scope: PhantomData<&'scope ()>,
}

/// Makes a scope for threads that borrow, as [`std::thread::scope`]. It returns when all its
/// threads have ended.
///
/// ```
/// let mut numbers = vec![1, 2, 3];
/// let mut sum = 0;
/// greenthread::scope(|s| {
///     s.spawn(|| numbers.push(4));
///     s.spawn(|| sum += 10);
/// });
/// assert_eq!((numbers.len(), sum), (4, 10));
/// ```
///
/// # Panics
/// If a thread panicked that was not joined by hand, or with what `f` panicked with.
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
    /// Starts a thread in this scope.
    ///
    /// # Panics
    /// If the thread cannot be started; [`Builder::spawn_scoped`] returns the reason instead.
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

    /// The thread.
    pub fn thread(&self) -> &Thread {
        self.joiner.thread()
    }

    /// Waits until the thread has ended; see [`JoinHandle::join`](crate::JoinHandle::join).
    ///
    /// # Errors
    /// The payload with which the thread panicked; the scope then does not report it.
    pub fn join(self) -> Result<T> {
        self.joiner.join()
    }

    /// Waits for `timeout` at most; see
    /// [`JoinHandle::join_timeout`](crate::JoinHandle::join_timeout).
    ///
    /// # Errors
    /// The handle itself, if the time was up first.
    ///
    /// # Panics
    /// If a thread waits for itself.
    pub fn join_timeout(self, timeout: Duration) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::after(timeout))
    }

    /// [`ScopedJoinHandle::join_timeout`] with a point in time.
    ///
    /// # Errors
    /// The handle itself, if the time was up first.
    ///
    /// # Panics
    /// If a thread waits for itself.
    pub fn join_deadline(self, deadline: Instant) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::at(deadline))
    }

    fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.joiner.join_by(deadline).map_err(Self::new)
    }

    /// Whether the thread's closure has returned.
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
