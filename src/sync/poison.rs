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
