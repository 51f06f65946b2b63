//! What lives for ever and is shared without a lock: an atomic `Option<&'static T>`, and a table that only grows.
//!
//! # The atomic static
//! An address that is null, or leads to a value that is never freed. The caller chooses the orderings.
//!
//! # The table
//! Entries stay where they are, so a reference is good as long as the table is, and readers need no lock. Entry `i` lies
//! in segment `log2(i + 1)`, which has room for `2^segment` entries. One thread at a time grows the table, under std's
//! lock since growing allocates: that thread makes an entry, then stores the new length.
//!
//! Orderings: the length is stored with Release and loaded with Acquire, so a thread that knows of an entry sees the entry.

use core::mem::ManuallyDrop;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use crate::engine::atomic::{AtomicPtr, AtomicUsize, Ordering, const_fn};
use crate::engine::sys::die;

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

    /// Whether nothing is there now.
    #[inline(always)]
    pub(crate) fn is_none(&self, order: Ordering) -> bool {
        self.0.load(order).is_null()
    }
}

#[inline(always)]
fn pointer<T>(target: Option<&'static T>) -> *mut T {
    target.map_or(ptr::null_mut(), |target| ptr::from_ref(target).cast_mut())
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
        // A panic in `make` leaves the entries that were made before.
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
        match self.find(index) {
            Some(entry) => entry,
            None => die("a table is shorter than its user thinks"),
        }
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
        // A number that the compiler does not know: it would unroll the loop.
        for segment in 0..core::hint::black_box(SEGMENTS) {
            let pointer = self.segments[segment].load(Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::Table;
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
}
