//! [`Mutex`]: std's, on a [`RawMutex`]; eight bytes beside the data.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::time::Instant;

use super::poison::{self, LockResult, TryLockError, TryLockResult, Witness};
use super::raw_mutex::RawMutex;
use crate::engine::door::atomic::const_fn;
use crate::engine::door::clock;

/// Protects data from being used by several threads at once: [`std::sync::Mutex`], which blocks
/// only the green thread.
///
/// It is fair in the long run: others may be faster than the first that waits. But if it has waited
/// for a millisecond when that happens, the mutex is handed to it, and on in order, as long as
/// those next in the queue have waited so long too. It takes eight bytes beside the data, and no
/// allocation.
///
/// ```
/// use std::sync::Arc;
/// use greenthread::sync::Mutex;
///
/// let count = Arc::new(Mutex::new(0));
/// let threads: Vec<_> = (0..100).map(|_| {
///     let count = count.clone();
///     greenthread::spawn(move || *count.lock().unwrap() += 1)
/// }).collect();
/// for thread in threads {
///     thread.join().unwrap();
/// }
/// assert_eq!(*count.lock().unwrap(), 100);
/// ```
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached through a guard, of which `raw` allows one at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// What a panic left behind is told by the poison.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// The mutex is locked as long as this lives; [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    witness: Witness,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// A mutex that is not locked.
        #[inline]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                raw: RawMutex::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    /// The data, without the mutex.
    ///
    /// # Errors
    /// A thread panicked while it held the mutex. The error contains the data.
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.raw.is_poisoned(), self.data.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the mutex is free and locks it.
    ///
    /// A thread that locks a mutex which it holds already waits for ever.
    ///
    /// # Errors
    /// A thread panicked while it held the mutex. The mutex is locked all the same, by the guard in
    /// the error.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.lock(None);
        self.guard()
    }

    /// Locks the mutex if it is free at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`lock`](Mutex::lock).
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.raw.try_lock() {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// [`lock`](Mutex::lock), for `timeout` at most. Not in std; the name is parking_lot's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::Mutex;
    ///
    /// let mutex = Mutex::new(1);
    /// let held = mutex.lock().unwrap();
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// `WouldBlock` if the time is up; `Poisoned` as for [`lock`](Mutex::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> TryLockResult<MutexGuard<'_, T>> {
        self.lock_by(|| clock::after(timeout))
    }

    /// [`lock`](Mutex::lock), until `deadline` at most. Not in std; the name is parking_lot's.
    ///
    /// # Errors
    /// As [`try_lock_for`](Mutex::try_lock_for).
    pub fn try_lock_until(&self, deadline: Instant) -> TryLockResult<MutexGuard<'_, T>> {
        self.lock_by(|| clock::at(deadline))
    }

    fn lock_by(&self, deadline: impl FnOnce() -> u64) -> TryLockResult<MutexGuard<'_, T>> {
        if self.raw.try_lock() || self.raw.lock(Some(deadline())) {
            Ok(self.guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// For a caller that has just locked it.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = MutexGuard {
            mutex: self,
            witness: Witness::new(),
            not_send: PhantomData,
        };
        poison::checked(self.raw.is_poisoned(), guard)
    }

    /// Whether a thread panicked while it held the mutex. Another may do so the moment after.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.raw.is_poisoned()
    }

    /// Forgets that a thread panicked while it held the mutex.
    #[inline]
    pub fn clear_poison(&self) {
        self.raw.clear_poison();
    }

    /// The data. Nobody else can have locked it.
    ///
    /// # Errors
    /// A thread panicked while it held the mutex. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.raw.is_poisoned(), self.data.get_mut())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("Mutex");
        match self.try_lock() {
            Ok(guard) => d.field("data", &&*guard),
            Err(TryLockError::Poisoned(error)) => d.field("data", &&**error.get_ref()),
            Err(TryLockError::WouldBlock) => d.field("data", &"<locked>"),
        };
        d.field("poisoned", &self.is_poisoned());
        d.finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// For a condition variable, which unlocks the mutex behind the guard's back and locks it
    /// again.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(super) fn raw(&self) -> &RawMutex {
        &self.raw
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that the mutex is locked.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed uniquely.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.witness.has_seen_a_panic() {
            self.mutex.raw.poison();
        }
        // SAFETY: the guard is the proof that this thread holds it.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
