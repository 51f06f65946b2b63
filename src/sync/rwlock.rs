//! [`RwLock`]: std's, on a [`RawRwLock`](super::raw_rwlock::RawRwLock); sixteen bytes beside the
//! data.
//!
//! Only writers poison: a reader that panics has changed nothing.

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::time::Instant;

use super::cell::RwCell;
pub use super::cell::{RwLockReadGuard, RwLockWriteGuard};
use super::poison::{self, LockResult, TryLockError, TryLockResult};
use crate::engine::facade::clock;

/// A lock that lets many threads read the data inside it at once, or one thread write it.
///
/// It works as [`std::sync::RwLock`] does, poisoning included, and blocks only the green thread. A
/// thread that panics while it writes poisons the lock; a thread that panics while it reads does
/// not, since it has changed nothing. See the [module](super).
///
/// At most 2<sup>30</sup> − 2 threads can read at once.
///
/// # Fairness
///
/// Neither readers nor writers starve. A thread that finds the lock free may take it ahead of those
/// that wait, but once the first of them has waited for a millisecond, no thread overtakes it any
/// more. All readers at the front of the queue enter together.
///
/// # Deadlocks
///
/// A thread that holds the lock for reading should not lock it for reading again. If a writer
/// begins to wait in between, the second read may wait for the writer, which waits for the first
/// read.
///
/// # Examples
///
/// ```
/// use greenthread::sync::RwLock;
///
/// let lock = RwLock::new(5);
/// greenthread::scope(|scope| {
///     // Many threads read at the same time.
///     for _ in 0..10 {
///         scope.spawn(|| assert_eq!(*lock.read().unwrap(), 5));
///     }
/// });
/// // One thread writes.
/// *lock.write().unwrap() += 1;
/// assert_eq!(*lock.read().unwrap(), 6);
/// ```
pub struct RwLock<T: ?Sized> {
    cell: RwCell<T>,
}

// Poisoning reports that a panic may have left the data inconsistent.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

impl<T> RwLock<T> {
    /// Creates an unlocked reader-writer lock that contains `t`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// static LIMIT: RwLock<u32> = RwLock::new(10);
    /// assert_eq!(*LIMIT.read().unwrap(), 10);
    /// ```
    #[inline]
    pub const fn new(t: T) -> RwLock<T> {
        RwLock {
            cell: RwCell::new(t),
        }
    }

