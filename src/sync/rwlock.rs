//! [`RwLock`]: std's, on a [`RawRwLock`]; sixteen bytes beside the data.
//!
//! Only writers poison: a reader that panics has changed nothing.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::time::Duration;
use std::time::Instant;

use super::poison::{self, LockResult, TryLockError, TryLockResult, Witness};
use super::raw_rwlock::RawRwLock;
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
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: who owns the lock owns the data.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: readers share the data (`T: Sync`); a writer, of which `raw` allows one while there is no
// reader, may take it away (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// What a panic left behind is told by the poison.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// The lock is held for reading as long as this lives; [`std::sync::RwLockReadGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Not a reference: while the guard is dropped the data may change already.
    data: NonNull<T>,
    raw: &'a RawRwLock,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

/// The lock is held for writing as long as this lives; [`std::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    witness: Witness,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    /// A lock that nobody holds.
    #[inline]
    pub const fn new(t: T) -> RwLock<T> {
        RwLock {
            raw: RawRwLock::new(),
            data: UnsafeCell::new(t),
        }
    }

    /// The data, without the lock.
    ///
    /// # Errors
    /// A thread panicked while it held the lock for writing. The error contains the data.
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.raw.is_poisoned(), self.data.into_inner())
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
        self.raw.read(None);
        self.read_guard()
    }

    /// Locks for reading if that is possible at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`read`](RwLock::read).
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        match self.raw.try_read() {
            true => Ok(self.read_guard()?),
            false => Err(TryLockError::WouldBlock),
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
        match self.raw.try_read() || self.raw.read(Some(deadline())) {
            true => Ok(self.read_guard()?),
            false => Err(TryLockError::WouldBlock),
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
        self.raw.write(None);
        self.write_guard()
    }

    /// Locks for writing if that is possible at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`read`](RwLock::read).
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        match self.raw.try_write() {
            true => Ok(self.write_guard()?),
            false => Err(TryLockError::WouldBlock),
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
        match self.raw.try_write() || self.raw.write(Some(deadline())) {
            true => Ok(self.write_guard()?),
            false => Err(TryLockError::WouldBlock),
        }
    }

    /// For a caller that has just locked it for reading.
    #[inline]
    fn read_guard(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        poison::checked(self.raw.is_poisoned(), self.as_reader())
    }

    #[inline]
    fn as_reader(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            // SAFETY: the address of a field.
            data: unsafe { NonNull::new_unchecked(self.data.get()) },
            raw: &self.raw,
        }
    }

    /// For a caller that has just locked it for writing.
    #[inline]
    fn write_guard(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let guard = RwLockWriteGuard {
            lock: self,
            witness: Witness::new(),
            not_send: PhantomData,
        };
        poison::checked(self.raw.is_poisoned(), guard)
    }

    /// Whether a thread panicked while it held the lock for writing. Another may do so the moment
    /// after.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.raw.is_poisoned()
    }

    /// Forgets that a thread panicked while it held the lock for writing.
    #[inline]
    pub fn clear_poison(&self) {
        self.raw.clear_poison();
    }

    /// The data. Nobody else can have locked it.
    ///
    /// # Errors
    /// A thread panicked while it held the lock for writing. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.raw.is_poisoned(), self.data.get_mut())
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
        let lock = s.lock;
        mem::forget(s);
        // SAFETY: the guard was the proof that this thread writes.
        unsafe { lock.raw.downgrade() };
        lock.as_reader()
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
        // SAFETY: the guard is the proof that nobody writes.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that nobody else holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed uniquely.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard is the proof that this thread reads.
        unsafe { self.raw.unlock_read() };
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.witness.has_seen_a_panic() {
            self.lock.raw.poison();
        }
        // SAFETY: the guard is the proof that this thread writes.
        unsafe { self.lock.raw.unlock_write() };
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
