//! The data that work stealing keeps for one processor: its local queue with the overflow behind it, its next slot and
//! its round.
//!
//! The methods of [`Held<Local>`](Held) are for the holder of the processor's seat only. Any thread may steal, take the next
//! slot, hand a thread over, and ask how many threads wait.
//!
//! # The next slot
//!
//! The thread in the slot was woken or spawned by the running one, which most often waits itself a moment later: to wake
//! another processor for the thread would take longer. But a thread that *lingers* computes on after it has woken another
//! one, and keeps that one waiting. So the slot's holder learns which threads linger: it times one of [`GLOBAL_INTERVAL`]
//! fills, and all by threads that linger. If it is the holder who takes the thread, after [`LONG`] or more, the running
//! thread lingers; a thread that has not lingered twice in a row counts as one that does not linger. When a lingering thread
//! fills the slot, the slot is *slow*: the thread in it is work for others, and thieves do not leave it to its processor. A
//! thief teaches nothing, for it may have come by chance.
//!
//! | `is_slow` becomes | when |
//! |---|---|
//! | yes | a thread that lingers fills the slot |
//! | no | the thread is taken |
//!
//! A thread is known by its record's address, which may be that of a thread that has ended, and the running thread need not
//! be the one that came out of the queue last: it is a guess, and a wrong one costs a wake-up.
//!
//! # The overflow
//!
//! What a full local queue cannot hold goes to a list without bound, under a lock of its own: half a queue at a time. From
//! there it comes back, or goes to a thief, [`HALF`] a queue at a time. So a thread pays for the lock only its part of a
//! visit, and the lock is held for no longer than it takes to follow so many links. A processor may also hand a single
//! thread over to the overflow of another one.
//!
//! No thread is handed to a processor that is out of use: whoever hands one over asks under the overflow's lock (`seat`,
//! invariant 3).
//!
//! # Mixing
//!
//! Threads that yield stay in the round of their processor, and would stay for ever if processors did not exchange some. At
//! one of [`MIXING_INTERVAL`] yields a processor asks its next partner, round about, for a thread, and answers the processor
//! that has asked it: the thread that has just yielded goes to that one's overflow, unless more threads wait there than
//! here. So a thread moves only to a processor that gives turns to those that yield.
//!
//! Threads that wake each other stay in the queue of their processor, too. So at one of [`GLOBAL_INTERVAL`] turns of the
//! overflow a processor takes threads of its next partner.
//!
//! | `wanted` | by | becomes |
//! |---|---|---|
//! | anything | a processor that asks | its index and one |
//! | an index and one | the processor that answers; the one of that index, when it leaves | 0 |
//!
//! A request that another one replaces is lost; its processor asks again.
//!
//! # Orderings
//!
//! The record of the thread in the next slot is published by a Release, for the Acquire of the one who takes it. All else
//! is Relaxed: the overflow is under its lock, `wanted` publishes nothing, and the rest are hints to callers, unless these
//! have ordered themselves after the pushes (as the fences of the idle handshake do).

use core::cell::{Cell, UnsafeCell};
use core::{iter, mem, ptr};

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::policy::Ready;
use crate::engine::policy::local_queue::{HALF, LocalQueue};
use crate::engine::policy::seat::{Held, Seats};
use crate::engine::policy::tuning::{
    GLOBAL_INTERVAL, LONG, MANY, MIXING_INTERVAL, NEXT_IN_A_ROW, ROUND_TURNS,
};
use crate::engine::sched::Fifo;
use crate::engine::sched::Green;
use crate::engine::sys::lock::{Guard, Lock};
use crate::engine::sys::perturb;
use crate::engine::sys::statics::AtomicStatic;

// ---- the next slot ----

/// The number of threads that are remembered, at most.
const REMEMBERED: usize = 8;
/// [`NextSlot::filled_at`] of a fill that is not timed.
const NOT_TIMED: u64 = 0;
/// [`NextSlot::running`] before the first thread; no record's address, nor that of an empty place.
const NOBODY: usize = 2;
/// In a place: the thread did not linger the last time. Records have even addresses.
const DOUBTED: usize = 1;

#[repr(C)]
pub(super) struct NextSlot {
    thread: AtomicStatic<Green>,
    /// The address of the running thread's record.
    running: Cell<usize>,
    filled_at: AtomicU64,
    fills_to_timed: Cell<u32>,
    /// The threads that linger, each in the place that its address names.
    lingering: [Cell<usize>; REMEMBERED],
    /// With this and the bytes behind it, the flag is alone on its cache line: others look at it, and it hardly ever
    /// changes. (An alignment would be that of all that has the slot inside.)
    _before: [u8; 64],
    is_slow: AtomicBool,
    _behind: [u8; 63],
}

