//! Poisoning: a panic while a lock is held is reported to the threads that lock it later.
//!
//! The error types are std's own, so that `?` and `From` go on working.

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Whether the thread was panicking already when it took a lock. A panic that begins later, while
/// it holds the lock, poisons it.
pub(super) struct Witness {
    panicking: bool,
}

impl Witness {
    #[inline]
    pub(super) fn new() -> Witness {
        Witness {
            panicking: std::thread::panicking(),
        }
    }

    /// Returns whether a panic has begun since this was made.
    #[inline]
    pub(super) fn has_seen_a_panic(&self) -> bool {
        !self.panicking && std::thread::panicking()
    }
}

/// Returns `guard`, wrapped in an error if the lock is poisoned.
#[inline]
pub(super) fn checked<G>(poisoned: bool, guard: G) -> LockResult<G> {
    if poisoned {
        Err(PoisonError::new(guard))
    } else {
        Ok(guard)
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
