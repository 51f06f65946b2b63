//! What a policy keeps for each processor and uses without a lock: an entry belongs to the holder of
//! the processor's [`Seat`].
//!
//! A seat is unique within its runtime only, and a policy can be used by two runtimes: safe code may
//! put one into an `Arc` and wrap it twice. So an entry belongs to the runtime whose seat came first,
//! for ever, and the seats of others are refused.
//!
//! Invariant: an entry that [`Seats::of`] has given out has one user at a time: there is one seat of
//! its processor in its runtime, and that stays on its kernel thread.
//!
//! Orderings: none of its own. The runtime's name is compared and nothing is read by way of it; what
//! the holders do to an entry travels with the processor (`sched::ownership`), and what it was at
//! first with the length of the table.

use super::Seat;
use crate::atomic::{AtomicUsize, Ordering};
use crate::sys::table::Table;

pub(crate) struct Seats<T>(Table<Entry<T>>);

/// On cache lines of its own, the owner's name with it.
#[repr(align(128))]
struct Entry<T> {
    /// Whose seats are accepted; 0: nobody has come yet.
    runtime: AtomicUsize,
    value: T,
}

impl<T> Seats<T> {
    pub(crate) const fn new() -> Seats<T> {
        Seats(Table::new())
    }

    /// Makes entries until there are as many as processors. Anybody, at any time; allocates.
    pub(crate) fn grow_to(&self, processors: usize, mut make: impl FnMut(usize) -> T) {
        self.0.grow_to(processors, |index| Entry {
            runtime: AtomicUsize::new(0),
            value: make(index),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entry of the seat's holder, who is the caller.
    ///
    /// # Panics
    /// If there is none, or the seat is of another runtime than those before.
    #[inline(always)]
    pub(crate) fn of(&self, seat: &Seat) -> &T {
        match self.0.find(seat.index()) {
            Some(entry) if entry.runtime.load(Ordering::Relaxed) == seat.runtime() => &entry.value,
            entry => self.claim(entry, seat),
        }
    }

    #[cold]
    #[inline(never)]
    fn claim<'a>(&'a self, entry: Option<&'a Entry<T>>, seat: &Seat) -> &'a T {
        let Some(entry) = entry else {
            panic!(
                "the seat of processor {} was used with a policy that knows of {} processors: \
                 accepted are seats of those that `Policy::resize` has told it of",
                seat.index(),
                self.len()
            );
        };
        let (runtime, relaxed) = (seat.runtime(), Ordering::Relaxed);
        let claimed = entry.runtime.compare_exchange(0, runtime, relaxed, relaxed);
        assert!(
            claimed.is_ok() || claimed == Err(runtime),
            "the seat of processor {} was used with a policy that serves another runtime: \
             accepted are the seats of one runtime",
            seat.index()
        );
        &entry.value
    }

    /// Anybody's look at the entry of a processor, if there is one.
    pub(crate) fn find(&self, processor: usize) -> Option<&T> {
        self.0.find(processor).map(|entry| &entry.value)
    }

    /// Anybody's look at all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|entry| &entry.value)
    }
}
