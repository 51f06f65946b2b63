//! What kernel threads share inside the engine: a lock for the scheduler's own short critical sections, with the pauses of
//! those who wait a little for another kernel thread ([`Backoff`], [`Patience`]); the cheap half of an asymmetric fence;
//! and, without a lock, what lives for ever: an atomic `Option<&'static T>` ([`AtomicStatic`]), a table that only grows
//! ([`Table`]), and a large array that begins with zeros ([`Zeros`]).
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
//!
//! # The atomic static
//! An address that is null, or leads to a value that is never freed. The caller chooses the orderings.
//!
//! # The stack of records
//! [`Lifo`] is intrusive and holds any records that are never freed. Its owner alone uses it.
//!
//! # The table
//! Entries stay where they are, so a reference is good as long as the table is, and readers need no lock. Entry `i` lies
//! in segment `log2(i + 1)`, which has room for `2^segment` entries. One thread at a time grows the table, under std's
//! lock since growing allocates: that thread makes an entry, then stores the new length.
//!
//! Orderings: the length is stored with Release and loaded with Acquire, so a thread that knows of an entry sees the entry.
//!
//! # Zeros
//! The compiler looks at each part of each entry of a static array, and needs a second for the largest of ours. It does not
//! look into a `MaybeUninit`.

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr;
use std::sync::{Mutex, PoisonError};

use super::{die, futex, kernel_thread, perturb};
use crate::engine::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, const_fn,
};

// ==== the lock ====

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

#[derive(Default)] // free
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
        self.lock_with(())
    }

    /// Takes the lock. The guard keeps `kept` until the lock is free again.
    #[inline]
    pub(crate) fn lock_with<K>(&self, kept: K) -> Guard<'_, T, K> {
        perturb::point("lock: coming");
        if !takes_free(&self.word) {
            lock_contended(&self.word);
        }
        self.guard(kept)
    }

    /// Takes the lock if no thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        takes_free(&self.word).then(|| self.guard(()))
    }

    /// The guard of a thread that has just taken the lock.
    fn guard<K>(&self, _kept: K) -> Guard<'_, T, K> {
        Guard {
            lock: self,
            _kept,
            not_send: PhantomData,
        }
    }
}

/// Takes the lock unless a thread holds it. Does not make a guard.
#[inline]
fn takes_free(word: &AtomicU32) -> bool {
    // Acquire: pairs with the Release in `Guard::drop`.
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

#[cold]
fn lock_contended(word: &AtomicU32) {
    let mut backoff = Backoff::WHILE_IT_RUNS;
    while backoff.pause() {
        if word.load(Ordering::Relaxed) == FREE && takes_free(word) {
            return;
        }
    }
    // A thread that takes the lock from here on must assume that others wait.
    // Acquire: pairs with the Release in `Guard::drop`.
    while word.swap(CONTENDED, Ordering::Acquire) != FREE {
        futex::wait(word, CONTENDED, None);
    }
}

/// The right to the value. The guard stays with its thread, whose preemption is off.
pub(crate) struct Guard<'a, T, K = ()> {
    lock: &'a Lock<T>,
    _kept: K,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared references to the value, and nothing else.
unsafe impl<T: Sync, K: Sync> Sync for Guard<'_, T, K> {}

impl<T, K> Deref for Guard<'_, T, K> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the proof that the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, K> DerefMut for Guard<'_, T, K> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the proof that the lock is held, and is borrowed uniquely.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, K> Drop for Guard<'_, T, K> {
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
    /// For a lock whose holder runs. The caller pauses for some microseconds in all, and is to block then.
    pub(crate) const WHILE_IT_RUNS: Backoff = Backoff::up_to(64);
    /// For a lock whose holder may wait for something itself: half as long.
    pub(crate) const AS_IT_MAY_WAIT: Backoff = Backoff::up_to(32);

    const fn up_to(longest: u32) -> Backoff {
        Backoff { next: 8, longest }
    }

    /// Pauses. False: the caller has paused for long enough, and this time it did not.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        // The holder cannot get on meanwhile.
        #[cfg(sim)]
        if super::simulated::is_on() {
            return false;
        }
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
            // If a signal ends the rest early, the caller only looks earlier.
            kernel_thread::rest(SLEEP);
            return;
        }
        self.0 += 1;
    }
}

// ==== the atomic static ====

pub(crate) struct AtomicStatic<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Default for AtomicStatic<T> {
    fn default() -> Self {
        AtomicStatic::none()
    }
}

