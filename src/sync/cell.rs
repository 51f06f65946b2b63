//! The data of locks, each with the protocol that decides which thread has it.
//!
//! This is the only file of `sync` with `unsafe` in it. The protocols (`raw_mutex`, `raw_rwlock`,
//! `once`) know no data; here each is tied to some, and gives it out by a guard or a reference that
//! proves the hold:
//!
//! | cell | held by | gives |
//! |---|---|---|
//! | [`MutexCell`] | [`MutexGuard`] | `&T`, and `&mut T` for `&mut MutexGuard` |
//! | [`RwCell`] | [`RwLockReadGuard`]; [`RwLockWriteGuard`] | `&T`; as `MutexGuard` |
//! | [`OnceCell`] | the closure that runs; then no thread | `&mut` to the closure; then `&T` to all |
//!
//! Invariants:
//! 1. Only this file reaches a cell's protocol. So it is locked as often as there are guards, and
//!    is not unlocked more often.
//! 2. A guard is made when the protocol has said yes, and gives the hold back when it is dropped.
//!    It does not leave its thread. If a panic has begun meanwhile, it leaves poison. (If a
//!    [`MutexGuard`]'s mutex is unlocked for a while, as by a condition variable, the guard is borrowed
//!    uniquely meanwhile: no code looks at the data through it.)

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::once::Once;
use super::poison::Witness;
use super::raw_mutex::RawMutex;
use super::raw_rwlock::RawRwLock;
use crate::atomic::const_fn;

/// Data that one thread at a time may use.
pub(super) struct MutexCell<T: ?Sized> {
    raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached through a guard, and `raw` allows one at a time.
unsafe impl<T: ?Sized + Send> Send for MutexCell<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for MutexCell<T> {}
// The poison tells of the state that a panic left behind.
impl<T: ?Sized> UnwindSafe for MutexCell<T> {}
impl<T: ?Sized> RefUnwindSafe for MutexCell<T> {}

/// A guard that gives access to the data of a [`Mutex`](super::Mutex) and unlocks the mutex when it is dropped.
///
/// It is made by [`Mutex::lock`](super::Mutex::lock) and its variants, and dereferences to the data. It cannot be sent
/// to another thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Mutex, MutexGuard};
///
/// fn add(mut list: MutexGuard<'_, Vec<u32>>, number: u32) {
///     list.push(number);
/// } // the mutex is unlocked here
///
/// let list = Mutex::new(Vec::new());
/// add(list.lock().unwrap(), 1);
/// add(list.lock().unwrap(), 2);
/// assert_eq!(*list.lock().unwrap(), [1, 2]);
/// ```
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    cell: &'a MutexCell<T>,
    witness: Witness,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> MutexCell<T> {
    const_fn! {
        #[inline]
        pub(super) const fn new(value: T) -> MutexCell<T> {
            MutexCell {
                raw: RawMutex::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    pub(super) fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> MutexCell<T> {
    /// Makes the guard of a thread that has just locked the mutex.
    #[inline]
    fn held(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            cell: self,
            witness: Witness::new(),
            not_send: PhantomData,
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        // The call has no deadline, so it locks.
        self.raw.lock(None);
        self.held()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| self.held())
    }

    /// Locks the mutex, waiting until `deadline` (monotonic nanoseconds) at the latest.
    pub(super) fn lock_until(&self, deadline: u64) -> Option<MutexGuard<'_, T>> {
        self.raw.lock(Some(deadline)).then(|| self.held())
    }

    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.raw.is_poisoned()
    }

    #[inline]
    pub(super) fn clear_poison(&self) {
        self.raw.clear_poison();
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.cell.raw.is_poisoned()
    }

    /// Calls `wait`, which unlocks the mutex, and then locks the mutex again.
    pub(super) fn unlocked<R>(&mut self, wait: impl FnOnce(Unlock<'_>) -> R) -> R {
        struct Relock<'a>(&'a RawMutex);
        impl Drop for Relock<'_> {
            fn drop(&mut self) {
                self.0.lock(None);
            }
        }
        let relock = Relock(&self.cell.raw);
        wait(Unlock(relock.0))
    }
}

/// The right to unlock the mutex, once; a caller that does not use it then waits for itself.
pub(super) struct Unlock<'a>(&'a RawMutex);

