//! [`Mutex`], as in std, on a [`RawMutex`]: eight bytes beside the data.
//!
//! Invariants:
//! 1. Only this file reaches the `raw` mutex of a mutex. So it is locked as often as there are guards, and is not
//!    unlocked more often.
//! 2. A guard is made when `raw` is locked, and unlocks `raw` when the guard is dropped. The guard does not leave its
//!    thread. If a panic has begun meanwhile, the guard leaves poison. (While a condition variable has the mutex of a
//!    guard unlocked, the guard is borrowed uniquely: no code looks at the data through it.)

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::time::Instant;

use super::poison::{
    self, LockResult, POISONED, PoisonError, TryLockError, TryLockResult, Witness, exclusive, shown,
};
use super::raw_mutex::RawMutex;
use crate::atomic::{Ordering::Relaxed, const_fn};
use crate::sys::clock;

/// A lock that lets one thread at a time use the data inside it.
///
/// A thread locks the mutex with [`lock`](Mutex::lock) or [`try_lock`](Mutex::try_lock) and uses
/// the data through the guard that it gets. The mutex is unlocked when the guard is dropped. It
/// works as [`std::sync::Mutex`] does, poisoning included, and blocks only the green thread.
///
/// # Fairness
///
/// A thread that finds the mutex free takes it at once, even while others wait: it is running
/// already, and they are not. When a thread has waited for a millisecond, the mutex is handed
/// directly from one waiting thread to the next, until the next one has waited for less time than
/// that. So no thread waits for ever.
///
/// # Size
///
/// A mutex takes eight bytes besides the data, and allocates no memory.
///
/// # Poisoning
///
/// A thread that panics while it holds the guard poisons the mutex; see the [module](super).
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Arc, Mutex};
///
/// let count = Arc::new(Mutex::new(0));
/// let threads: Vec<_> = (0..100).map(|_| {
///     let count = Arc::clone(&count);
///     greenthread::spawn(move || *count.lock().unwrap() += 1)
/// }).collect();
/// for thread in threads {
///     thread.join().unwrap();
/// }
/// assert_eq!(*count.lock().unwrap(), 100);
/// ```
pub struct Mutex<T: ?Sized> {
    /// For a condition variable, too, which unlocks it and locks it again.
    pub(super) raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached through a guard, and `raw` allows one at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// Poisoning reports that a panic may have left the data inconsistent.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// A guard that gives access to the data of a [`Mutex`] and unlocks the mutex when it is dropped.
///
/// It is made by [`Mutex::lock`] and its variants, and dereferences to the data. It cannot be sent
/// to another thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Mutex, MutexGuard};
///
/// fn add(mut list: MutexGuard<'_, Vec<u32>>, number: u32) {
///     list.push(number);
/// } // the mutex is unlocked here
///
/// let list = Mutex::new(Vec::new());
/// add(list.lock().unwrap(), 1);
/// add(list.lock().unwrap(), 2);
/// assert_eq!(*list.lock().unwrap(), [1, 2]);
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(super) lock: &'a Mutex<T>,
    witness: Witness,
}

