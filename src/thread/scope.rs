//! Scoped threads: they may borrow from the thread that made the scope, which ends after them.

use core::marker::PhantomData;
use std::fmt;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use super::Result;
use super::builder::Builder;
use crate::engine::door::handle::Thread;
use crate::engine::door::{Joiner, Scope, clock, in_scope};

/// A handle to a scoped thread, as [`std::thread::ScopedJoinHandle`].
pub struct ScopedJoinHandle<'scope, T> {
    joiner: Joiner<T>,
    scope: PhantomData<&'scope ()>,
    /// As std's: `Send` and `Sync` if the result is `Send`.
    result: PhantomData<std::sync::Mutex<T>>,
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
    match in_scope(f) {
        (Err(payload), _) => resume_unwind(payload),
        (Ok(_), true) => panic!("a scoped thread panicked"),
        (Ok(result), false) => result,
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
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(joiner: Joiner<T>) -> ScopedJoinHandle<'scope, T> {
        ScopedJoinHandle {
            joiner,
            scope: PhantomData,
            result: PhantomData,
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

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}
