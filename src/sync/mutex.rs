//! [`Mutex`]: std's, on a [`RawMutex`](super::raw_mutex::RawMutex); eight bytes beside the data.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;
use std::time::Instant;

use super::cell::{Held, MutexCell, Unlock};
use super::poison::{self, LockResult, TryLockError, TryLockResult};
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
    cell: MutexCell<T>,
}

// What a panic left behind is told by the poison.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// The mutex is locked as long as this lives; [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held<'a, T>,
}

impl<T> Mutex<T> {
    const_fn! {
        /// A mutex that is not locked.
        #[inline]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                cell: MutexCell::new(value),
            }
        }
    }

    /// The data, without the mutex.
    ///
    /// # Errors
    /// A thread panicked while it held the mutex. The error contains the data.
    pub fn into_inner(self) -> LockResult<T> {
        poison::checked(self.cell.is_poisoned(), self.cell.into_inner())
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
        MutexGuard::new(self.cell.lock())
    }

    /// Locks the mutex if it is free at this moment.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; `Poisoned` as for [`lock`](Mutex::lock).
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.cell.try_lock() {
            Some(held) => Ok(MutexGuard::new(held)?),
            None => Err(TryLockError::WouldBlock),
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
        let held = self.cell.try_lock();
        match held.or_else(|| self.cell.lock_until(deadline())) {
            Some(held) => Ok(MutexGuard::new(held)?),
            None => Err(TryLockError::WouldBlock),
        }
    }

    /// For a caller that has just locked it.
    /// Whether a thread panicked while it held the mutex. Another may do so the moment after.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.cell.is_poisoned()
    }

    /// Forgets that a thread panicked while it held the mutex.
    #[inline]
    pub fn clear_poison(&self) {
        self.cell.clear_poison();
    }

    /// The data. Nobody else can have locked it.
    ///
    /// # Errors
    /// A thread panicked while it held the mutex. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        poison::checked(self.cell.is_poisoned(), self.cell.get_mut())
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
    #[inline]
    fn new(held: Held<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        poison::checked(held.is_poisoned(), MutexGuard { held })
    }

    /// Does something by which the mutex is unlocked, and locks it again.
    pub(super) fn unlocked<R>(&mut self, wait: impl FnOnce(Unlock<'_>) -> R) -> R {
        self.held.unlocked(wait)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.held.is_poisoned()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
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
