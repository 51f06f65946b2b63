//! The data that work stealing keeps for one processor: its local queue with the overflow behind it, its
//! next slot and its round.
//!
//! The methods of [`Held<Local>`](Held) are for the holder of the processor's seat only. Any thread
//! may steal, take the next slot, hand a thread over, and ask how many threads wait.
//!
//! # Mixing
//!
//! Threads that yield stay in the round of their processor, and would stay for ever if processors
//! did not exchange some. At one of [`MIXING_INTERVAL`] yields a processor asks its next partner,
//! round about, for a thread, and answers the processor that has asked it: the thread that has just
//! yielded goes to that one's overflow, unless more threads wait there than here. So a thread moves
//! only to a processor that gives turns to those that yield.
//!
//! Threads that wake each other stay in the queue of their processor, too. So at one of
//! [`GLOBAL_INTERVAL`] turns of the global queue a processor takes threads of its next partner.
//!
//! | `wanted` | by | becomes |
//! |---|---|---|
//! | anything | a processor that asks | its index and one |
//! | an index and one | the processor that answers | 0 |
//!
//! A request that another one replaces is lost; its processor asks again. Relaxed: the word
//! publishes nothing, and the thread travels by the overflow's lock.

use core::cell::{Cell, UnsafeCell};

use super::next_slot::NextSlot;
use super::overflow::Overflow;
use crate::engine::atomic::{AtomicUsize, Ordering};
use crate::engine::policy::Ready;
use crate::engine::policy::local_queue::{HALF, LocalQueue};
use crate::engine::policy::seats::{Held, Seats};
use crate::engine::policy::tuning::{
    GLOBAL_INTERVAL, MANY, MIXING_INTERVAL, NEXT_IN_A_ROW, ROUND_TURNS,
};
use crate::engine::sched::Green;
use crate::engine::sched::list::Fifo;

/// The fields that others look at come first: the name of the entry, the round's length, the overflow and
/// the next slot on one cache line, the ends of the queue on another.
#[repr(C)]
pub(super) struct Local {
    /// The round's length, for others to see; the round itself is below.
    round_len: AtomicUsize,
    pub(super) overflow: Overflow,
    pub(super) next: NextSlot,
    pub(super) queue: LocalQueue,
    round: UnsafeCell<Fifo>,
    /// The processor that wants a thread from this one, plus one; 0: none does.
    wanted: AtomicUsize,
    index: usize,
    pub(super) picks: Cell<u32>,
    /// The picks since the global queue last came first.
    picks_since_global: Cell<u32>,
    /// The picks that were the round's or, in their place, the queue's.
    pub(super) round_turns: Cell<u32>,
    pub(super) next_in_a_row: Cell<u32>,
    yields_to_mixing: Cell<u32>,
    /// The last processor with which it exchanged threads.
    partner: Cell<usize>,
    turns_to_evening_out: Cell<u32>,
    /// Whether the last thread was preempted, and is in the global queue.
    pub(super) was_preempted: Cell<bool>,
    /// The number of preempted threads since one joined the round by itself.
    pub(super) preempted_in_a_row: Cell<usize>,
}

// SAFETY: the cells are used only by the holder of the processor's `Seat`, of which there is one at
// a time, and seats change hands with a Release and an Acquire (`sched::processor`).
unsafe impl Sync for Local {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for Local {}

impl Local {
    pub(super) fn new(index: usize) -> Local {
        Local {
            round_len: AtomicUsize::new(0),
            overflow: Overflow::new(),
            next: NextSlot::new(),
            queue: LocalQueue::new(),
            round: UnsafeCell::new(Fifo::new()),
            wanted: AtomicUsize::new(0),
            index,
            picks: Cell::new(0),
            picks_since_global: Cell::new(0),
            round_turns: Cell::new(0),
            next_in_a_row: Cell::new(0),
            yields_to_mixing: Cell::new(MIXING_INTERVAL),
            partner: Cell::new(index),
            turns_to_evening_out: Cell::new(GLOBAL_INTERVAL),
            was_preempted: Cell::new(false),
            preempted_in_a_row: Cell::new(0),
        }
    }

