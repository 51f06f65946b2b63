//! Locks, channels and other ways for threads to wait for each other, as in [`std::sync`].
//!
//! The types have the names and the methods of `std::sync`, but a wait blocks only the green thread
//! that waits. A program changes its imports from `std::sync` to `greenthread::sync` and nothing
//! else. Green threads and kernel threads may share any of these objects. Types that never block
//! ([`Arc`], [`Weak`], [`atomic`] and the error types) are std's own, re-exported here.
//!
//! # Choosing a type
//!
//! | type | use it when |
//! |---|---|
//! | [`Mutex`] | one thread at a time may use some data |
//! | [`RwLock`] | many threads read some data and few write it |
//! | [`Condvar`] | a thread waits until data behind a mutex has changed |
//! | [`Barrier`] | a fixed number of threads wait for each other, round after round |
//! | [`WaitGroup`] | a thread waits until any number of others have finished |
//! | [`Semaphore`] | only a limited number of threads may do something at a time |
//! | [`Once`] | some code must run exactly once |
//! | [`OnceLock`] | a value is set once and then only read |
//! | [`LazyLock`] | a value is computed on first use |
//! | [`mpsc`] | threads send values to one receiver |
//!
//! [`greenthread::channel`](crate::channel) has channels with many receivers, and `select!`.
//!
//! A few names have no counterpart in std. They are taken from the crates that made them known:
//! `try_lock_for` and `try_lock_until` from parking_lot, [`Semaphore`] and its methods from tokio,
//! [`WaitGroup`] from crossbeam.
//!
//! Waiting allocates no memory. A thread that is preempted, times out or unwinds while it waits
//! leaves nothing behind in the object.
//!
//! # Poisoning
//!
//! A thread that panics while it holds a [`Mutex`], or an [`RwLock`] for writing, poisons the lock:
//! the data may be inconsistent. Later attempts to lock succeed, but they return the guard inside
//! an error, a [`PoisonError`]. Most programs call `unwrap` on the result and so pass the panic on.
//! A thread that can repair the data takes the guard out of the error instead.
//!
//! ```
//! use greenthread::sync::{Arc, Mutex, PoisonError, TryLockError};
//!
//! let list = Arc::new(Mutex::new(vec![1, 2]));
//! let other = Arc::clone(&list);
//! let result = greenthread::spawn(move || {
//!     let mut list = other.lock().unwrap();
//!     list.push(3);
//!     panic!("the list is not complete yet");
//! })
//! .join();
//! assert!(result.is_err());
//!
//! assert!(matches!(list.try_lock(), Err(TryLockError::Poisoned(_))));
//!
//! let mut guard = list.lock().unwrap_or_else(PoisonError::into_inner);
//! guard.push(4);
//! list.clear_poison();
//! drop(guard);
//! assert_eq!(*list.lock().unwrap(), [1, 2, 3, 4]);
//! ```

// All of it stands on one wait queue (`wait::queue`) and one claim (`wait::queue`):
//
// | file | idea |
// |---|---|
// | `raw_mutex` | the mutex's protocol; `mutex` puts data in it, and has the guard |
// | `raw_rwlock` | the reader-writer lock's protocol; `rwlock` puts data in it, and has the guards |
// | `condvar` | a waiter is in the queue before it unlocks the mutex |
// | `barrier`, `wait_group` | a count and a queue; the last thread wakes all |
// | `semaphore` | permits, first come, first served |
// | `once` | a closure runs once; `once_lock` puts data in it |
// | `poison` | a panic under a lock is reported to the threads that lock it later |
// | `mpsc` | std's view of the channels |

mod barrier;
mod condvar;
pub mod mpsc;
#[allow(unsafe_code, reason = "the data of the lock")]
mod mutex;
mod once;
#[allow(unsafe_code, reason = "the data that is made once")]
mod once_lock;
mod poison;
mod raw_mutex;
mod raw_rwlock;
#[allow(unsafe_code, reason = "the data of the lock")]
mod rwlock;
mod semaphore;
mod wait_group;

pub use std::sync::{Arc, Weak, atomic};

pub use self::barrier::{Barrier, BarrierWaitResult};
pub use self::condvar::{Condvar, WaitTimeoutResult};
pub use self::mutex::{Mutex, MutexGuard};
pub use self::once::{Once, OnceState};
pub use self::once_lock::{LazyLock, OnceLock};
pub use self::poison::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use self::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use self::semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use self::wait_group::WaitGroup;

/// A [`Once`] whose closure has not run yet.
#[deprecated(note = "as in std: use `Once::new()`")]
#[allow(clippy::declare_interior_mutable_const, reason = "std's")]
pub const ONCE_INIT: Once = Once::new();

defaults!(Condvar OnceLock<T> WaitGroup);

without_details! {
    [] Barrier, "Barrier";
    [] Condvar, "Condvar";
    [] Once, "Once";
    [] Semaphore, "Semaphore", |semaphore| permits: semaphore.available_permits();
    [T] mpsc::Sender<T>, "Sender";
    [T] mpsc::SyncSender<T>, "SyncSender";
    [T] mpsc::Receiver<T>, "Receiver";
}
