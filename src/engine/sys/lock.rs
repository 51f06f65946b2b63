//! A lock for the scheduler's own short critical sections; waiting a little for another kernel thread: pauses between looks
//! at a lock ([`Backoff`]), and waiting for a thread's next few instructions ([`Patience`]); and the cheap half of an
//! asymmetric fence.
//!
//! # The lock
//! A thread takes the lock with preemption off (or is a kernel thread that runs no green thread), so the holder is
//! running or about to run: waiters pause a little and then block in the kernel. The lock touches no
//! thread-local, allocates nothing and knows no poisoning: the code under the lock does not panic.
//!
//! | word | meaning |
//! |---|---|
//! | `FREE` | no thread holds it |
//! | `HELD` | a thread holds it, none waits |
//! | `CONTENDED` | a thread holds it, and others may wait in the kernel |
//!
//! Orderings: taking the lock is Acquire and pairs with the Release of the unlock before.
//!
//! # Pauses
//! Each pause of a backoff is twice as long as the one before: Anderson's exponential backoff ("The Performance of Spin Lock
//! Alternatives for Shared-Memory Multiprocessors", 1990). Threads that look again at once take the lock's cache line,
//! and those of all that it guards, from its holder at every turn. While they pause, the holder may come back several times
//! and find these lines in its cache.
//!
//! # The fence
//! One thread makes the cheap half ([`entry_fence`]) between a store and a load, another one makes the heavy half
//! (`kernel_thread::barrier`) between its own store and load: they cannot both miss the other's store. `membarrier`
//! turns the compiler fence into a full fence at the only moment when that matters.
//!
//! Nothing can replace the heavy half while threads run that make the cheap half. So where the system refuses the
//! heavy half from the start there are no green threads, and where the system refuses it later the process ends and
//! says why.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::{futex, kernel_thread, perturb};
use crate::engine::atomic::{AtomicU32, Ordering, compiler_fence, const_fn};

// ==== the lock ====

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
        if !self.takes_free() {
            self.lock_contended();
        }
        self.guard()
    }

    /// Takes the lock if no thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.takes_free().then(|| self.guard())
    }

    /// Takes the lock unless a thread holds it. Does not make a guard.
    #[inline]
    fn takes_free(&self) -> bool {
        // Acquire: pairs with the Release in `Guard::drop`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// The guard of a thread that has just taken the lock.
    fn guard(&self) -> Guard<'_, T> {
        Guard {
            lock: self,
            not_send: PhantomData,
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut backoff = Backoff::while_it_runs();
        while backoff.pause() {
            if self.word.load(Ordering::Relaxed) == FREE && self.takes_free() {
                return;
            }
        }
        // A thread that takes the lock from here on must assume that others wait.
        // Acquire: pairs with the Release in `Guard::drop`.
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

/// The right to the value. The guard stays with its thread, whose preemption is off.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared references to the value, and nothing else.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

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

// ==== the fence ====

/// Keeps the accesses before the fence in the program before the accesses after the fence.
#[inline(always)]
pub(crate) fn entry_fence() {
    // SeqCst, partner: the `barrier` of a thread that takes a processor away.
    compiler_fence(Ordering::SeqCst);
}

// ==== pauses ====

/// The pauses of one caller at one lock. A pause is an instruction of the processor, of 5 to 50 ns.
pub(crate) struct Backoff {
    next: u32,
    longest: u32,
}

impl Backoff {
    const FIRST: u32 = 8;

    /// For a lock whose holder runs. The caller pauses for some microseconds in all, and is to block then.
    pub(crate) const fn while_it_runs() -> Backoff {
        Backoff {
            next: Backoff::FIRST,
            longest: 64,
        }
    }

    /// For a lock whose holder may wait for something itself: half as long.
    pub(crate) const fn as_it_may_wait() -> Backoff {
        Backoff {
            next: Backoff::FIRST,
            longest: 32,
        }
    }

    /// Pauses. False: the caller has paused for long enough, and this time it did not.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        if self.next > self.longest {
            return false;
        }
        (0..self.next).for_each(|_| core::hint::spin_loop());
        self.next *= 2;
        true
    }
}

/// How long the caller has looked at a word that another kernel thread is about to change.
///
/// First the caller spins. If that thread is not running, the caller gives way to it; and if that does
/// not help either (its priority is lower than ours), the caller sleeps.
pub(crate) struct Patience(u32);

const SPINS: u32 = 100;
const YIELDS: u32 = 20;
/// In nanoseconds.
const SLEEP: u64 = 100_000;

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(0)
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        if self.0 < SPINS {
            core::hint::spin_loop();
        } else if self.0 < SPINS + YIELDS {
            kernel_thread::give_way();
        } else {
            // Where it ends early we look early.
            kernel_thread::rest(SLEEP);
            return;
        }
        self.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Lock};

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

    #[test]
    fn a_backoff_ends() {
        let times = |mut backoff: Backoff| (0..10).filter(|_| backoff.pause()).count();
        assert_eq!(times(Backoff::while_it_runs()), 4);
        assert_eq!(times(Backoff::as_it_may_wait()), 3);
    }
}