    /// Returns the number of threads in the round.
    #[inline(always)]
    pub(super) fn round_len(&self) -> usize {
        self.round_len.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that wait here.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.overflow.len() + self.round_len() + !self.next.is_empty() as usize
    }

    /// Returns the number of threads that wait in the queue and behind it.
    pub(super) fn stealable(&self) -> usize {
        self.queue.len() + self.overflow.len()
    }

    /// Returns whether a thief would find a thread.
    pub(super) fn has_work_for_others(&self) -> bool {
        !self.queue.is_empty() || self.overflow.len() != 0 || !self.next.is_empty()
    }
}

impl Held<'_, Local> {
    /// Puts `thread` at the end of the queue; gives it back if there is no space.
    #[inline]
    pub(super) fn push(self, thread: Ready) -> Result<(), Ready> {
        if self.queue.space() == 0 {
            return Err(thread);
        }
        self.queue.push(thread.into_green());
        Ok(())
    }

    /// Puts the threads of `batch` at the end of the queue, as far as there is space.
    pub(super) fn push_some_of(self, batch: &mut Fifo) {
        let mut space = self.queue.space();
        while space != 0
            && let Some(green) = batch.pop()
        {
            green.prefetch_record();
            self.queue.push(green);
            space -= 1;
        }
    }

    /// Takes the first thread of the queue; when it is empty, the first chain of the overflow comes
    /// into it.
    #[inline]
    pub(super) fn pop(self) -> Option<Ready> {
        let first = self.queue.pop();
        if self.queue.len() >= MANY
            && let Some((next, after_next)) = self.queue.first_two()
        {
            Green::prefetch_two(next, after_next);
        }
        first
            .or_else(|| self.first_of(self.overflow.take()?))
            .map(Ready::new)
    }

