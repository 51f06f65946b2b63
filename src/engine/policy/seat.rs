//! [`Seat`], the right to act as one processor, and [`Seats`], the data that a policy keeps for each processor. The
//! holder of a processor's seat is the one user of that processor's entry, and uses the entry without a lock.
//!
//! A seat is unique within its runtime only, and two runtimes can use one policy: safe code may put the policy into an
//! `Arc` and wrap that twice. So an entry belongs for ever to the runtime whose seat came first, and the seats of other
//! runtimes are refused.
//!
//! # Fewer processors
//!
//! Entries are never freed. When a policy is told of fewer processors, what waits at the entries of those that have left
//! moves to the entries of the processors that stay ([`Seats::resize`]). A thread that is about to be queued at such an
//! entry, because its pusher had read the number of processors before, goes to another one: whoever queues a thread asks
//! under the entry's lock whether the entry is in use ([`Seats::uses`]).
//!
//! # Invariants
//! 1. A processor of a runtime has at most one seat at a time, as the caller of [`Seat::new`] promises. A seat stays on
//!    one kernel thread, since it is neither `Send` nor `Sync`.
//! 2. So an entry that [`Seats::of`] has given out has one user at a time.
//! 3. No thread stays behind at the entry of a processor that has left. The number of entries in use is stored before the
//!    entry is emptied under its lock. Who has that lock before finds the thread moved; who has it after reads the new
//!    number.
//!
//! Orderings: none of its own. The seat's name is compared, and nothing is read by way of it. The work of a seat's
//! holders on an entry travels with the processor (`sched::processor`); the entry's first state travels with the length
//! of the table, and the number of entries in use with the locks of the entries.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::current;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::statics::{MAX, Table};

/// The right to act as one of a runtime's processors.
///
/// The scheduler lends a seat to the policy for one call. A processor has only one seat; so the
/// data that a policy keeps for each processor has one user at a time. A seat stays on the kernel
/// thread that makes the call.
///
/// # Examples
///
/// A policy that counts how many threads each processor takes:
///
/// ```
/// use greenthread::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat};
/// use greenthread::runtime::{Mode, Runtime};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static TAKEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
///
/// #[derive(Default)]
/// struct Counting(Lock<Queue>);
///
/// impl Policy for Counting {
///     fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
///         self.0.lock().push(thread);
///         ForOthers::Work
///     }
///
///     fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
///         let thread = self.0.lock().pop()?;
///         TAKEN[seat.index()].fetch_add(1, Ordering::Relaxed);
///         Some(thread.into())
///     }
///
///     fn len(&self, processor: Option<usize>) -> usize {
///         match processor {
///             None => self.0.lock().len(),
///             Some(_) => 0,
///         }
///     }
/// }
///
/// let runtime = Runtime::builder().processors(2).policy(Counting::default()).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// let taken: usize = TAKEN.iter().map(|count| count.load(Ordering::Relaxed)).sum();
/// match runtime.mode() {
///     Mode::Green => assert!(taken >= 1),
///     _ => assert_eq!(taken, 0),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A seat cannot be used by two threads at once:
///
/// ```compile_fail,E0277
/// # use greenthread::policy::{Policy, Seat, WorkStealing};
/// fn twice(policy: &WorkStealing, seat: &Seat) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| policy.leave(seat)); // `Seat` cannot be shared between threads
///         policy.leave(seat);
///     });
/// }
/// ```
pub struct Seat {
    /// The runtime's number and, in the low bits, the processor's index: one word to compare.
    name: u64,
    not_shared: PhantomData<*const ()>,
}

/// The bits of a seat's name that hold the index.
const INDEX_BITS: u32 = 16;
const _: () = assert!(MAX < 1 << INDEX_BITS);

impl Seat {
    /// Makes the seat of a processor. `runtime` is a number other than 0 that no other runtime has.
    /// (An address will do: it has at most 48 bits.)
    ///
    /// # Safety
    /// The caller owns that processor of that runtime until it drops the seat.
    #[inline(always)]
    pub(crate) unsafe fn new(processor: usize, runtime: usize) -> Seat {
        Seat {
            name: (runtime as u64) << INDEX_BITS | processor as u64,
            not_shared: PhantomData,
        }
    }

