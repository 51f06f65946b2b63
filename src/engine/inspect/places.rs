//! The places of a table, for threads of whose end nobody hears. A thread takes one without a lock and without the
//! allocator.
//!
//! A place says whose it is ([`Place`]). A thread that wants one looks at the places
//! in turn ([`Places`]), and takes the first that is free, or whose thread is gone. So all places are looked at, one
//! round after another. If more than half of the places of a round had living threads, twice as many places are in use
//! from then on. All those threads lived when the round began: so the table has at most four places for each thread that
//! has ever lived at the same time, and a thread looks at four places on the average, or fewer.
//!
//! | a place's word | |
//! |---|---|
//! | turn, thread | the thread has the place, which has had so many threads |
//! | turn, 0 | it is free |
//!
//! # Invariant
//!
//! *A place has one owner.* A thread takes it by a change of the word from the very turn in which the thread saw that
//! the place is free, or that its owner is gone. If the place was given back and taken meanwhile, by a thread with the
//! same number even, the turn is another.
//!
//! # Memory orderings
//!
//! A place is given back with Release and taken with Acquire, so the writes of its threads do not mix. Those of a thread
//! that is gone come before the answer that it is gone.

use crate::engine::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// Whose a record is.
pub(crate) struct Place {
    /// | 32 bits: turn | 32: thread |
    word: AtomicU64,
}

/// The round in which threads look at the places of a table.
pub(crate) struct Places {
    /// The place that is looked at next.
    next: AtomicUsize,
    /// How many places at the front of the table are in use.
    used: AtomicUsize,
    /// How many of the places of this round had living threads.
    living: AtomicUsize,
}

/// How many places are in use at first.
const LEAST: usize = if cfg!(greenthread_model) { 2 } else { 64 };

/// How many places of a full table a thread looks at before it goes without.
const LOOKS: usize = 1024;

const THREAD: u64 = 0xffff_ffff;
const TURN: u64 = THREAD + 1;

impl Place {
    const_fn! {
        pub(crate) const fn new() -> Place {
            Place {
                word: AtomicU64::new(0),
            }
        }
    }

    /// The thread that has it; 0: none.
    pub(crate) fn thread(&self) -> i32 {
        self.word.load(Relaxed) as i32
    }

    /// The thread that has it has another number now: it has forked.
    pub(crate) fn renumber(&self, thread: i32) {
        let turn = self.word.load(Relaxed) & !THREAD;
        self.word.store(turn | u64::from(thread as u32), Relaxed);
    }

    /// Takes it for `thread`, if it is free, or its thread is gone.
    pub(crate) fn take(&self, thread: i32, is_gone: impl Fn(i32) -> bool) -> bool {
        let seen = self.word.load(Relaxed);
        if seen & THREAD != 0 && !is_gone(seen as i32) {
            return false;
        }
        perturb::point("places: taking");
        let taken = (seen & !THREAD).wrapping_add(TURN) | u64::from(thread as u32);
        // Acquire: what the last thread has written; partner: Release in `give_back`.
        let word = &self.word;
        word.compare_exchange(seen, taken, Acquire, Relaxed).is_ok()
    }

    /// The calling thread, which has it, gives it back.
    pub(crate) fn give_back(&self) {
        // Release: what this thread has written; partner: Acquire in `take`.
        self.word.fetch_and(!THREAD, Release);
    }
}

impl Places {
    const_fn! {
        pub(crate) const fn new() -> Places {
            Places {
                next: AtomicUsize::new(0),
                used: AtomicUsize::new(LEAST),
                living: AtomicUsize::new(0),
            }
        }
    }

    /// How many places at the front of the table are in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The first place that `take` takes, of a table with `most` places. `None`: the table seems to be full.
    pub(crate) fn find(&self, most: usize, take: impl Fn(usize) -> bool) -> Option<usize> {
        for look in 0.. {
            let place = self.next.fetch_add(1, Relaxed);
            let used = self.used().min(most);
            if used == most && look == LOOKS {
                break;
            }
            if place >= used {
                self.begin_round(place + 1, used, most);
            } else if take(place) {
                return Some(place);
            } else {
                self.living.fetch_add(1, Relaxed);
            }
        }
        None
    }

    /// The round is over: begins the next, unless another thread does. It goes through the new places only, if there
    /// are some, since they are free.
    fn begin_round(&self, next: usize, used: usize, most: usize) {
        let is_crowded = self.living.load(Relaxed) > used / 2;
        let begin = if is_crowded && used < most { used } else { 0 };
        let has_begun = self.next.compare_exchange(next, begin, Relaxed, Relaxed);
        if has_begun.is_ok() {
            if begin != 0 {
                self.used.store((2 * used).min(most), Relaxed);
            }
            self.living.store(0, Relaxed);
        }
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    fn table(size: usize) -> Vec<Place> {
        (0..size).map(|_| Place::new()).collect()
    }

    /// Threads with even numbers are gone.
    fn take(places: &Places, table: &[Place], thread: i32) -> Option<usize> {
        places.find(table.len(), |i| {
            table[i].take(thread, |other| other % 2 == 0)
        })
    }

    #[test]
    fn a_million_threads_come_and_go_unheard() {
        let (places, table) = (Places::new(), table(1 << 16));
        for thread in 1..=100 {
            assert!(take(&places, &table, 2 * thread + 1).is_some());
        }
        for thread in 1..=1_000_000 {
            assert!(take(&places, &table, 2 * thread).is_some());
        }
        assert!(places.used() <= 400, "{}", places.used());
    }

    #[test]
    fn a_full_table_has_no_place() {
        let (places, table) = (Places::new(), table(3));
        let taken: Vec<_> = (0..4).map(|_| take(&places, &table, 1)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        table[1].give_back();
        assert_eq!(table[1].thread(), 0);
        assert_eq!(take(&places, &table, 3), Some(1));
        assert_eq!(table[1].thread(), 3);
        assert_eq!(take(&places, &table, 5), None);
    }
}