    /// Consumes the lock and returns the data.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock is poisoned. The error contains the data.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(String::new());
    /// lock.write().unwrap().push_str("modified");
    /// assert_eq!(lock.into_inner().unwrap(), "modified");
    /// ```
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.cell.is_poisoned(), self.cell.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading, blocking the current thread while another thread writes.
    ///
    /// Other threads may hold the lock for reading at the same time. The call also blocks if a
    /// writer has waited for a long time.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock is poisoned. It is locked all the same: the error contains the
    /// guard.
    ///
    /// # Panics
    ///
    /// Panics if 2<sup>30</sup> − 2 threads hold the lock for reading already.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(1);
    /// let here = lock.read().unwrap();
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| assert_eq!(*lock.read().unwrap(), 1));
    /// });
    /// assert_eq!(*here, 1);
    /// ```
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.guard(self.cell.read())
    }

    /// Locks for reading if that is possible without blocking.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the lock cannot be taken now, and
    /// [`TryLockError::Poisoned`], which contains the guard, if it is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(1);
    /// match lock.try_read() {
    ///     Ok(guard) => assert_eq!(*guard, 1),
    ///     Err(_) => unreachable!("no thread writes"),
    /// };
    ///
    /// let _writer = lock.write().unwrap();
    /// assert!(lock.try_read().is_err());
    /// ```
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        poison::tried(self.cell.try_read().map(|guard| self.guard(guard)))
    }

    /// Locks for reading, blocking the current thread for no longer than `timeout`.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the lock is poisoned.
    ///
    /// # Panics
    ///
    /// Panics if 2<sup>30</sup> − 2 threads hold the lock for reading already.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    /// use std::time::Duration;
    ///
    /// let lock = RwLock::new(1);
    /// let _writer = lock.write().unwrap();
    /// assert!(lock.try_read_for(Duration::from_millis(1)).is_err());
    /// ```
    pub fn try_read_for(&self, timeout: Duration) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_by(|| clock::after(timeout))
    }

    /// Locks for reading, blocking the current thread until `deadline` at the latest.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the lock is poisoned.
    ///
    /// # Panics
    ///
    /// Panics if 2<sup>30</sup> − 2 threads hold the lock for reading already.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = RwLock::new(1);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(*lock.try_read_until(deadline).unwrap(), 1);
    /// ```
    pub fn try_read_until(&self, deadline: Instant) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_by(|| clock::at(deadline))
    }

    fn read_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let guard = self.cell.try_read();
        let guard = guard.or_else(|| self.cell.read_until(deadline()));
        poison::tried(guard.map(|guard| self.guard(guard)))
    }

    /// Locks for writing, blocking the current thread while other threads read or write.
    ///
    /// A thread that already holds the lock and locks it for writing waits for ever.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock is poisoned. It is locked all the same: the error contains the
    /// guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(0);
    /// greenthread::scope(|scope| {
    ///     for _ in 0..10 {
    ///         scope.spawn(|| *lock.write().unwrap() += 1);
    ///     }
    /// });
    /// assert_eq!(*lock.read().unwrap(), 10);
    /// ```
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.guard(self.cell.write())
    }

    /// Locks for writing if that is possible without blocking.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the lock cannot be taken now, and
    /// [`TryLockError::Poisoned`], which contains the guard, if it is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(1);
    /// let reader = lock.read().unwrap();
    /// assert!(lock.try_write().is_err());
    /// drop(reader);
    /// *lock.try_write().unwrap() = 2;
    /// ```
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        poison::tried(self.cell.try_write().map(|guard| self.guard(guard)))
    }

    /// Locks for writing, blocking the current thread for no longer than `timeout`.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the lock is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    /// use std::time::Duration;
    ///
    /// let lock = RwLock::new(1);
    /// let _reader = lock.read().unwrap();
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_err());
    /// ```
    pub fn try_write_for(&self, timeout: Duration) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_by(|| clock::after(timeout))
    }

    /// Locks for writing, blocking the current thread until `deadline` at the latest.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the lock is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = RwLock::new(1);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// *lock.try_write_until(deadline).unwrap() = 2;
    /// assert_eq!(*lock.read().unwrap(), 2);
    /// ```
    pub fn try_write_until(&self, deadline: Instant) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_by(|| clock::at(deadline))
    }

    fn write_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let guard = self.cell.try_write();
        let guard = guard.or_else(|| self.cell.write_until(deadline()));
        poison::tried(guard.map(|guard| self.guard(guard)))
    }

    /// Makes a guard for a caller that has just locked for reading.
    #[inline]
    fn guard<G>(&self, guard: G) -> LockResult<G> {
        poison::checked(self.is_poisoned(), guard)
    }

    /// Returns `true` if a thread has panicked while it held the lock for writing.
    ///
    /// Another thread may poison the lock at any time, so do not rely on `false` for long.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, RwLock};
    ///
    /// let lock = Arc::new(RwLock::new(0));
    /// let other = Arc::clone(&lock);
    /// let result = greenthread::spawn(move || {
    ///     let _writer = other.write().unwrap();
    ///     panic!("the lock is held for writing");
    /// })
    /// .join();
    /// assert!(result.is_err());
    /// assert!(lock.is_poisoned());
    /// ```
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.cell.is_poisoned()
    }

    /// Clears the poison, so that later calls return the guard without an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, RwLock};
    ///
    /// let lock = Arc::new(RwLock::new(0));
    /// let other = Arc::clone(&lock);
    /// let _result = greenthread::spawn(move || {
    ///     let _writer = other.write().unwrap();
    ///     panic!("the lock is held for writing");
    /// })
    /// .join();
    ///
    /// let mut guard = lock.write().unwrap_or_else(|poisoned| {
    ///     lock.clear_poison();
    ///     poisoned.into_inner()
    /// });
    /// *guard = 1;
    /// drop(guard);
    /// assert!(!lock.is_poisoned());
    /// ```
    #[inline]
    pub fn clear_poison(&self) {
        self.cell.clear_poison();
    }

    /// Returns a mutable reference to the data, without locking.
    ///
    /// No locking is needed: while the lock is borrowed exclusively, no other thread can take it.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock is poisoned. The error contains the reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::RwLock;
    ///
    /// let mut lock = RwLock::new(0);
    /// *lock.get_mut().unwrap() = 10;
    /// assert_eq!(*lock.read().unwrap(), 10);
    /// ```
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.cell.is_poisoned(), self.cell.get_mut())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(t: T) -> RwLock<T> {
        RwLock::new(t)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(guard) => d.field("data", &&*guard),
            Err(TryLockError::Poisoned(error)) => d.field("data", &&**error.get_ref()),
            Err(TryLockError::WouldBlock) => d.field("data", &format_args!("<locked>")),
        };
        d.field("poisoned", &self.is_poisoned());
        d.finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
