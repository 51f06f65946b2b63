//! The lock that policies use.

use core::ops::{Deref, DerefMut};

use crate::engine::sched::current;
use crate::engine::sched::current::PreemptionOff;
use crate::engine::sys::lock;

/// A mutual exclusion lock for data that the processors of a policy share.
///
/// The holder is not preempted, so others wait only as long as it takes to use the data. Hold the
/// lock for moments only, and neither allocate nor free memory meanwhile. A panic does not poison
/// the lock.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Lock;
///
/// let count = Lock::new(41);
/// *count.lock() += 1;
/// assert_eq!(*count.lock(), 42);
/// ```
#[derive(Default)]
pub struct Lock<T>(lock::Lock<T>);

/// A guard that gives access to the data of a [`Lock`] and unlocks it when it is dropped.
///
/// The guard stays on the thread that has locked. If the guard is forgotten, the lock is held for
/// ever. The thread is then not preempted until it ends, and keeps its processor even while it is
/// blocked in the kernel.
///
/// # Examples
///
/// ```
/// use greenthread::policy::Lock;
///
/// let lock = Lock::new(vec![1]);
/// let mut guard = lock.lock();
/// guard[0] += 1;
/// drop(guard); // unlocks
/// assert_eq!(lock.lock()[0], 2);
/// ```
#[must_use = "unlocked at once if it is not kept"]
pub struct Guard<'a, T> {
    // In this order: unlocked, then preemptible.
    value: lock::Guard<'a, T>,
    _off: PreemptionOff,
}

impl<T> Lock<T> {
    /// Creates an unlocked lock around `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Lock;
    ///
    /// static TURNS: Lock<u64> = Lock::new(0);
    /// *TURNS.lock() += 1;
    /// ```
    pub const fn new(value: T) -> Lock<T> {
        Lock(lock::Lock::new(value))
    }

    /// Acquires the lock, waiting while another caller holds it.
    ///
    /// A caller that already holds the lock waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::Lock;
    ///
    /// let most = Lock::new(0);
    /// greenthread::scope(|scope| {
    ///     for number in [3, 9, 6] {
    ///         let most = &most;
    ///         scope.spawn(move || {
    ///             let mut most = most.lock();
    ///             *most = number.max(*most);
    ///         });
    ///     }
    /// });
    /// assert_eq!(*most.lock(), 9);
    /// ```
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let off = current::preemption_off_by_user();
        Guard {
            value: self.0.lock(),
            _off: off,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