impl<T> Mutex<T> {
    const_fn! {
        /// Creates an unlocked mutex that contains `value`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::sync::Mutex;
        ///
        /// static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        /// NAMES.lock().unwrap().push("Ann");
        /// ```
        #[inline]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                raw: RawMutex::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// Consumes the mutex and returns the data.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned. The error contains the data.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    ///
    /// let mutex = Mutex::new("data".to_string());
    /// assert_eq!(mutex.into_inner().unwrap(), "data");
    /// ```
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.is_poisoned(), self.data.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, blocking the current thread while another thread holds it.
    ///
    /// A thread that already holds the mutex and locks it again waits for ever.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned. The mutex is locked all the same: the error
    /// contains the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    ///
    /// let count = Mutex::new(0);
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| *count.lock().unwrap() += 1);
    ///     scope.spawn(|| *count.lock().unwrap() += 1);
    /// });
    /// assert_eq!(*count.lock().unwrap(), 2);
    /// ```
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        // Without a deadline the call returns only when it has the lock.
        self.raw.lock(None);
        MutexGuard::new(self)
    }

    /// Locks the mutex if that is possible without blocking.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the mutex is not free, and
    /// [`TryLockError::Poisoned`], which contains the guard, if it is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    ///
    /// let mutex = Mutex::new(0);
    /// if let Ok(mut guard) = mutex.try_lock() {
    ///     *guard = 10;
    ///     assert!(mutex.try_lock().is_err());
    /// }
    /// assert_eq!(*mutex.try_lock().unwrap(), 10);
    /// ```
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        poison::tried(self.raw.try_lock().then(|| MutexGuard::new(self)))
    }

    /// Locks the mutex, blocking the current thread for no longer than `timeout`.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the mutex is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    /// use std::time::Duration;
    ///
    /// let mutex = Mutex::new(1);
    /// let held = mutex.lock().unwrap();
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_err());
    /// drop(held);
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_ok());
    /// ```
    pub fn try_lock_for(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        self.lock_by(|| clock::after(timeout))
    }

    /// Locks the mutex, blocking the current thread until `deadline` at the latest.
    ///
    /// std has no such method; the name is parking_lot's.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::WouldBlock`] if the time is up, and [`TryLockError::Poisoned`],
    /// which contains the guard, if the mutex is poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    /// use std::time::{Duration, Instant};
    ///
    /// let mutex = Mutex::new(1);
    /// let _held = mutex.lock().unwrap();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(mutex.try_lock_until(deadline).is_err());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn try_lock_until(&self, deadline: Instant) -> TryLockResult<MutexGuard<'_, T>> {
        self.lock_by(|| clock::at(deadline))
    }

    fn lock_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<MutexGuard<'_, T>> {
        let locked = self.raw.try_lock() || self.raw.lock(Some(deadline()));
        poison::tried(locked.then(|| MutexGuard::new(self)))
    }

    /// Locks the mutex, poisoned or not, for data that every panic leaves consistent.
    pub(crate) fn lock_anyway(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if a thread has panicked while it held the mutex.
    ///
    /// Another thread may poison the mutex at any time, so do not rely on `false` for long.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Mutex};
    ///
    /// let mutex = Arc::new(Mutex::new(0));
    /// let other = Arc::clone(&mutex);
    /// let result = greenthread::spawn(move || {
    ///     let _guard = other.lock().unwrap();
    ///     panic!("the mutex is held");
    /// })
    /// .join();
    /// assert!(result.is_err());
    /// assert!(mutex.is_poisoned());
    /// ```
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.raw.queue.state(Relaxed).has(POISONED)
    }

    /// Clears the poison, so that later locks succeed without an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Mutex};
    ///
    /// let mutex = Arc::new(Mutex::new(0));
    /// let other = Arc::clone(&mutex);
    /// let _result = greenthread::spawn(move || {
    ///     let _guard = other.lock().unwrap();
    ///     panic!("the mutex is held");
    /// })
    /// .join();
    ///
    /// let mut guard = mutex.lock().unwrap_or_else(|poisoned| {
    ///     mutex.clear_poison();
    ///     poisoned.into_inner()
    /// });
    /// *guard = 1;
    /// drop(guard);
    /// assert!(!mutex.is_poisoned());
    /// ```
    #[inline]
    pub fn clear_poison(&self) {
        self.raw.queue.clear(POISONED, Relaxed);
    }

    /// Returns a mutable reference to the data, without locking.
    ///
    /// No locking is needed: while the mutex is borrowed exclusively, no thread can lock it.
    ///
    /// # Errors
    ///
    /// Returns an error if the mutex is poisoned. The error contains the reference.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Mutex;
    ///
    /// let mut mutex = Mutex::new(0);
    /// *mutex.get_mut().unwrap() = 10;
    /// assert_eq!(*mutex.lock().unwrap(), 10);
    /// ```
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.is_poisoned(), self.data.get_mut())
    }
}

exclusive!(MutexGuard of Mutex, unlock);
shown!(Mutex, try_lock, &"<locked>"; MutexGuard);
