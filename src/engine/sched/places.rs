//! Places in a table for threads of whose end nobody hears.
//!
//! A thread takes a place without a lock and without the allocator. It may give it back; of a thread that does not, the
//! place is taken back in a *sweep*, which asks of each place whether its thread is gone. A sweep comes when no place is
//! free and at least half of the table was in use after the last one: so the table is at most twice as long as threads
//! have ever lived at the same time, and a place costs two questions on the average.
//!
//! | a place's owner | |
//! |---|---|
//! | turn, thread | the thread has it, for the place's so many-th turn |
//! | turn, 0 | it is free, or in the hands of who takes it or gives it back |
//!
//! Invariants:
//! 1. *A place has one owner.* A free place is in the list once, and who takes it out has it. Who gives it back has had it;
//!    or is a sweep that has changed its owner from the very turn that it looked at.
//! 2. Who has a place and is there keeps it. A sweep looks at the owner, sees that this thread is gone, and changes the
//!    owner. If the place was given back and taken meanwhile, by a thread with the same number even, its turn is another. A
//!    place that is being taken has no thread, so it is not asked about: before, a place had its last thread's
//!    number until the new one had written its own, and a sweep in between gave the place to a third thread.
//! 3. The list's head changes its tag with each change, so that no thread puts in a head's successor of long ago.
//!
//! Orderings: a place is given back with Release and taken with Acquire, so its threads' writes do not mix. Those of a thread
//! that is gone come before the answer that it is gone.

use crate::engine::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// No sweep before so many places were in use.
const LEAST: usize = if cfg!(greenthread_model) { 1 } else { 64 };

/// What is in a table.
pub(crate) trait Placed {
    fn place(&self) -> &Place;
    /// Whether `thread`, which has had the place, is gone without giving it back.
    fn is_gone(&self, thread: i32) -> bool;
    /// The place is given back.
    fn clear(&self);
}

pub(crate) struct Place {
    /// | 32 bits: turn | 32: thread |
    owner: AtomicU64,
    /// Of a free place: the next one and 1, or 0.
    next: AtomicU32,
}

/// Which places of a table are free.
pub(crate) struct Places {
    /// | 32 bits: tag | 32: the first free place and 1, or 0 |
    free: AtomicU64,
    /// How many places have ever been in use.
    used: AtomicUsize,
    /// From so many on a sweep comes before another place is used.
    sweep_from: AtomicUsize,
}

const LOW: u64 = 0xffff_ffff;
const TURN: u64 = LOW + 1;

impl Place {
    const_fn! {
        pub(crate) const fn new() -> Place {
            Place {
                owner: AtomicU64::new(0),
                next: AtomicU32::new(0),
            }
        }
    }

    /// The thread that has it; 0: none.
    pub(crate) fn thread(&self) -> i32 {
        self.owner.load(Relaxed) as i32
    }

    /// The thread that has it has another number now: it has forked.
    pub(crate) fn renumber(&self, thread: i32) {
        self.set(self.owner.load(Relaxed), thread);
    }

    fn set(&self, turn: u64, thread: i32) {
        self.owner
            .store(turn & !LOW | u64::from(thread as u32), Relaxed);
    }
}

impl Places {
    const_fn! {
        pub(crate) const fn new() -> Places {
            Places {
                free: AtomicU64::new(0),
                used: AtomicUsize::new(0),
                sweep_from: AtomicUsize::new(LEAST),
            }
        }
    }

    /// How many places at the front of the table have ever been in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Takes a place for `thread`, which is not 0. `None`: the table is full.
    pub(crate) fn take<T: Placed>(&self, table: &[T], thread: i32) -> Option<usize> {
        let place = self.pop(table).or_else(|| {
            if self.used() >= self.sweep_from.load(Relaxed) {
                self.sweep(table);
            }
            self.pop(table).or_else(|| self.append(table.len()))
        })?;
        perturb::point("places: taken");
        let this = table[place].place();
        this.set(this.owner.load(Relaxed).wrapping_add(TURN), thread);
        Some(place)
    }

    /// Gives a place back, which the calling thread has.
    pub(crate) fn give_back<T: Placed>(&self, table: &[T], place: usize) {
        let this = table[place].place();
        this.set(this.owner.load(Relaxed), 0);
        table[place].clear();
        self.push(table, place);
    }

    /// Takes back the places of threads that are gone.
    fn sweep<T: Placed>(&self, table: &[T]) {
        let used = self.used();
        let mut living = 0;
        for (place, this) in table[..used].iter().enumerate() {
            let owner = &this.place().owner;
            let seen = owner.load(Relaxed);
            let thread = seen as i32;
            if thread == 0 {
                continue;
            }
            perturb::point("places: asking");
            let taken_back = || owner.compare_exchange(seen, seen & !LOW, Relaxed, Relaxed);
            if this.is_gone(thread) && taken_back().is_ok() {
                this.clear();
                self.push(table, place);
            } else {
                living += 1;
            }
        }
        self.sweep_from.store(LEAST.max(2 * living), Relaxed);
    }

    fn pop<T: Placed>(&self, table: &[T]) -> Option<usize> {
        // Acquire: the successor; partner: Release in `push`.
        let mut head = self.free.load(Acquire);
        loop {
            let place = (head & LOW).checked_sub(1)? as usize;
            let next = table[place].place().next.load(Relaxed);
            let new = (head & !LOW).wrapping_add(TURN) | u64::from(next);
            // Acquire: what was cleared; partner: as above.
            match self.free.compare_exchange(head, new, Acquire, Acquire) {
                Ok(_) => return Some(place),
                Err(now) => head = now,
            }
        }
    }

    fn push<T: Placed>(&self, table: &[T], place: usize) {
        let mut head = self.free.load(Relaxed);
        loop {
            table[place].place().next.store(head as u32, Relaxed);
            let new = (head & !LOW).wrapping_add(TURN) | (place as u64 + 1);
            // Release: what was cleared, and the successor; partner: Acquire in `pop`.
            match self.free.compare_exchange(head, new, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn append(&self, most: usize) -> Option<usize> {
        let next = |used: usize| (used < most).then(|| used + 1);
        self.used.fetch_update(Relaxed, Relaxed, next).ok()
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    struct Thing(Place);

    /// Threads with even numbers are gone.
    impl Placed for Thing {
        fn place(&self) -> &Place {
            &self.0
        }
        fn is_gone(&self, thread: i32) -> bool {
            thread % 2 == 0
        }
        fn clear(&self) {}
    }

    #[test]
    fn a_million_threads_come_and_go_unheard() {
        let table: Vec<_> = (0..1 << 16).map(|_| Thing(Place::new())).collect();
        let places = Places::new();
        for thread in 1..=100 {
            assert!(places.take(&table, 2 * thread + 1).is_some());
        }
        for thread in 1..=1_000_000 {
            assert!(places.take(&table, 2 * thread).is_some());
        }
        assert!(places.used() <= 200, "{}", places.used());
    }

    #[test]
    fn a_full_table_has_no_place() {
        let table: Vec<_> = (0..3).map(|_| Thing(Place::new())).collect();
        let places = Places::new();
        let taken: Vec<_> = (0..4).map(|_| places.take(&table, 1)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        places.give_back(&table, 1);
        assert_eq!(table[1].0.thread(), 0);
        assert_eq!(places.take(&table, 3), Some(1));
        assert_eq!(table[1].0.thread(), 3);
        assert_eq!(places.take(&table, 5), None);
    }
}
