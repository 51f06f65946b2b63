//! The guards of an [`RwLock`](super::RwLock). Each holds a token of the
//! [`cell`](crate::sync::cell), through which it reaches the data.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::sync::cell::{Reading, Writing};

/// A guard that gives shared access to the data of an [`RwLock`](super::RwLock), and unlocks it
/// when dropped.
///
/// It is made by [`RwLock::read`](super::RwLock::read) and its variants, and dereferences to the
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
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    // The token has a pointer and not a reference: another thread may write the data before the
    // guard's drop has returned.
    pub(super) reading: Reading<'a, T>,
}

/// A guard that gives exclusive access to the data of an [`RwLock`](super::RwLock), and unlocks it
/// when dropped.
///
/// It is made by [`RwLock::write`](super::RwLock::write) and its variants, and dereferences to the
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
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    pub(super) writing: Writing<'a, T>,
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
        RwLockReadGuard {
            reading: s.writing.downgrade(),
        }
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