impl Unlock<'_> {
    pub(super) fn unlock(self) {
        self.0.unlock();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that the mutex is locked.
        unsafe { &*self.cell.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed uniquely.
        unsafe { &mut *self.cell.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.witness.has_seen_a_panic() {
            self.cell.raw.poison();
        }
        self.cell.raw.unlock();
    }
}

/// Data that many threads may read, or one thread may change.
pub(super) struct RwCell<T: ?Sized> {
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: the owner of the cell owns the data.
unsafe impl<T: ?Sized + Send> Send for RwCell<T> {}
// SAFETY: readers share the data (`T: Sync`); a writer may take it away (`T: Send`), and `raw`
// allows one writer, while there is no reader.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwCell<T> {}
// The poison tells of the state that a panic left behind.
impl<T: ?Sized> UnwindSafe for RwCell<T> {}
impl<T: ?Sized> RefUnwindSafe for RwCell<T> {}

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
pub struct RwLockReadGuard<'a, T: ?Sized> {
    data: NonNull<T>,
    raw: &'a RawRwLock,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

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
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    cell: &'a RwCell<T>,
    witness: Witness,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives out shared references to the data only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwCell<T> {
    const_fn! {
        #[inline]
        pub(super) const fn new(value: T) -> RwCell<T> {
            RwCell {
                raw: RawRwLock::new(),
                data: UnsafeCell::new(value),
            }
        }
    }

    pub(super) fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwCell<T> {
    /// Makes the guard of a thread that has just begun to read.
    #[inline]
    fn reading(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            // SAFETY: the pointer is the address of a field.
            data: unsafe { NonNull::new_unchecked(self.data.get()) },
            raw: &self.raw,
        }
    }

    /// Makes the guard of a thread that has just begun to write.
    #[inline]
    fn writing(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            cell: self,
            witness: Witness::new(),
            not_send: PhantomData,
        }
    }

    #[inline]
    pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
        // The call has no deadline, so it locks.
        self.raw.read(None);
        self.reading()
    }

    #[inline]
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.try_read().then(|| self.reading())
    }

    /// Locks for reading, waiting until `deadline` (monotonic nanoseconds) at the latest.
    pub(super) fn read_until(&self, deadline: u64) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.read(Some(deadline)).then(|| self.reading())
    }

    #[inline]
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
        // The call has no deadline, so it locks.
        self.raw.write(None);
        self.writing()
    }

    #[inline]
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.try_write().then(|| self.writing())
    }

    /// Locks for writing, waiting until `deadline` (monotonic nanoseconds) at the latest.
    pub(super) fn write_until(&self, deadline: u64) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.write(Some(deadline)).then(|| self.writing())
    }

    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.raw.is_poisoned()
    }

    #[inline]
    pub(super) fn clear_poison(&self) {
        self.raw.clear_poison();
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
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
        let cell = s.cell;
        mem::forget(s);
        cell.raw.downgrade();
        cell.reading()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that no thread writes.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that no other thread holds the lock.
        unsafe { &*self.cell.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed uniquely.
        unsafe { &mut *self.cell.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_read();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.witness.has_seen_a_panic() {
            self.cell.raw.poison();
        }
        self.cell.raw.unlock_write();
    }
}

/// Data that is made once, by a closure `F` if there is one.
///
/// The content is an enum and not a `MaybeUninit`: it drops itself, so that no `Drop` has to be
/// written, and a cell may hold a reference to a value that is dropped before it, as std's cell
/// may.
pub(super) struct OnceCell<T, F> {
    once: Once,
    stage: UnsafeCell<Stage<T, F>>,
}

/// The content of a [`OnceCell`].
pub(super) enum Stage<T, F> {
    Closure(F),
    Value(T),
    Nothing,
}

// SAFETY: any thread may run and drop the closure, hence `F: Send`; one thread may make the value
// and another drop it, hence `T: Send`; all get shared references to it, hence `T: Sync`.
unsafe impl<T: Send + Sync, F: Send> Sync for OnceCell<T, F> {}

impl<T, F> OnceCell<T, F> {
    const_fn! {
        #[inline]
        pub(super) const fn new(stage: Stage<T, F>) -> OnceCell<T, F> {
            OnceCell {
                once: Once::new(),
                stage: UnsafeCell::new(stage),
            }
        }
    }

    /// Returns the value, if it has been made.
    #[inline]
    pub(super) fn get(&self) -> Option<&T> {
        if !self.once.is_completed() {
            return None;
        }
        // SAFETY: the value is complete, so no thread writes to it while `self` is shared.
        match unsafe { &*self.stage.get() } {
            Stage::Value(value) => Some(value),
            Stage::Closure(_) | Stage::Nothing => None,
        }
    }

    /// Waits until the value is made.
    pub(super) fn wait(&self) {
        self.once.wait_force();
    }

    /// Calls `make` to make the value, unless there is one. If `make` panics, the next caller may
    /// try.
    #[track_caller]
    pub(super) fn make(&self, make: impl FnOnce(&mut Stage<T, F>)) {
        self.once.call_once_force(|_| {
            // SAFETY: this is the closure of a `Once` that has not completed: no other thread
            // looks.
            make(unsafe { &mut *self.stage.get() });
        });
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        match self.stage.get_mut() {
            Stage::Value(value) => Some(value),
            Stage::Closure(_) | Stage::Nothing => None,
        }
    }

    #[inline]
    pub(super) fn into_inner(self) -> Option<T> {
        match self.stage.into_inner() {
            Stage::Value(value) => Some(value),
            Stage::Closure(_) | Stage::Nothing => None,
        }
    }
}
