//! Data that a policy keeps for each processor and uses without a lock: an entry belongs to the
//! holder of the processor's [`Seat`].
//!
//! A seat is unique within its runtime only, and two runtimes can use one policy: safe code may put
//! it into an `Arc` and wrap that twice. So an entry belongs for ever to the runtime whose seat
//! came first, and the seats of others are refused.
//!
//! Invariant: an entry that [`Seats::of`] has given out has one user at a time: there is one seat
//! of its processor in its runtime, and that seat stays on its kernel thread.
//!
//! Orderings: none of its own. The seat's name is compared, and nothing is read by way of it. The
//! work of a seat's holders on an entry travels with the processor (`sched::processor`); the
//! entry's first state travels with the length of the table.

use core::marker::PhantomData;
use core::ops::Deref;

use super::Seat;
use crate::engine::atomic::{AtomicU64, Ordering};
use crate::engine::sys::statics::Table;

pub(crate) struct Seats<T>(Table<Entry<T>>);

/// An entry on cache lines of its own, together with the name of its seat.
#[repr(align(128))]
struct Entry<T> {
    /// The name of the seat that is accepted; 0 before the first seat comes.
    seat: AtomicU64,
    value: T,
}

/// An entry and the right to be its one user: that of the seat's holder, for as long as it lends
/// the seat.
pub(crate) struct Held<'a, T> {
    entry: &'a T,
    by: PhantomData<&'a Seat>,
}

impl<T> Clone for Held<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Held<'_, T> {}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.entry
    }
}

impl<T> Seats<T> {
    pub(crate) const fn new() -> Seats<T> {
        Seats(Table::new())
    }

    /// Makes entries until there are as many as processors. Any thread may call it, at any time; it
    /// allocates.
    pub(crate) fn grow_to(&self, processors: usize, mut make: impl FnMut(usize) -> T) {
        self.0.grow_to(processors, |index| Entry {
            seat: AtomicU64::new(0),
            value: make(index),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the entry of the caller, which holds the seat.
    ///
    /// # Panics
    ///
    /// Panics if there is none, or if the entry belongs to another runtime.
    #[inline(always)]
    pub(crate) fn of<'a>(&'a self, seat: &'a Seat) -> &'a T {
        match self.known(seat) {
            Some(entry) => entry,
            None => self.claim(self.0.find(seat.index()), seat),
        }
    }

    /// Returns the entry of the caller, as its one user.
    ///
    /// # Panics
    ///
    /// Panics as [`of`](Seats::of) does.
    #[inline(always)]
    pub(crate) fn hold<'a>(&'a self, seat: &'a Seat) -> Held<'a, T> {
        Held {
            entry: self.of(seat),
            by: PhantomData,
        }
    }

    /// Does the same as [`hold`](Seats::hold), if the seat has come before. (A caller that handles
    /// the other case last need not save its registers for a call that is hardly ever made.)
    #[inline(always)]
    pub(crate) fn hold_known<'a>(&'a self, seat: &'a Seat) -> Option<Held<'a, T>> {
        let entry = self.known(seat)?;
        Some(Held {
            entry,
            by: PhantomData,
        })
    }

    #[inline(always)]
    fn known(&self, seat: &Seat) -> Option<&T> {
        let entry = self.0.find(seat.index())?;
        (entry.seat.load(Ordering::Relaxed) == seat.name()).then_some(&entry.value)
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
        let (name, relaxed) = (seat.name(), Ordering::Relaxed);
        let claimed = entry.seat.compare_exchange(0, name, relaxed, relaxed);
        assert!(
            claimed.is_ok() || claimed == Err(name),
            "the seat of processor {} was used with a policy that serves another runtime: \
             accepted are the seats of one runtime",
            seat.index()
        );
        &entry.value
    }

    /// Returns the entry of a processor, if there is one. Any thread may call it.
    pub(crate) fn find(&self, processor: usize) -> Option<&T> {
        self.0.find(processor).map(|entry| &entry.value)
    }

    /// Returns an iterator over all entries. Any thread may call it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|entry| &entry.value)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::engine::policy::stand_ins::seats_of;
    use crate::engine::policy::{
        LeastLoaded, Others, Policy, Priorities, RelaxedFifo, Victims, WorkStealing,
    };

    /// Returns the message with which `call` panics.
    fn panic_of(call: impl FnOnce()) -> String {
        let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("no panic");
        *payload.downcast::<String>().unwrap()
    }

    fn serves_one(policy: impl Policy) {
        policy.resize(2);
        let (own, others) = (seats_of(1, 3), seats_of(2, 3));
        let asked = |seat: &Seat| _ = policy.next(seat, Others::Busy);
        // The first seat owns the entry.
        asked(&own[0]);
        asked(&others[1]);
        asked(&own[0]);
        for (stranger, processor) in [(&others[0], 0), (&own[1], 1)] {
            let victims = || Victims::new(processor, 2, 0, true);
            for said in [
                panic_of(|| asked(stranger)),
                panic_of(|| _ = policy.steal(stranger, victims())),
            ] {
                let seat = format!("the seat of processor {processor} ");
                let fits = said.starts_with(&seat) && said.contains("serves another runtime");
                assert!(fits, "{said}");
            }
        }
        let said = panic_of(|| asked(&own[2]));
        assert!(said.contains("knows of 2 processors"), "{said}");
        asked(&others[1]);
        policy.resize(3);
        asked(&own[2]);
    }

    #[test]
    fn an_entry_is_of_the_runtime_that_came_first() {
        serves_one(WorkStealing::new());
        serves_one(LeastLoaded::new());
        serves_one(Priorities::new());
        // This policy steals from nobody.
        let policy = RelaxedFifo::new();
        policy.resize(1);
        assert!(policy.next(&seats_of(1, 1)[0], Others::Busy).is_none());
        let said = panic_of(|| _ = policy.next(&seats_of(2, 1)[0], Others::Busy));
        assert!(said.contains("serves another runtime"), "{said}");
    }

    #[test]
    fn two_who_come_first_at_once_are_not_both_let_in() {
        for _ in 0..1000 {
            let entries = Seats::new();
            entries.grow_to(1, |_| ());
            let came = |runtime| {
                let comes = || _ = entries.of(&seats_of(runtime, 1)[0]);
                catch_unwind(AssertUnwindSafe(comes)).is_ok()
            };
            let came = std::thread::scope(|scope| {
                let came = &came;
                let threads = [1, 2].map(|runtime| scope.spawn(move || came(runtime)));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(came.into_iter().filter(|&came| came).count(), 1);
        }
    }
}
