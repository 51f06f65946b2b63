//! Poisoning: a panic while a lock is held is reported to the threads that lock it later.
//!
//! The error types are std's own, so that `?` and `From` go on working.

use core::marker::PhantomData;
pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use crate::wait::queue::WaitQueue;

/// A flag of a lock's queue: a thread has panicked while it held the lock.
pub(super) const POISONED: usize = WaitQueue::flag(3);

/// Whether the thread was panicking already when it took a lock. A panic that begins later, while
/// it holds the lock, poisons it. It stays with the thread, and so does the guard that has it.
pub(super) struct Witness(bool, PhantomData<*mut ()>);

impl Witness {
    #[inline]
    pub(super) fn new() -> Witness {
        Witness(std::thread::panicking(), PhantomData)
    }

    /// Returns whether a panic has begun since this was made.
    #[inline]
    pub(super) fn has_seen_a_panic(&self) -> bool {
        !self.0 && std::thread::panicking()
    }
}

/// Returns `guard`, wrapped in an error if the lock is poisoned.
#[inline]
pub(super) fn checked<G>(poisoned: bool, guard: G) -> LockResult<G> {
    match poisoned {
        true => Err(PoisonError::new(guard)),
        false => Ok(guard),
    }
}

/// The answer of a method that may have to give up.
#[inline]
pub(super) fn tried<G>(guard: Option<LockResult<G>>) -> TryLockResult<G> {
    Ok(guard.ok_or(TryLockError::WouldBlock)??)
}

/// Declares `From`, `Default` and `Debug` of a lock; `Debug` shows `$locked` in the place of data that cannot be had now. And
/// `Debug` and `Display` of its guards, as their data have them.
macro_rules! shown {
    ($Lock:ident, $try_lock:ident, $locked:expr; $($Guard:ident),*) => {
        impl<T> From<T> for $Lock<T> {
            fn from(value: T) -> $Lock<T> {
                $Lock::new(value)
            }
        }

        impl<T: Default> Default for $Lock<T> {
            fn default() -> $Lock<T> {
                $Lock::new(T::default())
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $Lock<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut d = f.debug_struct(stringify!($Lock));
                match self.$try_lock() {
                    Ok(guard) => d.field("data", &&*guard),
                    Err(TryLockError::Poisoned(error)) => d.field("data", &&**error.get_ref()),
                    Err(TryLockError::WouldBlock) => d.field("data", $locked),
                };
                d.field("poisoned", &self.is_poisoned());
                d.finish_non_exhaustive()
            }
        }

        $(
            impl<T: ?Sized + fmt::Debug> fmt::Debug for $Guard<'_, T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    (**self).fmt(f)
                }
            }

            impl<T: ?Sized + fmt::Display> fmt::Display for $Guard<'_, T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    (**self).fmt(f)
                }
            }
        )*
    };
}
pub(super) use shown;

/// Declares that a guard of a `lock` gives access to its data, which no other guard has, and unlocks it.
macro_rules! exclusive {
    ($Guard:ident of $Lock:ident, $unlock:ident) => {
        impl<'a, T: ?Sized> $Guard<'a, T> {
            /// Returns the guard for the thread, which has just locked `lock`.
            #[inline]
            fn new(lock: &'a $Lock<T>) -> LockResult<$Guard<'a, T>> {
                let witness = Witness::new();
                poison::checked(lock.is_poisoned(), $Guard { lock, witness })
            }
        }

        // SAFETY: a shared guard gives out shared references to the data only.
        unsafe impl<T: ?Sized + Sync> Sync for $Guard<'_, T> {}

        impl<T: ?Sized> Deref for $Guard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard is the proof that no other thread holds the lock.
                unsafe { &*self.lock.data.get() }
            }
        }

        impl<T: ?Sized> DerefMut for $Guard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: as above, and the guard is borrowed uniquely.
                unsafe { &mut *self.lock.data.get() }
            }
        }

        impl<T: ?Sized> Drop for $Guard<'_, T> {
            #[inline]
            fn drop(&mut self) {
                if self.witness.has_seen_a_panic() {
                    // The unlocking publishes the flag.
                    self.lock.raw.queue.set(POISONED, Relaxed);
                }
                self.lock.raw.$unlock();
            }
        }
    };
}
pub(super) use exclusive;