    /// Returns the first thread of `chain` and puts the others into the queue, which is empty.
    #[cold]
    #[inline(never)]
    fn first_of(self, mut chain: Fifo) -> Option<&'static Green> {
        let first = chain.pop();
        self.push_some_of(&mut chain);
        if chain.len() != 0 {
            // A thief still copies what it has taken out of the queue.
            self.overflow.push(chain);
        }
        first
    }

    /// Takes half of the victim's queue, or a chain of its overflow, and returns one thread more. The
    /// own queue is empty.
    pub(super) fn steal_from(self, victim: &Local) -> Option<Ready> {
        let first = victim.queue.steal_half(&self.queue, HALF);
        first
            .or_else(|| self.first_of(victim.overflow.steal()?))
            .map(Ready::new)
    }

    /// Counts a turn of the global queue, and says whether it is time to even out.
    pub(super) fn evens_out_now(self) -> bool {
        let left = self.turns_to_evening_out.get() - 1;
        let is_time = left == 0;
        let turns = if is_time { GLOBAL_INTERVAL } else { left };
        self.turns_to_evening_out.set(turns);
        is_time
    }

    /// Takes from `partner` as many threads as both have the same number then, or as many as it can take
    /// at once; one if they have the same number already. Returns one of them.
    pub(super) fn even_out(self, partner: &Local) -> Option<Ready> {
        let surplus = partner.stealable().checked_sub(self.stealable())? / 2;
        if surplus >= HALF
            && let Some(chain) = partner.overflow.steal()
        {
            self.overflow.push(chain);
            return None;
        }
        let first = partner.queue.steal_half(&self.queue, surplus.max(1));
        first.map(Ready::new)
    }

    /// Counts a pick, and says whether it is the global queue's: each `interval`th is.
    #[inline(always)]
    pub(super) fn is_global_turn(self, interval: u32) -> bool {
        let picks = self.picks_since_global.get() + 1;
        let is_turn = picks >= interval;
        self.picks_since_global.set(if is_turn { 0 } else { picks });
        is_turn
    }

    /// Counts a turn of the round, and says whether the queue has it: each [`ROUND_TURNS`]th.
    #[inline(always)]
    pub(super) fn is_queues_turn(self) -> bool {
        let turns = self.round_turns.get().wrapping_add(1);
        self.round_turns.set(turns);
        turns.is_multiple_of(ROUND_TURNS)
    }

    /// Returns how often the next slot may be used in a row.
    #[inline(always)]
    pub(super) fn most_in_a_row(self) -> u32 {
        match (self.queue.is_empty(), self.round_len()) {
            (false, _) => NEXT_IN_A_ROW,
            (true, 0) => u32::MAX,
            (true, _) => GLOBAL_INTERVAL,
        }
    }

    /// Returns whether no other thread waits here than the one in the next slot.
    #[inline(always)]
    pub(super) fn has_only_next(self) -> bool {
        !self.next.is_empty() && self.queue.is_empty() && self.round_len() == 0
    }

    /// Counts a yield, and says whether it is time to exchange threads.
    #[inline(always)]
    pub(super) fn mixes_now(self) -> bool {
        let left = self.yields_to_mixing.get() - 1;
        self.yields_to_mixing.set(left);
        left == 0
    }

    /// Asks the next partner for a thread, and returns the index of the processor that asks for one
    /// here.
    pub(super) fn exchange_requests(self, locals: &Seats<Local>) -> Option<usize> {
        self.yields_to_mixing.set(MIXING_INTERVAL);
        if let Some(partner) = self.next_partner(locals) {
            partner.wanted.store(self.index + 1, Ordering::Relaxed);
        }
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted != 0 {
            self.wanted.store(0, Ordering::Relaxed);
        }
        wanted.checked_sub(1)
    }

    /// Returns the processor after the last partner, round about.
    pub(super) fn next_partner(self, locals: &Seats<Local>) -> Option<&Local> {
        let next = match self.after(self.partner.get(), locals) {
            own if own == self.index => self.after(own, locals),
            other => other,
        };
        self.partner.set(next);
        (next != self.index).then(|| locals.find(next))?
    }

    /// Returns the neighbour: always the same processor, whose lines are in the cache.
    pub(super) fn neighbour(self, locals: &Seats<Local>) -> Option<&Local> {
        locals.find(self.after(self.index, locals))
    }

    fn after(self, index: usize, locals: &Seats<Local>) -> usize {
        let next = index + 1;
        if next < locals.len() { next } else { 0 }
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

    /// Takes the first thread of the round.
    #[inline(always)]
    pub(super) fn pop_round(self) -> Option<Ready> {
        let first = self.with_round(|round| {
            let first = round.pop();
            if round.len() >= MANY
                && let Some((next, after_next)) = round.first_two()
            {
                Green::prefetch_two(next, after_next);
            }
            first
        });
        first.map(Ready::new)
    }

    /// Moves the round, as far as there is space, to the queue, where others can steal from it.
    #[cold]
    #[inline(never)]
    pub(super) fn publish_round(self) {
        self.with_round(|round| self.push_some_of(round));
    }

    /// Puts `thread` in front of the round, as the newest of a stack. The older half of the stack
    /// goes to the queue when that is empty, so that thieves find some.
    pub(super) fn stack(self, thread: Ready) {
        self.with_round(|round| {
            round.push_first(thread.into_green());
            if self.queue.is_empty() {
                let mut older = round.split_off(round.len().div_ceil(2));
                self.push_some_of(&mut older);
                round.append(older);
            }
        });
    }

    /// Takes all threads; the processor goes out of use until it asks for a thread again.
    pub(super) fn leave(self) -> Fifo {
        let mut all = Fifo::new();
        let mut put = |green| all.push(green);
        self.next
            .steal()
            .map(Ready::into_green)
            .into_iter()
            .for_each(&mut put);
        core::iter::from_fn(|| self.queue.pop()).for_each(put);
        all.append(self.overflow.close());
        all.append(self.with_round(core::mem::take));
        all
    }

    /// Takes the first thread out of the overflow, which is open again now that the processor is in use.
    #[cold]
    #[inline(never)]
    pub(super) fn take_from_backlog(self) -> Option<Ready> {
        if self.overflow.is_closed() {
            self.overflow.open();
        }
        self.overflow.take_one().map(Ready::new)
    }
}
