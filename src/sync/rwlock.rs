//! [`RwLock`]: std's, on a [`RawRwLock`](super::raw_rwlock::RawRwLock); sixteen bytes beside the data.
//!
//! Only writers poison: a reader that panics has changed nothing.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::time::Instant;

use super::cell::{Reading, RwCell, Writing};
use super::poison::{self, LockResult, TryLockError, TryLockResult};
use crate::engine::door::clock;

/// Protects data that many threads may read at once, or one may write: [`std::sync::RwLock`], which
/// blocks only the green thread.
///
/// Neither side starves: who comes later may overtake a waiting thread for a millisecond, not
/// longer; and all who wait to read go together. A thread that reads should not lock for reading
/// again: if a writer waits in between, both may wait for ever. At most 2^30 − 2 may read at once.
///
/// ```
/// use greenthread::sync::RwLock;
///
/// let lock = RwLock::new(5);
/// {
///     let (one, another) = (lock.read().unwrap(), lock.read().unwrap());
///     assert_eq!(*one + *another, 10);
/// }
/// *lock.write().unwrap() += 1;
/// assert_eq!(*lock.read().unwrap(), 6);
/// ```
pub struct RwLock<T: ?Sized> {
    cell: RwCell<T>,
}

// What a panic left behind is told by the poison.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// The lock is held for reading as long as this lives; [`std::sync::RwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Not a reference: while the guard is dropped the data may change already.
    reading: Reading<'a, T>,
}

/// The lock is held for writing as long as this lives; [`std::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    writing: Writing<'a, T>,
}

impl<T> RwLock<T> {
    /// A lock that nobody holds.
    #[inline]
    pub const fn new(t: T) -> RwLock<T> {
        RwLock {
            cell: RwCell::new(t),
        }
    }

    /// The data, without the lock.
    ///
    /// # Errors
    /// A thread panicked while it held the lock for writing. The error contains the data.
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.cell.is_poisoned(), self.cell.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until nobody writes and locks for reading.
    ///
    /// # Errors
    /// A thread panicked while it held the lock for writing. It is locked all the same, by the
    /// guard in the error.
    ///
    /// # Panics
    /// If 2^30 − 2 threads read already.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.read_guard(self.cell.read())
    }

    /// Locks for reading if that is possible at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`read`](RwLock::read).
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        match self.cell.try_read() {
            Some(held) => Ok(self.read_guard(held)?),
            None => Err(TryLockError::WouldBlock),
        }
    }

    /// [`read`](RwLock::read), for `timeout` at most. Not in std; the name is parking_lot's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(1);
    /// let _writer = lock.write().unwrap();
    /// assert!(lock.try_read_for(Duration::from_millis(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// `WouldBlock` if the time is up; `Poisoned` as for [`read`](RwLock::read).
    ///
    /// # Panics
    /// If 2^30 − 2 threads read already.
    pub fn try_read_for(&self, timeout: Duration) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_by(|| clock::after(timeout))
    }

    /// [`read`](RwLock::read), until `deadline` at most. Not in std; the name is parking_lot's.
    ///
    /// # Errors
    /// As [`try_read_for`](RwLock::try_read_for).
    ///
    /// # Panics
    /// If 2^30 − 2 threads read already.
    pub fn try_read_until(&self, deadline: Instant) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.read_by(|| clock::at(deadline))
    }

    fn read_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let held = self.cell.try_read();
        match held.or_else(|| self.cell.read_until(deadline())) {
            Some(held) => Ok(self.read_guard(held)?),
            None => Err(TryLockError::WouldBlock),
        }
    }

    /// Blocks until nobody else holds the lock and locks for writing.
    ///
    /// A thread that holds the lock already waits for ever.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.write_guard(self.cell.write())
    }

    /// Locks for writing if that is possible at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`read`](RwLock::read).
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        match self.cell.try_write() {
            Some(held) => Ok(self.write_guard(held)?),
            None => Err(TryLockError::WouldBlock),
        }
    }

    /// [`write`](RwLock::write), for `timeout` at most. Not in std; the name is parking_lot's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::RwLock;
    ///
    /// let lock = RwLock::new(1);
    /// let _reader = lock.read().unwrap();
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// `WouldBlock` if the time is up; `Poisoned` as for [`read`](RwLock::read).
    pub fn try_write_for(&self, timeout: Duration) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_by(|| clock::after(timeout))
    }

    /// [`write`](RwLock::write), until `deadline` at most. Not in std; the name is parking_lot's.
    ///
    /// # Errors
    /// As [`try_write_for`](RwLock::try_write_for).
    pub fn try_write_until(&self, deadline: Instant) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.write_by(|| clock::at(deadline))
    }

    fn write_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let held = self.cell.try_write();
        match held.or_else(|| self.cell.write_until(deadline())) {
            Some(held) => Ok(self.write_guard(held)?),
            None => Err(TryLockError::WouldBlock),
        }
    }

    /// For a caller that has just locked it for reading.
    #[inline]
    fn read_guard<'a>(&self, reading: Reading<'a, T>) -> LockResult<RwLockReadGuard<'a, T>> {
        poison::checked(self.is_poisoned(), RwLockReadGuard { reading })
    }

    #[inline]
    fn write_guard<'a>(&self, writing: Writing<'a, T>) -> LockResult<RwLockWriteGuard<'a, T>> {
        poison::checked(self.is_poisoned(), RwLockWriteGuard { writing })
    }

    /// Whether a thread panicked while it held the lock for writing. Another may do so the moment
    /// after.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.cell.is_poisoned()
    }

    /// Forgets that a thread panicked while it held the lock for writing.
    #[inline]
    pub fn clear_poison(&self) {
        self.cell.clear_poison();
    }

    /// The data. Nobody else can have locked it.
    ///
    /// # Errors
    /// A thread panicked while it held the lock for writing. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.cell.is_poisoned(), self.cell.get_mut())
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on reading what was written, without letting another writer in between. Those that wait
    /// to read, and are not behind a writer, come in too.
    ///
    /// ```
    /// use greenthread::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let mut writer = lock.write().unwrap();
    /// *writer = 2;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!((*reader, *lock.read().unwrap()), (2, 2));
    /// ```
    pub fn downgrade(s: Self) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard {
            reading: s.writing.downgrade(),
        }
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

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.reading
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.writing
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.writing
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
