//! The data that work stealing keeps for one processor: its local queue, next slot and round.
//!
//! The methods of [`Held<Local>`](Held) are for the holder of the processor's seat only. Any thread
//! may steal, take the next slot, and ask how many threads wait.

use core::cell::{Cell, UnsafeCell};

use super::MIXING_INTERVAL;
use crate::engine::atomic::{AtomicUsize, Ordering};
use crate::engine::green::Green;
use crate::engine::green::fifo::Fifo;
use crate::engine::policy::Ready;
use crate::engine::policy::local_queue::LocalQueue;
use crate::engine::policy::seats::Held;
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::perturb;

pub(super) struct Local {
    pub(super) queue: LocalQueue,
    next: AtomicStatic<Green>,
    /// The round, and beside it its length for others to see.
    round: UnsafeCell<Fifo>,
    round_len: AtomicUsize,
    pub(super) picks: Cell<u32>,
    pub(super) next_in_a_row: Cell<u32>,
    yields_to_mixing: Cell<u32>,
    /// Whether the last thread was preempted, and is in the global queue.
    pub(super) was_preempted: Cell<bool>,
    /// The number of preempted threads since one joined the round by itself.
    pub(super) preempted_in_a_row: Cell<usize>,
}

// SAFETY: the cells are used only by the holder of the processor's `Seat`, of which there is one at
// a time, and seats change hands with a Release and an Acquire (`sched::ownership`).
unsafe impl Sync for Local {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for Local {}

impl Local {
    pub(super) fn new(last_in_first_out: bool) -> Local {
        Local {
            queue: LocalQueue::new(last_in_first_out),
            next: AtomicStatic::none(),
            round: UnsafeCell::new(Fifo::new()),
            round_len: AtomicUsize::new(0),
            picks: Cell::new(0),
            next_in_a_row: Cell::new(0),
            yields_to_mixing: Cell::new(MIXING_INTERVAL),
            was_preempted: Cell::new(false),
            preempted_in_a_row: Cell::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn is_next_empty(&self) -> bool {
        self.next.is_none(Ordering::Relaxed)
    }

    /// Takes the thread in the next slot, unless another thread was faster.
    #[inline(always)]
    pub(super) fn take_next(&self) -> Option<Ready> {
        self.exchange_next(None)
    }

    #[inline(always)]
    fn exchange_next(&self, new: Option<&'static Green>) -> Option<Ready> {
        // Release: publishes the record that is put there; partner: Acquire here and in a thief.
        self.next.swap(new, Ordering::AcqRel).map(Ready::new)
    }

    /// Returns the number of threads in the round.
    #[inline(always)]
    pub(super) fn round_len(&self) -> usize {
        self.round_len.load(Ordering::Relaxed)
    }
}

impl Held<'_, Local> {
    /// Puts `thread` at the end of the queue, where there is space for it.
    #[inline]
    pub(super) fn push(self, thread: Ready) {
        // SAFETY: the seat is held.
        unsafe { self.queue.push(thread) };
    }

    #[inline]
    pub(super) fn pop(self) -> Option<Ready> {
        // SAFETY: the seat is held.
        unsafe { self.queue.pop() }
    }

    /// Returns the number of threads that fit into the queue.
    #[inline]
    pub(super) fn space(self) -> usize {
        self.queue.space()
    }

    /// Takes half of the victim's queue, and returns one thread more. The own queue is empty.
    pub(super) fn steal_half_of(self, victim: &Local) -> Option<Ready> {
        // SAFETY: the seat is held.
        unsafe { victim.queue.steal_half(&self.queue) }
    }

    /// Puts `thread` into the next slot; the thread that it displaces.
    #[inline]
    pub(super) fn fill_next(self, thread: Ready) -> Option<Ready> {
        let green = thread.into_green();
        if self.is_next_empty() {
            // Only the holder of the seat fills the slot. Release: publishes the record to a
            // thief, whose swap is an Acquire.
            self.next.store(Some(green), Ordering::Release);
            return None;
        }
        perturb::point("work_stealing: displacing");
        self.exchange_next(Some(green))
    }

    /// Counts a yield, and says whether the thread changes queues.
    #[inline(always)]
    pub(super) fn mixes_now(self, processors: usize) -> bool {
        let left = self.yields_to_mixing.get() - 1;
        let mixes = left == 0;
        self.yields_to_mixing.set(match mixes {
            true => MIXING_INTERVAL * processors as u32,
            false => left,
        });
        mixes
    }

    /// Counts a preemption, and says whether the thread joins the round: whether there is a round
    /// in which not all threads compute, as far as is known.
    pub(super) fn preempted_joins_round(self) -> bool {
        let in_a_row = self.preempted_in_a_row.get();
        self.preempted_in_a_row.set(in_a_row.saturating_add(1));
        in_a_row < self.round_len()
    }

    /// Calls `f` with the round, which calls nothing of this type.
    #[inline(always)]
    pub(super) fn with_round<R>(self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        // SAFETY: the seat is held, and no caller's `f` comes back here.
        let round = unsafe { &mut *self.round.get() };
        let result = f(round);
        self.round_len.store(round.len(), Ordering::Relaxed);
        result
    }

    /// Moves the round, as far as there is space, to the queue, where others can steal from it.
    #[cold]
    #[inline(never)]
    pub(super) fn publish_round(self) {
        while self.space() != 0
            && let Some(green) = self.with_round(Fifo::pop)
        {
            self.push(Ready::new(green));
        }
    }
}