    /// Returns the index of the processor.
    ///
    /// It is less than the number of processors that [`Policy::resize`](super::Policy::resize) was
    /// last called with.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Lock, Queue, Ready, Seat};
    ///
    /// /// Takes a thread from the processor's own queue.
    /// fn take(queues: &[Lock<Queue>], seat: &Seat) -> Option<Ready> {
    ///     queues.get(seat.index())?.lock().pop()
    /// }
    /// ```
    #[inline(always)]
    pub fn index(&self) -> usize {
        (self.name & ((1 << INDEX_BITS) - 1)) as usize
    }

    /// Returns a number other than 0 that only this processor's seat in this runtime has.
    #[inline(always)]
    pub(crate) fn name(&self) -> u64 {
        self.name
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.index()).finish()
    }
}

/// An entry for each processor.
pub(crate) struct Seats<T> {
    entries: Table<Entry<T>>,
    in_use: AtomicUsize,
    resizing: Lock<()>,
}

/// An entry on cache lines of its own, together with the name of its seat.
#[repr(align(128))]
struct Entry<T> {
    /// The name of the seat that is accepted; 0 before the first seat comes.
    seat: AtomicU64,
    value: T,
}

/// An entry and the right to be its one user: that of the seat's holder, for as long as the holder lends the seat.
pub(crate) struct Held<'a, T> {
    entry: &'a T,
    by: PhantomData<&'a Seat>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.entry
    }
}

impl<T> Seats<T> {
    pub(crate) const fn new() -> Seats<T> {
        Seats {
            entries: Table::new(),
            in_use: AtomicUsize::new(0),
            resizing: Lock::new(()),
        }
    }

    /// Makes entries until there are as many as processors. Any thread may call it, at any time; it allocates.
    ///
    /// # Panics
    ///
    /// Panics if a policy cannot have so many processors. (Any code may call [`Policy::resize`](super::Policy::resize), with
    /// any number.)
    pub(crate) fn grow_to(&self, processors: usize, mut make: impl FnMut(usize) -> T) {
        assert!(
            (1..=MAX).contains(&processors),
            "a policy for {processors} processors: accepted are 1 to {MAX}"
        );
        self.entries.grow_to(processors, |index| Entry {
            seat: AtomicU64::new(0),
            value: make(index),
        });
    }

    /// Makes entries as [`grow_to`](Seats::grow_to) does. Then calls `empty` for each entry of a processor that has left,
    /// with the entry that takes over what waits there.
    pub(crate) fn resize(
        &self,
        processors: usize,
        make: impl FnMut(usize) -> T,
        empty: impl Fn(&T, &T),
    ) {
        self.grow_to(processors, make);
        let _off = current::preemption_off();
        let _resizing = self.resizing.lock();
        // Relaxed: the locks of the entries order this (invariant 3).
        self.in_use.store(processors, Ordering::Relaxed);
        for (left, entry) in self.iter().skip(processors).enumerate() {
            empty(entry, self.get(left % processors));
        }
    }

    /// Returns the number of processors.
    #[inline(always)]
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns whether a thread may be queued at the entry of this processor. The caller has the entry's lock.
    pub(crate) fn uses(&self, processor: usize) -> bool {
        processor < self.in_use()
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
            None => self.claim(seat),
        }
    }

    /// Returns the entry of the caller, as its one user. Panics as [`of`](Seats::of) does.
    #[inline(always)]
    pub(crate) fn hold<'a>(&'a self, seat: &'a Seat) -> Held<'a, T> {
        Held {
            entry: self.of(seat),
            by: PhantomData,
        }
    }

    /// Does the same as [`hold`](Seats::hold), if the seat has come before. (A caller that handles the other case last need
    /// not save its registers for a call that is hardly ever made.)
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
        let entry = self.entries.find(seat.index())?;
        (entry.seat.load(Ordering::Relaxed) == seat.name()).then_some(&entry.value)
    }

    #[cold]
    #[inline(never)]
    fn claim(&self, seat: &Seat) -> &T {
        let Some(entry) = self.entries.find(seat.index()) else {
            panic!(
                "the seat of processor {} was used with a policy that knows of {} processors: \
                 accepted are seats of those that `Policy::resize` has told it of",
                seat.index(),
                self.entries.len()
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

    /// Returns an entry that there is. Any thread may call it.
    pub(crate) fn get(&self, processor: usize) -> &T {
        &self.entries.get(processor).value
    }

    /// Returns the entry of a processor, if there is one. Any thread may call it.
    pub(crate) fn find(&self, processor: usize) -> Option<&T> {
        self.entries.find(processor).map(|entry| &entry.value)
    }

    /// Returns an iterator over all entries, of processors that have left too. Any thread may call it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
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
            entries.resize(1, |_| (), |(), ()| ());
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
