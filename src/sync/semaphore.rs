//! [`Semaphore`]: the ways to take permits, on a [`Count`].
//!
//! `count` has the protocol, `permit` the guards.

mod count;
mod permit;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use self::count::Count;
pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
use crate::sys::clock;

/// A counter of permits, which limits how many threads do something at a time.
///
/// A thread takes permits before it begins and gives them back when it has finished. If too few
/// permits are there, it waits, which blocks only the green thread. A guard holds the permits that
/// the thread has taken, and gives them back when it is dropped.
///
/// Threads are served strictly in the order in which they ask, however many permits they ask for.
/// std has no semaphore; the names are tokio's.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Semaphore;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// static CONNECTIONS: Semaphore = Semaphore::new(3);
/// let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// greenthread::scope(|scope| {
///     for _ in 0..100 {
///         scope.spawn(|| {
///             let _permit = CONNECTIONS.acquire();
///             most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
///             greenthread::yield_now();
///             now.fetch_sub(1, Relaxed);
///         });
///     }
/// });
/// assert!(most.into_inner() <= 3);
/// assert_eq!(CONNECTIONS.available_permits(), 3);
/// ```
pub struct Semaphore {
    count: Count,
}

impl Semaphore {
    /// The largest number of permits that a semaphore can have.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    /// assert_eq!(semaphore.available_permits(), Semaphore::MAX_PERMITS);
    /// ```
    pub const MAX_PERMITS: usize = Count::MAX;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// static SLOTS: Semaphore = Semaphore::new(10);
    /// assert_eq!(SLOTS.available_permits(), 10);
    /// ```
    #[must_use]
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore {
            count: Count::new(permits),
        }
    }

    /// Returns the number of permits that are there now.
    ///
    /// Other threads may take or give back permits at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// let _permits = semaphore.acquire_many(3);
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.count.permits()
    }

    /// Adds `n` new permits to the semaphore.
    ///
    /// # Panics
    ///
    /// Panics if more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS) permits would be there. The
    /// semaphore does not count the permits that threads have taken, so dropping a guard can panic
    /// for the same reason after too many permits were added.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(0);
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| semaphore.acquire().forget());
    ///     semaphore.add_permits(1); // wakes the thread
    /// });
    /// assert_eq!(semaphore.available_permits(), 0);
    /// ```
    pub fn add_permits(&self, n: usize) {
        self.count.give(n);
    }

    /// Takes one permit, blocking the current thread until there is one.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire();
    /// assert!(semaphore.try_acquire().is_none());
    /// drop(permit);
    /// assert!(semaphore.try_acquire().is_some());
    /// ```
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Takes `n` permits at once, blocking the current thread until there are enough.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// let permits = semaphore.acquire_many(4);
    /// assert_eq!(permits.num_permits(), 4);
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn acquire_many(&self, n: usize) -> SemaphorePermit<'_> {
        self.count.take(n, None);
        SemaphorePermit::new(self, n)
    }

    /// Takes one permit if there is one and no other thread waits; never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.try_acquire();
    /// assert!(permit.is_some());
    /// assert!(semaphore.try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits at once if there are enough and no other thread waits; never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(4);
    /// let permits = semaphore.try_acquire_many(3);
    /// assert!(permits.is_some());
    /// assert!(semaphore.try_acquire_many(2).is_none());
    /// ```
    pub fn try_acquire_many(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        self.count
            .try_take(n)
            .then(|| SemaphorePermit::new(self, n))
    }

    /// Takes one permit, blocking the current thread for no longer than `timeout`.
    ///
    /// Returns `None` if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire_timeout(Duration::from_millis(1));
    /// assert!(permit.is_some());
    /// assert!(semaphore.acquire_timeout(Duration::from_millis(1)).is_none());
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Takes one permit, blocking the current thread until `deadline` at the latest.
    ///
    /// Returns `None` if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// let semaphore = Semaphore::new(0);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(semaphore.acquire_deadline(deadline).is_none());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn acquire_deadline(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_deadline(1, deadline)
    }

    /// Takes `n` permits at once, blocking the current thread for no longer than `timeout`.
    ///
    /// Returns `None`, and takes no permit, if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let semaphore = Semaphore::new(2);
    /// assert!(semaphore.acquire_many_timeout(2, Duration::from_secs(60)).is_some());
    /// assert!(semaphore.acquire_many_timeout(3, Duration::from_millis(1)).is_none());
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn acquire_many_timeout(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        let taken = self.count.try_take(n) || self.count.take(n, Some(clock::after(timeout)));
        taken.then(|| SemaphorePermit::new(self, n))
    }

    /// Takes `n` permits at once, blocking the current thread until `deadline` at the latest.
    ///
    /// Returns `None`, and takes no permit, if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// let semaphore = Semaphore::new(2);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(semaphore.acquire_many_deadline(3, deadline).is_none());
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn acquire_many_deadline(
        &self,
        n: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let taken = self.count.try_take(n) || self.count.take(n, Some(clock::at(deadline)));
        taken.then(|| SemaphorePermit::new(self, n))
    }

    /// Takes one permit as [`acquire`](Semaphore::acquire) does, without borrowing the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.clone().acquire_owned();
    /// greenthread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn acquire_owned(self: Arc<Self>) -> OwnedSemaphorePermit {
        self.acquire_many_owned(1)
    }

    /// Takes `n` permits as [`acquire_many`](Semaphore::acquire_many) does, without borrowing the
    /// semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// let permits = semaphore.clone().acquire_many_owned(2);
    /// greenthread::spawn(move || assert_eq!(permits.num_permits(), 2)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 3);
    /// ```
    pub fn acquire_many_owned(self: Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        self.count.take(n, None);
        OwnedSemaphorePermit::new(self, n)
    }

    /// Takes `n` permits as [`try_acquire_many`](Semaphore::try_acquire_many) does, without
    /// borrowing the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// let permits = semaphore.clone().try_acquire_many_owned(2);
    /// assert!(permits.is_some());
    /// assert!(semaphore.clone().try_acquire_many_owned(2).is_none());
    /// ```
    pub fn try_acquire_many_owned(self: Arc<Self>, n: usize) -> Option<OwnedSemaphorePermit> {
        self.count
            .try_take(n)
            .then(|| OwnedSemaphorePermit::new(self, n))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("permits", &self.available_permits())
            .finish_non_exhaustive()
    }
}
