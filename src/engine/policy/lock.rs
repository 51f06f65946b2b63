//! The lock that policies may use.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::engine::green::current::{self, PreemptionOff};
use crate::engine::sys::lock;

/// A mutual exclusion for what a policy's processors share. Whoever holds it is not preempted, so
/// nobody waits long for it; it must be held for moments only. It knows no poisoning.
///
/// ```
/// use greenthread::policy::Lock;
/// let count = Lock::new(41);
/// *count.lock() += 1;
/// assert_eq!(*count.lock(), 42);
/// ```
#[derive(Default)]
pub struct Lock<T>(lock::Lock<T>);

/// The holder's access to what a [`Lock`] protects. Dropping it unlocks. It stays with its thread.
///
/// If it is forgotten, the lock is held for ever, and until the thread that took it ends, it is not
/// preempted, and keeps its processor even while it is blocked in the kernel.
#[must_use = "unlocked at once if it is not kept"]
pub struct Guard<'a, T> {
    // In this order: unlocked, then preemptible.
    value: lock::Guard<'a, T>,
    _off: PreemptionOff,
}

impl<T> Lock<T> {
    /// A lock around `value`, free.
    pub const fn new(value: T) -> Lock<T> {
        Lock(lock::Lock::new(value))
    }

    /// Waits until it is free, and takes it.
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

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock { .. }")
    }
}

impl<T> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard { .. }")
    }
}