impl NextSlot {
    fn new() -> NextSlot {
        NextSlot {
            thread: AtomicStatic::none(),
            running: Cell::new(NOBODY),
            filled_at: AtomicU64::new(NOT_TIMED),
            fills_to_timed: Cell::new(GLOBAL_INTERVAL),
            lingering: [const { Cell::new(0) }; REMEMBERED],
            _before: [0; 64],
            is_slow: AtomicBool::new(false),
            _behind: [0; 63],
        }
    }

    // Any thread may call these.

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.thread.is_none(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Takes the thread, unless another caller was faster.
    #[inline]
    pub(super) fn steal(&self) -> Option<Ready> {
        // Not after the exchange: the slot may have been filled again by then.
        self.end_timing();
        perturb::point("next_slot: stealing");
        self.exchange(None)
    }

    /// Takes the thread if the slot is slow.
    #[inline]
    pub(super) fn relieve(&self) -> Option<Ready> {
        (self.is_slow() && !self.is_empty()).then(|| self.steal())?
    }

    #[inline(always)]
    fn exchange(&self, new: Option<&'static Green>) -> Option<Ready> {
        // Release: publishes the record that is put there; partner: Acquire here and in a thief.
        self.thread.swap(new, Ordering::AcqRel).map(Ready::new)
    }

    /// Returns when the slot was filled, if that was timed.
    fn end_timing(&self) -> u64 {
        if self.is_slow() {
            self.is_slow.store(false, Ordering::Relaxed);
        }
        let filled_at = self.filled_at.load(Ordering::Relaxed);
        self.filled_at.store(NOT_TIMED, Ordering::Relaxed);
        filled_at
    }

    // The holder of the seat calls these.

    /// Notes that `thread` runs from now on.
    #[inline(always)]
    pub(super) fn set_running(&self, thread: &Green) {
        self.running.set(ptr::from_ref(thread).addr());
    }

    /// Takes the thread, unless a thief was faster.
    #[inline(always)]
    pub(super) fn take(&self, clock: impl FnOnce() -> u64) -> Option<Ready> {
        let thread = self.exchange(None)?;
        if self.filled_at.load(Ordering::Relaxed) != NOT_TIMED {
            self.learn(clock);
        }
        Some(thread)
    }

    /// Puts `thread` into the slot, and returns the thread that it displaces there.
    #[inline]
    pub(super) fn fill(&self, thread: Ready, clock: impl FnOnce() -> u64) -> Option<Ready> {
        let green = thread.into_green();
        if !self.is_empty() {
            perturb::point("next_slot: displacing");
            return self.exchange(Some(green));
        }
        let running = self.running.get();
        let lingers = self.place(running).get() & !DOUBTED == running;
        let left = self.fills_to_timed.get() - 1;
        self.fills_to_timed.set(left);
        if lingers || left == 0 {
            self.begin_timing(lingers, clock);
        }
        // Only the holder of the seat fills the slot. Release: publishes the record to a thief, whose swap is an Acquire.
        self.thread.store(Some(green), Ordering::Release);
        None
    }

    #[cold]
    #[inline(never)]
    fn begin_timing(&self, lingers: bool, clock: impl FnOnce() -> u64) {
        if self.fills_to_timed.get() == 0 {
            self.fills_to_timed.set(GLOBAL_INTERVAL);
        }
        self.filled_at.store(clock(), Ordering::Relaxed);
        if lingers {
            self.is_slow.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&self, clock: impl FnOnce() -> u64) {
        let running = self.running.get();
        let filled_at = self.end_timing();
        if filled_at == NOT_TIMED {
            return; // a thief, who came too late for the thread
        }
        let place = self.place(running);
        if clock().saturating_sub(filled_at) >= LONG {
            place.set(running);
        } else if place.get() == running {
            place.set(running | DOUBTED);
        } else if place.get() == running | DOUBTED {
            place.set(0);
        }
    }

    /// The place, among the threads that linger, of the one whose record has this address.
    #[inline(always)]
    fn place(&self, record: usize) -> &Cell<usize> {
        &self.lingering[record / size_of::<Green>() % REMEMBERED]
    }
}

// ---- the overflow ----

pub(super) struct Overflow {
    threads: Lock<Fifo>,
    len: AtomicUsize,
}

impl Overflow {
    fn new() -> Overflow {
        Overflow {
            threads: Lock::new(Fifo::new()),
            len: AtomicUsize::new(0),
        }
    }

    /// Returns the number of threads; any thread may ask.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn change<T>(&self, mut threads: Guard<'_, Fifo>, change: impl FnOnce(&mut Fifo) -> T) -> T {
        let result = change(&mut threads);
        self.len.store(threads.len(), Ordering::Relaxed);
        result
    }

    /// Adds threads behind the others. For the holder of the seat.
    pub(super) fn push(&self, chain: Fifo) {
        self.change(self.threads.lock(), |threads| threads.append(chain));
    }

    /// Hands over a thread of another processor if this one `is_in_use`, which is asked under the lock. False: it is not,
    /// or another caller has the lock, and the thread is still the caller's.
    pub(super) fn give(&self, is_in_use: impl FnOnce() -> bool, thread: &'static Green) -> bool {
        match self.threads.try_lock() {
            Some(threads) if is_in_use() => {
                self.change(threads, |threads| threads.push(thread));
                true
            }
            _ => false,
        }
    }

    /// Takes the first threads, so many at most. For the holder of the seat.
    fn take(&self, most: usize) -> Fifo {
        self.change(self.threads.lock(), |threads| threads.take_first(most))
    }

    /// Takes the first threads for another processor; none if the overflow is in use.
    fn steal(&self) -> Fifo {
        match self.threads.try_lock() {
            Some(threads) => self.change(threads, |threads| threads.take_first(HALF)),
            None => Fifo::new(),
        }
    }

    /// Takes all threads. The caller is not preempted.
    pub(super) fn take_all(&self) -> Fifo {
        self.change(self.threads.lock(), mem::take)
    }
}

// ---- a processor ----

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
    /// The last processor with which this one exchanged threads.
    partner: Cell<usize>,
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
    pub(super) fn push(&self, thread: Ready) -> Result<(), Ready> {
        if self.queue.space() == 0 {
            return Err(thread);
        }
        self.queue.push(thread.into_green());
        Ok(())
    }

