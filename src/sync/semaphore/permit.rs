//! The semaphore's guards: each holds permits that a thread has taken, and gives them back.

use core::mem;
use std::sync::Arc;

use super::Semaphore;

/// A guard that holds permits of a [`Semaphore`] and gives them back when it is dropped.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Semaphore;
///
/// let semaphore = Semaphore::new(2);
/// let permit = semaphore.acquire();
/// assert_eq!(semaphore.available_permits(), 1);
/// drop(permit);
/// assert_eq!(semaphore.available_permits(), 2);
/// ```
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

/// A guard that holds permits of a [`Semaphore`] in an [`Arc`] and gives them back when it is
/// dropped.
///
/// The guard borrows nothing, so it can be moved into a thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Arc, Semaphore};
///
/// let semaphore = Arc::new(Semaphore::new(2));
/// let threads: Vec<_> = (0..10)
///     .map(|_| {
///         let permit = semaphore.clone().acquire_owned();
///         greenthread::spawn(move || drop(permit))
///     })
///     .collect();
/// for thread in threads {
///     thread.join().unwrap();
/// }
/// assert_eq!(semaphore.available_permits(), 2);
/// ```
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl<'a> SemaphorePermit<'a> {
    /// Makes a guard for `permits` permits that the caller has just taken.
    pub(super) fn new(semaphore: &'a Semaphore, permits: usize) -> SemaphorePermit<'a> {
        SemaphorePermit { semaphore, permits }
    }

    /// Returns the number of permits that this guard holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// assert_eq!(semaphore.acquire_many(3).num_permits(), 3);
    /// ```
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// Drops the guard without giving its permits back.
    ///
    /// From then on the semaphore has that many fewer permits. [`Semaphore::add_permits`] adds new
    /// ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(2);
    /// semaphore.acquire().forget();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn forget(self) {
        mem::forget(self);
    }
}

impl OwnedSemaphorePermit {
    /// Makes a guard for `permits` permits that the caller has just taken.
    pub(super) fn new(semaphore: Arc<Semaphore>, permits: usize) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit { semaphore, permits }
    }

    /// Returns the number of permits that this guard holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(5));
    /// assert_eq!(semaphore.acquire_many_owned(3).num_permits(), 3);
    /// ```
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// Returns the semaphore from which the permits were taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.clone().acquire_owned();
    /// assert!(Arc::ptr_eq(permit.semaphore(), &semaphore));
    /// ```
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// Drops the guard without giving its permits back.
    ///
    /// From then on the semaphore has that many fewer permits. [`Semaphore::add_permits`] adds new
    /// ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(2));
    /// semaphore.clone().acquire_owned().forget();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(self.permits);
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.semaphore.add_permits(self.permits);
    }
}