impl<T: Sync> AtomicStatic<T> {
    const_fn! {
        pub(crate) const fn none() -> Self {
            AtomicStatic(AtomicPtr::new(ptr::null_mut()))
        }
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static T> {
        // SAFETY: only `store`, `swap` and `replace` write the pointer: it is null or comes from a `&'static T`.
        unsafe { self.0.load(order).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn store(&self, target: Option<&'static T>, order: Ordering) {
        self.0.store(pointer(target), order);
    }

    /// Stores `target`, and returns what was there before.
    #[inline(always)]
    pub(crate) fn swap(&self, target: Option<&'static T>, order: Ordering) -> Option<&'static T> {
        // SAFETY: as in `load`.
        unsafe { self.0.swap(pointer(target), order).as_ref() }
    }

    /// Stores `new` if `old` is there; an error is what is there instead.
    pub(crate) fn replace(
        &self,
        old: Option<&'static T>,
        new: &'static T,
        order: Ordering,
    ) -> Result<(), Option<&'static T>> {
        let (old, new) = (pointer(old), pointer(Some(new)));
        match (self.0).compare_exchange_weak(old, new, order, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            // SAFETY: as in `load`.
            Err(now) => Err(unsafe { now.as_ref() }),
        }
    }

    /// Whether `target` is there now.
    #[inline(always)]
    pub(crate) fn is(&self, target: &T, order: Ordering) -> bool {
        ptr::eq(self.0.load(order), target)
    }
}

#[inline(always)]
fn pointer<T>(target: Option<&'static T>) -> *mut T {
    target.map_or(ptr::null_mut(), |target| ptr::from_ref(target).cast_mut())
}

// ==== a stack of records ====

/// A record that can be in a [`Lifo`]. Its link is not used elsewhere meanwhile.
pub(crate) trait Linked: 'static {
    /// The link to the record below.
    fn below(&self) -> &Cell<Option<&'static Self>>;
}

pub(crate) struct Lifo<T: Linked> {
    top: Cell<Option<&'static T>>,
    len: usize,
}

impl<T: Linked> Lifo<T> {
    pub(crate) const fn new() -> Lifo<T> {
        Lifo {
            top: Cell::new(None),
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stack of `len` records that begins with `top`.
    pub(crate) fn from_top(top: &'static T, len: usize) -> Lifo<T> {
        Lifo {
            top: Cell::new(Some(top)),
            len,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The records, the top one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        core::iter::successors(self.top.get(), |record| record.below().get())
    }

    #[inline]
    pub(crate) fn push(&mut self, record: &'static T) {
        record.below().set(self.top.replace(Some(record)));
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static T> {
        let record = self.top.get()?;
        self.top.set(record.below().take());
        self.len -= 1;
        Some(record)
    }

    /// Takes `record` out of the middle. False: it is not in the stack.
    pub(crate) fn remove(&mut self, record: &'static T) -> bool {
        let before = self.len;
        self.take_out(|other| ptr::eq(other, record));
        self.len != before
    }

    /// Takes out all records that `takes` accepts; the others stay in order.
    pub(crate) fn take_out(&mut self, mut takes: impl FnMut(&'static T) -> bool) {
        let mut link = &self.top;
        while let Some(record) = link.get() {
            if takes(record) {
                link.set(record.below().take());
                self.len -= 1;
            } else {
                link = record.below();
            }
        }
    }
}

// ==== the table ====

const SEGMENTS: usize = 13;
/// How many entries fit into a table, unless its type says more.
pub(crate) const MAX: usize = (1 << SEGMENTS) - 1;

pub(crate) struct Table<T, const SEGMENTS: usize = { self::SEGMENTS }> {
    segments: [AtomicPtr<T>; SEGMENTS],
    len: AtomicUsize,
    growing: Mutex<()>,
}

// SAFETY: readers share the entries, and the table owns them: both bounds are there.
unsafe impl<T: Send + Sync, const SEGMENTS: usize> Sync for Table<T, SEGMENTS> {}
// SAFETY: the table owns its entries and nothing else.
unsafe impl<T: Send, const SEGMENTS: usize> Send for Table<T, SEGMENTS> {}

fn place(index: usize) -> (usize, usize) {
    let segment = (index + 1).ilog2() as usize;
    (segment, index + 1 - (1 << segment))
}

impl<T, const SEGMENTS: usize> Table<T, SEGMENTS> {
    /// How many entries fit.
    const ROOM: usize = (1 << SEGMENTS) - 1;

    pub(crate) const fn new() -> Self {
        Table {
            segments: [const { AtomicPtr::new(core::ptr::null_mut()) }; SEGMENTS],
            len: AtomicUsize::new(0),
            growing: Mutex::new(()),
        }
    }

    /// Makes entries until there are `len`. Any thread may do so, at any time. Allocates.
    pub(crate) fn grow_to(&self, len: usize, mut make: impl FnMut(usize) -> T) {
        if len <= self.len() {
            return;
        }
        // If `make` panics, the entries that were made before stay as they are, so a poisoned lock is as good.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        for index in self.len()..len.min(Self::ROOM) {
            let (segment, at) = place(index);
            if self.segments[segment].load(Ordering::Relaxed).is_null() {
                let fresh = ManuallyDrop::new(Vec::with_capacity(1 << segment)).as_mut_ptr();
                self.segments[segment].store(fresh, Ordering::Relaxed);
            }
            let start = self.segments[segment].load(Ordering::Relaxed);
            // SAFETY: the place lies in the segment, and no other thread touches it before the length says so.
            unsafe { start.add(at).write(make(index)) };
            // Release: pairs with the Acquire in `len`.
            self.len.store(index + 1, Ordering::Release);
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `grow_to`.
        self.len.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> &T {
        let entry = self.find(index);
        entry.unwrap_or_else(|| die("a table is shorter than its user thinks"))
    }

    #[inline(always)]
    pub(crate) fn find(&self, index: usize) -> Option<&T> {
        if index >= self.len() {
            return None;
        }
        let (segment, at) = place(index);
        // SAFETY: the length says that the entry was written; the entry stays where it is as long as the table.
        Some(unsafe { &*self.segments[segment].load(Ordering::Relaxed).add(at) })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl<T, const SEGMENTS: usize> Drop for Table<T, SEGMENTS> {
    fn drop(&mut self) {
        let mut rest = self.len();
        for (segment, pointer) in self.segments.iter().enumerate() {
            let pointer = pointer.load(Ordering::Relaxed);
            let capacity = 1 << segment;
            let len = rest.min(capacity);
            rest -= len;
            if !pointer.is_null() {
                // SAFETY: the memory of a vector that `grow_to` made with this capacity; `len` of
                // its entries exist, and nobody has a reference to a table that is dropped.
                drop(unsafe { Vec::from_raw_parts(pointer, len, capacity) });
            }
        }
    }
}

// ==== random numbers ====

/// Every bit of `x` affects every bit of the answer (the last steps of SplitMix64; Steele, Lea and Flood 2014).
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

// ==== zeros ====

/// A type that has a value of nothing but zeros.
///
/// # Safety
/// It has.
pub(crate) unsafe trait Zero {}

// SAFETY: a number.
unsafe impl Zero for AtomicU64 {}
// SAFETY: one zero after another.
unsafe impl<T: Zero, const LEN: usize> Zero for [T; LEN] {}

/// An array that begins with zeros. It is a static: nothing in it is ever dropped.
pub(crate) struct Zeros<T, const LEN: usize>(MaybeUninit<[T; LEN]>);

impl<T: Zero, const LEN: usize> Zeros<T, LEN> {
    pub(crate) const fn new() -> Self {
        Zeros(MaybeUninit::zeroed())
    }
}

impl<T: Zero, const LEN: usize> Deref for Zeros<T, LEN> {
    type Target = [T; LEN];

    #[inline(always)]
    fn deref(&self) -> &[T; LEN] {
        // SAFETY: the zeros that it was made of are a value of each entry.
        unsafe { self.0.assume_init_ref() }
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    use std::sync::Arc;

    #[test]
    fn grows_and_stays() {
        let entries = Arc::new(());
        let table: Table<_> = Table::new();
        table.grow_to(1, |i| (i, entries.clone()));
        let first: *const _ = table.get(0);
        table.grow_to(1000, |i| (i, entries.clone()));
        table.grow_to(10, |_| unreachable!("it is longer"));
        assert!(core::ptr::eq(first, table.get(0)));
        assert!(table.iter().enumerate().all(|(i, entry)| entry.0 == i));
        assert_eq!((table.len(), Arc::strong_count(&entries)), (1000, 1001));
        drop(table);
        assert_eq!(Arc::strong_count(&entries), 1);
    }

    #[test]
    fn many_grow_it_at_once() {
        const LEN: usize = 1000;
        for _ in 0..30 {
            let (made, table) = (Arc::new(()), <Table<_>>::new());
            let begin = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        begin.wait();
                        for len in 1..=LEN {
                            table.grow_to(len, |index| (index, made.clone()));
                        }
                        assert!(table.iter().enumerate().all(|(at, entry)| at == entry.0));
                    });
                }
            });
            assert_eq!((table.len(), Arc::strong_count(&made)), (LEN, LEN + 1));
        }
    }

    #[test]
    fn goes_on_after_a_panic() {
        let table: Table<_> = Table::new();
        for bad in [0, 3, 40, 40] {
            let grow = || table.grow_to(100, |index| assert_ne!(index, bad));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(grow)).is_err());
            assert_eq!(table.len(), bad);
        }
    }

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
        assert_eq!(times(Backoff::WHILE_IT_RUNS), 4);
        assert_eq!(times(Backoff::AS_IT_MAY_WAIT), 3);
    }
}