    /// Puts the threads of `batch` at the end of the queue, as far as there is space.
    pub(super) fn push_some_of(&self, batch: &mut Fifo) {
        let mut space = self.queue.space();
        while space != 0
            && let Some(green) = batch.pop()
        {
            green.prefetch_record();
            self.queue.push(green);
            space -= 1;
        }
    }

    /// Takes the first thread of the queue; when it is empty, the first threads of the overflow come into it.
    #[inline]
    pub(super) fn pop(&self) -> Option<Ready> {
        let first = self.queue.pop();
        if self.queue.len() >= MANY
            && let Some((next, after_next)) = self.queue.first_two()
        {
            Green::prefetch_two(next, after_next);
        }
        match first {
            None if self.overflow.len() != 0 => self.first_of(self.overflow.take(HALF)),
            first => first.map(Ready::new),
        }
    }

    /// Returns the first thread of `chain` and puts the others into the queue, which is empty.
    #[cold]
    #[inline(never)]
    fn first_of(&self, mut chain: Fifo) -> Option<Ready> {
        let first = chain.pop();
        self.push_some_of(&mut chain);
        if chain.len() != 0 {
            // A thief still copies what it has taken out of the queue.
            self.overflow.push(chain);
        }
        first.map(Ready::new)
    }

    /// Takes half of the victim's queue, or the first threads of its overflow, and returns one thread more. The own queue
    /// is empty.
    pub(super) fn steal_from(&self, victim: &Local) -> Option<Ready> {
        match victim.queue.steal_half(&self.queue, HALF) {
            None if victim.overflow.len() != 0 => self.first_of(victim.overflow.steal()),
            first => first.map(Ready::new),
        }
    }

    /// Takes from `partner` as many threads as both have the same number then, or as many as it can take
    /// at once; one if they have the same number already. Returns one of them.
    pub(super) fn even_out(&self, partner: &Local) -> Option<Ready> {
        let surplus = partner.stealable().checked_sub(self.stealable())? / 2;
        if surplus >= HALF && partner.overflow.len() != 0 {
            self.overflow.push(partner.overflow.steal());
            return None;
        }
        let first = partner.queue.steal_half(&self.queue, surplus.max(1));
        first.map(Ready::new)
    }

    /// Counts a pick, and says whether it is the global queue's: each `interval`th is.
    #[inline(always)]
    pub(super) fn is_global_turn(&self, interval: u32) -> bool {
        let picks = self.picks_since_global.get() + 1;
        let is_turn = picks >= interval;
        self.picks_since_global.set(if is_turn { 0 } else { picks });
        is_turn
    }

