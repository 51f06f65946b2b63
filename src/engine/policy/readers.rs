//! A reader–writer lock for data that is read all the time and hardly ever changed: here the arrays
//! in which a policy has an entry for each processor.
//!
//! Each processor has a flag on a cache line of its own, so a reader writes nothing that others
//! read; readers without a seat count themselves in one word that they share. The writer announces
//! itself, and waits until every flag is down. (The Cforall proposal in the seeds has such a lock
//! around its ready queue.)
//!
//! | reader at a seat | reader without a seat | writer |
//! |---|---|---|
//! | flag up | count + 1 | `writing` = true |
//! | compiler fence | fence | barrier on all CPUs; where there is none, a fence |
//! | `writing`? then flag down, wait, again | `writing`? then count - 1, wait, again | wait until all flags are down and the count is 0 |
//! | read; flag down | read; count - 1 | change; `writing` = false |
//!
//! Invariants:
//! 1. Either the writer sees a reader's flag, or the reader sees that there is a writer (Dekker's
//!    pattern; the barrier makes the reader's compiler fence a full one at the only moment that
//!    matters). So no reader reads during a change. Where there is no barrier, there are no
//!    green threads and no seats; but a policy may be called without a seat, so these readers
//!    fence for themselves.
//! 2. Readers are not preempted, and read for moments: the writer waits only for threads that run.
//! 3. Readers that wait for the writer keep their processors. So the writer must not wait for a
//!    green thread while it writes: it takes no lock that a green thread can hold, malloc's
//!    included.
//! 4. A reader ends before it reads again, for it has one flag. It calls no foreign code, and its
//!    seat is the only one (`seats`). Its flag goes down even if it panics.
//! 5. There is one writer at a time (`turn`).
//!
//! Orderings: a flag goes down with Release, and the writer loads it with Acquire: the writer sees
//! the readers' work. `writing` is stored with Release and loaded with Acquire: readers see the
//! writer's.

use core::cell::UnsafeCell;

use super::Seat;
use super::seats::Seats;
use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};
use crate::engine::sched::current;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::{backoff::Patience, kernel_thread};

pub(crate) struct Readers<T> {
    seats: Seats<Flag>,
    /// The number of readers without a seat.
    others: AtomicUsize,
    turn: Lock<()>,
    writing: AtomicBool,
    value: UnsafeCell<T>,
}

struct Flag(AtomicBool);

// SAFETY: readers share the value, and a writer has it alone (invariant 1).
unsafe impl<T: Send + Sync> Sync for Readers<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for Readers<T> {}

impl<T> Readers<T> {
    pub(crate) fn new(value: T) -> Readers<T> {
        Readers {
            seats: Seats::new(),
            others: AtomicUsize::new(0),
            turn: Lock::new(()),
            writing: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn read<R>(&self, seat: Option<&Seat>, look: impl FnOnce(&T) -> R) -> R {
        match seat {
            Some(seat) => {
                let flag = &self.seats.of(seat).0;
                let down = || flag.store(false, Ordering::Release);
                let up = || {
                    flag.store(true, Ordering::Relaxed);
                    // Partner: the barrier in `write`.
                    compiler_fence(Ordering::SeqCst);
                };
                self.announce(up, down);
                let _reading = Reading(down);
                // SAFETY: no writer writes before this reader's flag is down.
                look(unsafe { &*self.value.get() })
            }
            None => self.read_without_seat(look),
        }
    }

    #[inline(never)]
    fn read_without_seat<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _off = current::preemption_off();
        let down = || _ = self.others.fetch_sub(1, Ordering::Release);
        let up = || {
            self.others.fetch_add(1, Ordering::Relaxed);
            // Partner: the barrier in `write`, or the fence.
            fence(Ordering::SeqCst);
        };
        self.announce(up, down);
        let _reading = Reading(down);
        // SAFETY: no writer writes before this reader's count is taken back.
        look(unsafe { &*self.value.get() })
    }

    /// Announces a reader with `up`, which ends with a fence.
    #[inline(always)]
    fn announce(&self, up: impl Fn(), down: impl Fn()) {
        loop {
            up();
            // Acquire: pairs with the Release at the end of `write`.
            if !self.writing.load(Ordering::Acquire) {
                return;
            }
            down();
            self.wait_for_writer();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for_writer(&self) {
        let mut patience = Patience::new();
        while self.writing.load(Ordering::Relaxed) {
            patience.pause();
        }
    }

    /// Changes the value; from then on there are at least `seats` seats. It allocates before the
    /// change. For `change` see invariant 3.
    pub(crate) fn write<R>(&self, seats: usize, change: impl FnOnce(&mut T) -> R) -> R {
        self.seats.grow_to(seats, |_| Flag(AtomicBool::new(false)));
        let barrier = kernel_thread::register_barrier();
        let _off = current::preemption_off();
        let _turn = self.turn.lock();
        self.writing.store(true, Ordering::Relaxed);
        // Partners: the fences of readers. Where there is no barrier, no reader has a seat.
        match barrier {
            true => kernel_thread::barrier(),
            false => fence(Ordering::SeqCst),
        }
        let mut patience = Patience::new();
        // Acquire: pairs with the Release of those that put their flags down.
        let reads = |seat: &Flag| seat.0.load(Ordering::Acquire);
        while self.seats.iter().any(reads) || self.others.load(Ordering::Acquire) != 0 {
            patience.pause();
        }
        // SAFETY: nobody reads, and nobody starts to read before `writing` is false.
        let result = change(unsafe { &mut *self.value.get() });
        // Release: pairs with the Acquire in `announce`.
        self.writing.store(false, Ordering::Release);
        result
    }
}

/// Takes a reader's announcement back.
struct Reading<F: Fn()>(F);

impl<F: Fn()> Drop for Reading<F> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0();
    }
}

/// Returns the entry of the seat's processor.
///
/// # Panics
///
/// Panics if there are fewer entries, because somebody other than the scheduler has called
/// `resize`.
#[inline(always)]
pub(crate) fn entry_of<'a, Q>(seat: &Seat, entries: &'a [Q]) -> &'a Q {
    match entries.get(seat.index()) {
        Some(entry) => entry,
        None => panic!(
            "the seat of processor {} was used with a policy that was last told of {} processors",
            seat.index(),
            entries.len()
        ),
    }
}

/// An array with an entry for each processor.
impl<Q> Readers<Box<[Q]>> {
    /// Replaces all entries by new ones, as many as there are processors. `pour` moves the contents
    /// of an old entry, its first argument, to a new one.
    pub(crate) fn resize(
        &self,
        processors: usize,
        make: impl FnMut(usize) -> Q,
        pour: impl Fn(&mut Q, &mut Q),
    ) {
        // Allocated before the change and freed after it: see invariant 3.
        let mut array: Box<[Q]> = (0..processors).map(make).collect();
        self.write(processors, |current| {
            core::mem::swap(current, &mut array);
            for (index, old) in array.iter_mut().enumerate() {
                pour(old, &mut current[index % processors]);
            }
        });
    }
}
