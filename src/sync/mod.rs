//! Everything in [`std::sync`] that blocks, blocking only the green thread; and a few things more.
//!
//! Replace `std::sync` by `greenthread::sync` in the imports and nothing else. What does not block
//! (`Arc`, `atomic`, the error types) is std's own, re-exported. Kernel threads and green threads
//! mix freely on one object. Waiting allocates nothing, and a waiter that is preempted, times out
//! or unwinds leaves nothing behind.
//!
//! Names of what std lacks are those of where people know it from: `try_lock_for` and
//! `try_lock_until` (parking_lot), `acquire` and its forms (tokio), `WaitGroup` (crossbeam).
//!
//! All of it stands on one wait queue (`wait::queue`) and one claim (`wait::claim`):
//!
//! | file | idea |
//! |---|---|
//! | `raw_mutex` | the mutex's protocol; `mutex` puts data in it |
//! | `raw_rwlock` | the reader-writer lock's protocol; `rwlock` puts data in it |
//! | `condvar` | in the queue before the mutex is unlocked |
//! | `barrier`, `wait_group` | a count and a queue; the last one wakes all |
//! | `semaphore` | permits, first come, first served |
//! | `once` | something runs once; `once_lock` and `lazy_lock` put data in it |
//! | `cell` | the data of locks, and the tokens that give it out; all of the locks' `unsafe` |
//! | `poison` | a panic under a lock is told to whoever comes next |
//! | `mpsc` | std's view of the channels |

mod barrier;
#[allow(unsafe_code, reason = "the data of locks")]
mod cell;
mod condvar;
mod lazy_lock;
pub mod mpsc;
mod mutex;
mod once;
mod once_lock;
mod poison;
mod raw_mutex;
mod raw_rwlock;
mod rwlock;
mod semaphore;
mod wait_group;

pub use std::sync::{Arc, Weak, atomic};

pub use self::barrier::{Barrier, BarrierWaitResult};
pub use self::condvar::{Condvar, WaitTimeoutResult};
pub use self::lazy_lock::LazyLock;
pub use self::mutex::{Mutex, MutexGuard};
pub use self::once::{Once, OnceState};
pub use self::once_lock::OnceLock;
pub use self::poison::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use self::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use self::semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use self::wait_group::WaitGroup;

/// A [`Once`] that has not run.
#[deprecated(note = "as in std: use `Once::new()`")]
#[allow(clippy::declare_interior_mutable_const, reason = "std's")]
pub const ONCE_INIT: Once = Once::new();