    /// Counts a turn of the round, and says whether the queue has it: each [`ROUND_TURNS`]th.
    #[inline(always)]
    pub(super) fn is_queues_turn(&self) -> bool {
        let turns = self.round_turns.get().wrapping_add(1);
        self.round_turns.set(turns);
        turns.is_multiple_of(ROUND_TURNS)
    }

    /// Returns how often the next slot may be used in a row.
    #[inline(always)]
    pub(super) fn most_in_a_row(&self) -> u32 {
        match (self.queue.is_empty(), self.round_len()) {
            (false, _) => NEXT_IN_A_ROW,
            (true, 0) => u32::MAX,
            (true, _) => GLOBAL_INTERVAL,
        }
    }

    /// Returns whether no other thread waits here than the one in the next slot.
    #[inline(always)]
    pub(super) fn has_only_next(&self) -> bool {
        !self.next.is_empty() && self.queue.is_empty() && self.round_len() == 0
    }

    /// Counts a yield, and says whether it is time to exchange threads.
    #[inline(always)]
    pub(super) fn mixes_now(&self) -> bool {
        let left = self.yields_to_mixing.get() - 1;
        self.yields_to_mixing.set(left);
        left == 0
    }

    /// Asks the next partner for a thread, and returns the index of the processor that asks for one
    /// here.
    pub(super) fn exchange_requests(&self, locals: &Seats<Local>) -> Option<usize> {
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

    /// Takes the last request back, for a processor that leaves.
    pub(super) fn withdraw_request(&self, locals: &Seats<Local>) {
        let wanted = &locals.get(self.partner.get()).wanted;
        if wanted.load(Ordering::Relaxed) == self.index + 1 {
            wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the processor after the last partner, round about.
    pub(super) fn next_partner<'a>(&self, locals: &'a Seats<Local>) -> Option<&'a Local> {
        let after = |index| (index + 1) % locals.in_use();
        let mut partner = after(self.partner.get());
        if partner == self.index {
            partner = after(partner);
        }
        self.partner.set(partner);
        (partner != self.index).then(|| locals.find(partner))?
    }

    /// Returns the neighbour: always the same processor, whose lines are in the cache.
    pub(super) fn neighbour<'a>(&self, locals: &'a Seats<Local>) -> Option<&'a Local> {
        locals.find((self.index + 1) % locals.in_use())
    }

    /// Counts a preemption, and says whether the thread joins the round: whether there is a round
    /// in which not all threads compute, as far as is known.
    pub(super) fn preempted_joins_round(&self) -> bool {
        let in_a_row = self.preempted_in_a_row.get();
        self.preempted_in_a_row.set(in_a_row.saturating_add(1));
        in_a_row < self.round_len()
    }

    /// Calls `f` with the round, which calls nothing of this type.
    #[inline(always)]
    pub(super) fn with_round<R>(&self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        // SAFETY: the seat is held, and no caller's `f` comes back here.
        let round = unsafe { &mut *self.round.get() };
        let result = f(round);
        self.round_len.store(round.len(), Ordering::Relaxed);
        result
    }

    /// Takes the first thread of the round.
    #[inline(always)]
    pub(super) fn pop_round(&self) -> Option<Ready> {
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
    pub(super) fn publish_round(&self) {
        self.with_round(|round| self.push_some_of(round));
    }

    /// Puts `thread` in front of the round, as the newest of a stack. The older half of the stack
    /// goes to the queue when that is empty, so that thieves find some.
    pub(super) fn stack(&self, thread: Ready) {
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
    pub(super) fn leave(&self) -> Fifo {
        let mut all = Fifo::new();
        let next = self.next.steal().map(Ready::into_green);
        let queued = iter::from_fn(|| self.queue.pop());
        next.into_iter()
            .chain(queued)
            .for_each(|green| all.push(green));
        all.append(self.overflow.take_all());
        all.append(self.with_round(mem::take));
        all
    }

    /// Takes the first thread out of the overflow.
    pub(super) fn take_from_overflow(&self) -> Option<Ready> {
        match self.overflow.len() {
            0 => None,
            _ => self.overflow.take(1).pop().map(Ready::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::{dismiss, stand_ins};

    /// Wakes another thread, which its processor takes so long after unless it is relieved. Returns how
    /// often it was relieved.
    fn turns(
        slot: &NextSlot,
        (waker, waits): (&Green, u64),
        woken: &mut Option<Ready>,
        count: u32,
    ) -> u32 {
        let mut relieved = 0;
        for turn in 1..=count {
            let filled = u64::from(turn) << 32;
            slot.set_running(waker);
            let _ = slot.fill(woken.take().unwrap(), || filled);
            *woken = slot.relieve();
            relieved += u32::from(woken.is_some());
            *woken = woken.take().or_else(|| slot.take(|| filled + waits));
            assert!(slot.is_empty() && !slot.is_slow());
        }
        relieved
    }

    /// A thread that lingers, one that does not, and one that they wake in turn.
    #[test]
    fn others_relieve_a_slot_of_threads_that_linger() {
        let mut threads = stand_ins(3);
        let mut woken = threads.pop();
        let [slow, quick] = &threads[..] else { return };
        let (slow, quick) = ((slow.green(), LONG), (quick.green(), LONG - 1));
        let slot = NextSlot::new();
        let mut relieved = [0; 2];
        for _ in 0..1000 {
            for (waker, relieved) in [slow, quick].into_iter().zip(&mut relieved) {
                *relieved += turns(&slot, waker, &mut woken, 1);
            }
        }
        // It is learnt at the first or second fill that is noted.
        assert!(
            relieved[0] >= 1000 - GLOBAL_INTERVAL && relieved[1] == 0,
            "{relieved:?}"
        );
        // A thread that does not linger any more is found out where its processor is the first to come,
        // twice in a row.
        slot.set_running(slow.0);
        for waits in [LONG - 1, LONG, LONG - 1, LONG - 1] {
            let displaced = slot.fill(woken.take().unwrap(), || 1);
            assert!(displaced.is_none() && slot.is_slow());
            woken = slot.take(|| 1 + waits);
        }
        assert_eq!(turns(&slot, (slow.0, 0), &mut woken, 1000), 0);
        dismiss(threads.into_iter().chain(woken));
    }

    /// Two that linger, and then do so no more, in turn.
    #[test]
    fn each_is_forgotten_by_itself() {
        let mut threads = stand_ins(3);
        let mut woken = threads.pop();
        let [first, second] = &threads[..] else {
            return;
        };
        let slot = NextSlot::new();
        for _ in 0..100 {
            for waker in [first, second] {
                turns(&slot, (waker.green(), LONG), &mut woken, 1);
            }
        }
        for (waker, is_slow) in [(first, true), (second, true)]
            .repeat(2)
            .into_iter()
            .chain([(first, false), (second, false)])
        {
            slot.set_running(waker.green());
            let displaced = slot.fill(woken.take().unwrap(), || 1);
            assert!(displaced.is_none() && slot.is_slow() == is_slow);
            woken = slot.take(|| 2);
        }
        dismiss(threads.into_iter().chain(woken));
    }

    /// A thread that a thief has taken says nothing, and the next one is not taken for it.
    #[test]
    fn thieves_teach_nothing() {
        let mut threads = stand_ins(3).into_iter();
        let (Some(waker), Some(mut stolen), Some(mut taken)) =
            (threads.next(), threads.next(), threads.next())
        else {
            return;
        };
        let slot = NextSlot::new();
        slot.set_running(waker.green());
        for turn in 0..10 * u64::from(GLOBAL_INTERVAL) {
            assert!(slot.fill(stolen, || turn).is_none() && !slot.is_slow());
            stolen = slot.steal().unwrap();
            let displaced = slot.fill(taken, || turn + 10 * LONG);
            assert!(displaced.is_none() && !slot.is_slow());
            taken = slot.take(|| turn + 10 * LONG).unwrap();
        }
        dismiss([waker, stolen, taken]);
    }

    fn indices(mut chain: Fifo) -> Vec<u64> {
        let threads = iter::from_fn(|| chain.pop());
        threads
            .map(|green| green.priority.load(Ordering::Relaxed))
            .collect()
    }

    #[test]
    fn threads_come_out_of_the_overflow_as_they_went_in() {
        let threads = stand_ins(9).into_iter().map(Ready::into_green);
        if threads.len() == 0 {
            return;
        }
        let overflow = Overflow::new();
        let mut chain = Fifo::new();
        threads.for_each(|green| chain.push(green));
        overflow.push(chain.take_first(4));
        overflow.push(chain);
        assert_eq!(overflow.len(), 9);
        assert_eq!(indices(overflow.take(1)), [0]);
        assert_eq!(indices(overflow.take(5)), [1, 2, 3, 4, 5]);
        let mut all = overflow.take_all();
        assert_eq!((all.len(), overflow.len()), (3, 0));
        let green = all.pop().unwrap();
        assert!(!overflow.give(|| false, green), "it is out of use");
        assert!(overflow.give(|| true, green));
        overflow.push(all);
        assert_eq!(indices(overflow.steal()), [6, 7, 8]);
        assert!(overflow.take(1).len() + overflow.steal().len() == 0);
    }
}
