//! [`RwLock`]: std's, on a [`RawRwLock`]; sixteen bytes beside the data.
//!
//! Only writers poison: a reader that panics has changed nothing. The invariants are those of `mutex`.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::time::Duration;
use core::{fmt, mem};
use std::time::Instant;

use super::poison::{
    self, LockResult, POISONED, PoisonError, TryLockError, TryLockResult, Witness, exclusive, shown,
};
use super::raw_rwlock::RawRwLock;
use crate::atomic::Ordering::Relaxed;
use crate::sys::clock;

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
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: the owner of the lock owns the data.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: readers share the data (`T: Sync`); a writer may take it away (`T: Send`), and `raw`
// allows one writer, while there is no reader.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// Poisoning reports that a panic may have left the data inconsistent.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// A guard that gives shared access to the data of an [`RwLock`], and unlocks it
/// when dropped.
///
/// It is made by [`RwLock::read`] and its variants, and dereferences to the
/// data. It cannot be sent to another thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::RwLock;
///
/// let lock = RwLock::new(vec![1, 2, 3]);
/// let first = lock.read().unwrap();
/// let second = lock.read().unwrap();
/// assert_eq!(first.len() + second[0], 4);
/// assert!(lock.try_write().is_err());
/// drop((first, second));
/// assert!(lock.try_write().is_ok());
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    data: NonNull<T>,
    raw: &'a RawRwLock,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

/// A guard that gives exclusive access to the data of an [`RwLock`], and unlocks it
/// when dropped.
///
/// It is made by [`RwLock::write`] and its variants, and dereferences to the
/// data. It cannot be sent to another thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::RwLock;
///
/// let lock = RwLock::new(vec![1, 2, 3]);
/// let mut writer = lock.write().unwrap();
/// writer.push(4);
/// assert!(lock.try_read().is_err());
/// drop(writer);
/// assert_eq!(lock.read().unwrap().len(), 4);
/// ```
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    witness: Witness,
}

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
            raw: RawRwLock::new(),
            data: UnsafeCell::new(t),
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
        poison::checked(self.is_poisoned(), self.data.into_inner())
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
        // Without a deadline the call returns only when it has the lock.
        self.raw.read(None);
        self.reading()
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
        poison::tried(self.raw.try_read().then(|| self.reading()))
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
        let held = self.raw.try_read() || self.raw.read(Some(deadline()));
        poison::tried(held.then(|| self.reading()))
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
        // Without a deadline the call returns only when it has the lock.
        self.raw.write(None);
        RwLockWriteGuard::new(self)
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
        poison::tried(self.raw.try_write().then(|| RwLockWriteGuard::new(self)))
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
        let held = self.raw.try_write() || self.raw.write(Some(deadline()));
        poison::tried(held.then(|| RwLockWriteGuard::new(self)))
    }

    /// Makes the guard of a thread that has just begun to read.
    #[inline]
    fn reading(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let guard = RwLockReadGuard {
            // SAFETY: the pointer is the address of a field.
            data: unsafe { NonNull::new_unchecked(self.data.get()) },
            raw: &self.raw,
        };
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
        self.raw.queue.state(Relaxed).has(POISONED)
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
        self.raw.queue.clear(POISONED, Relaxed);
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
        poison::checked(self.is_poisoned(), self.data.get_mut())
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns a write guard into a read guard, without letting another writer in between.
    ///
    /// Readers that wait in front of the first waiting writer enter as well.
    ///
    /// This is an associated function: write `RwLockWriteGuard::downgrade(guard)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let mut writer = lock.write().unwrap();
    /// *writer = 2;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!(*reader, 2);
    /// assert_eq!(*lock.read().unwrap(), 2);
    /// ```
    pub fn downgrade(s: Self) -> RwLockReadGuard<'a, T> {
        let lock = s.lock;
        mem::forget(s);
        lock.raw.downgrade();
        lock.reading().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that no thread writes.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_read();
    }
}

exclusive!(RwLockWriteGuard of RwLock, unlock_write);
shown!(RwLock, try_read, &format_args!("<locked>"); RwLockReadGuard, RwLockWriteGuard);
