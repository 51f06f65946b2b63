//! Scoped threads, which may borrow from the thread that creates the scope: the scope ends after
//! all of them.

use core::marker::PhantomData;
use std::io;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use super::{Builder, JoinHandle, Result, Scope, Thread};

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
    joiner: JoinHandle<T>,
    /// `Send` and `Sync` if the result is `Send`, as in std.
    result: PhantomData<(&'scope (), std::sync::Mutex<T>)>,
}

/// Creates a scope for threads that may borrow, like [`std::thread::scope`].
///
/// This function returns when all threads of the scope have ended.
///
/// # Panics
///
/// Panics if a thread that was not joined explicitly has panicked. If `f` panics, its panic goes on
/// after all threads of the scope have ended.
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
pub fn scope<'env, F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T, T>(f: F) -> T {
    Scope::run(f).unwrap_or_else(|payload| resume_unwind(payload))
}

impl Builder {
    /// Spawns a scoped thread, which may borrow anything that outlives `scope`; see
    /// [`scope`](crate::scope).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Builder::spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let numbers = vec![1, 2, 3];
    /// thread::scope(|s| {
    ///     let sum = thread::Builder::new().spawn_scoped(s, || numbers.iter().sum::<i32>())?;
    ///     assert_eq!(sum.join().unwrap(), 6);
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F: FnOnce() -> T + Send + 'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        self.spawn_within(scope, f).map(ScopedJoinHandle::new)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a thread in this scope.
    ///
    /// # Panics
    ///
    /// Panics if the thread cannot be started; [`Builder::spawn_scoped`] returns an error instead.
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
    #[track_caller]
    pub fn spawn<F: FnOnce() -> T + Send + 'scope, T: Send + 'scope>(
        &'scope self,
        f: F,
    ) -> ScopedJoinHandle<'scope, T> {
        match Builder::new().spawn_scoped(self, f) {
            Ok(handle) => handle,
            Err(error) => panic!("failed to spawn thread: {error}"),
        }
    }
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    fn new(joiner: JoinHandle<T>) -> ScopedJoinHandle<'scope, T> {
        ScopedJoinHandle {
            joiner,
            result: PhantomData,
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
    /// Returns the payload of the panic, if the thread panicked. [`scope`] then does not panic
    /// because of it.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
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
    /// Returns the handle, if the time is up first.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
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
        self.joiner.join_timeout(timeout).map_err(Self::new)
    }

    /// Waits like [`ScopedJoinHandle::join`], but until `deadline` at most.
    ///
    /// # Errors
    ///
    /// Returns the handle, if the deadline passes first.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
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
        self.joiner.join_deadline(deadline).map_err(Self::new)
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

without_details!([T] ScopedJoinHandle<'_, T>, "ScopedJoinHandle";);
