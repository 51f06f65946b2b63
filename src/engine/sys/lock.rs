//! A lock for the scheduler's own short critical sections.
//!
//! A thread takes it with preemption off (or is a kernel thread that runs no green thread), so the
//! holder is running or about to be: waiters pause a little (`backoff`) and then block in the kernel. The lock
//! touches no thread-local, allocates nothing and knows no poisoning: the code under it does not
//! panic.
//!
//! | word | meaning |
//! |---|---|
//! | `FREE` | no thread holds it |
//! | `HELD` | a thread holds it, none waits |
//! | `CONTENDED` | a thread holds it, and others may wait in the kernel |
//!
//! Orderings: taking the lock is Acquire and pairs with the Release of the unlock before.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::backoff::Backoff;
use super::{futex, perturb};
use crate::engine::atomic::{AtomicU32, Ordering, const_fn};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which the word allows one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Where in a lock its value lies, for reports, which look at it without the lock.
    pub(crate) const VALUE: usize = core::mem::offset_of!(Lock<T>, value);

    const_fn! {
        pub(crate) const fn new(value: T) -> Lock<T> {
            Lock {
                word: AtomicU32::new(FREE),
                value: UnsafeCell::new(value),
            }
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        perturb::point("lock: coming");
        // Acquire: pairs with the Release in `Guard::drop`.
        if self
            .word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_contended();
        }
        Guard::new(self)
    }

    /// Takes the lock if no thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: as in `lock`.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let word = self.word.compare_exchange(FREE, HELD, success, failure);
        word.is_ok().then(|| Guard::new(self))
    }

    #[cold]
    fn lock_contended(&self) {
        let mut backoff = Backoff::while_it_runs();
        while backoff.pause() {
            // Acquire: as in `lock`.
            if self.word.load(Ordering::Relaxed) == FREE
                && self
                    .word
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        // A thread that takes the lock from here on must assume that others wait.
        // Acquire: as in `lock`.
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait(&self.word, CONTENDED, None);
        }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

/// The right to the value. It stays with its thread, whose preemption is off.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared references to the value, and nothing else.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<'a, T> Guard<'a, T> {
    /// Makes the guard of a thread that has just taken the lock.
    fn new(lock: &'a Lock<T>) -> Guard<'a, T> {
        Guard {
            lock,
            not_send: PhantomData,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the proof that the lock is held, and is borrowed uniquely.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        perturb::point("lock: going");
        // Release: pairs with the Acquire of the next `lock`.
        if self.lock.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(&self.lock.word, 1);
        }
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::Lock;

    #[test]
    fn excludes_and_publishes() {
        let lock = Lock::new((0u64, 0u64));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..50_000 {
                        let mut pair = lock.lock();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (200_000, 200_000));
        let held = lock.try_lock();
        assert!(held.is_some() && lock.try_lock().is_none());
    }
}
