//! Work stealing (the default): a queue per processor, thieves that take half, a global queue
//! behind.
//!
//! The design is the Go scheduler's; the seeds call it "distributed runqueues with stealing". A
//! processor looks at its next slot, then at its local queue, then at the global queue; every 61st
//! time at the global queue first, so that a busy local queue cannot starve it (61: a prime, so
//! that it does not fall into step with a program's period; Go's number).
//!
//! - *Next slot.* The thread readied last by the running one runs next: it finds its data in the
//!   cache. A thread it displaces goes to the back of the local queue. It is used at most
//!   [`NEXT_IN_A_ROW`] times while others wait, and it goes on in the time slice it was readied in.
//! - *Local queue.* crossbeam's deque in FIFO flavour, kept within its first 64 slots, where it
//!   never allocates. When it is full, half of it moves to the global queue.
//! - *Round.* Threads that gave way by themselves take turns in a list of the processor's own: no
//!   atomic instruction, which would be a third of the cost of a switch. While anybody has nothing
//!   to do, the round is moved to the local queue at every turn, where it can be stolen. Every
//!   [`ROUND_TURNS`]th turn is the local queue's.
//! - *Stealing.* Half of a random victim's queue; its next slot only on the last pass, for its
//!   owner is about to run it.
//!
//! Rejected: crossbeam's `Injector` as the global queue, which allocates; waking a sleeper whenever
//! the next slot is filled, which costs a ping-pong pair 13 µs a message (the monitor looks after a
//! next slot that is not used).

use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;

use crossbeam_deque::{Steal, Stealer, Worker};

use super::fifo::{Fifo, GlobalQueue};
use super::{Next, Policy, Readied, Seat};
use crate::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::green::Green;
use crate::sys::table::Table;

/// What a deque holds before it allocates; one slot is spared, since a thief moves at most half of
/// it at once.
const CAPACITY: usize = 63;
/// What a thief or the global queue hands over at once at most.
const BATCH: usize = 32;
const GLOBAL_INTERVAL: u32 = 61;
const NEXT_IN_A_ROW: u32 = 3;
const ROUND_TURNS: u32 = 4;

pub(crate) struct WorkStealing {
    global: GlobalQueue,
    locals: Table<Local>,
}

#[repr(align(128))]
struct Local {
    queue: Worker<NonNull<Green>>,
    stealer: Stealer<NonNull<Green>>,
    next: AtomicPtr<Green>,
    /// The round, and its length for others to see.
    round: UnsafeCell<Fifo>,
    round_len: AtomicUsize,
    picks: Cell<u32>,
    next_in_a_row: Cell<u32>,
}

// SAFETY: `queue` and the cells are used only by the holder of the processor's `Seat`, of which
// there is one at a time, and seats change hands with a Release and an Acquire
// (`sched::ownership`).
unsafe impl Sync for Local {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for Local {}

fn green(pointer: NonNull<Green>) -> &'static Green {
    // SAFETY: queues hold records of green threads, which are never freed.
    unsafe { pointer.as_ref() }
}

impl WorkStealing {
    pub(crate) fn new() -> WorkStealing {
        WorkStealing {
            global: GlobalQueue::new(),
            locals: Table::new(),
        }
    }

    fn take_global(&self, local: &Local, processors: usize) -> Option<&'static Green> {
        let (first, mut batch) = self.global.take(|left| {
            (left / processors)
                .min(BATCH)
                .min(CAPACITY - local.queue.len())
        })?;
        while let Some(green) = batch.pop() {
            local.queue.push(NonNull::from(green));
        }
        Some(first)
    }

    #[inline]
    fn push(&self, local: &Local, green: &'static Green) {
        if local.queue.len() >= CAPACITY {
            self.overflow(local, green);
        } else {
            local.queue.push(NonNull::from(green));
        }
    }

    /// The queue is full: its older half goes to the global queue, `green` behind it.
    #[cold]
    #[inline(never)]
    fn overflow(&self, local: &Local, last: &'static Green) {
        let mut batch = Fifo::new();
        for _ in 0..BATCH {
            match local.queue.pop() {
                Some(pointer) => batch.push(green(pointer)),
                None => break,
            }
        }
        batch.push(last);
        self.global.append(batch);
    }
}

impl Local {
    fn new() -> Local {
        let queue = Worker::new_fifo();
        let stealer = queue.stealer();
        Local {
            queue,
            stealer,
            next: AtomicPtr::new(core::ptr::null_mut()),
            round: UnsafeCell::new(Fifo::new()),
            round_len: AtomicUsize::new(0),
            picks: Cell::new(0),
            next_in_a_row: Cell::new(0),
        }
    }

    /// # Safety
    /// The caller holds the seat, and not the round.
    #[inline(always)]
    unsafe fn with_round<R>(&self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        // SAFETY: the caller's promise.
        let round = unsafe { &mut *self.round.get() };
        let result = f(round);
        self.round_len.store(round.len(), Ordering::Relaxed);
        result
    }

    /// Moves the round, as far as there is room, to where others can steal from it.
    #[cold]
    #[inline(never)]
    fn publish_round(&self) {
        // SAFETY: called by `next`, which holds the seat.
        unsafe {
            self.with_round(|round| {
                while self.queue.len() < CAPACITY
                    && let Some(green) = round.pop()
                {
                    self.queue.push(NonNull::from(green));
                }
            });
        }
    }
}

impl Policy for WorkStealing {
    #[inline]
    fn ready(&self, seat: Seat, green: &'static Green, how: Readied) -> bool {
        let local = self.locals.get(seat.index());
        match how {
            Readied::Yielded => {
                // SAFETY: the round is the seat's holder's.
                unsafe { local.with_round(|round| round.push(green)) };
                false
            }
            Readied::ByRunning => {
                let pointer = core::ptr::from_ref(green).cast_mut();
                if local.next.load(Ordering::Relaxed).is_null() {
                    // Nobody but the seat's holder fills the slot. Release: publishes the record to a
                    // thief, whose swap is an Acquire.
                    local.next.store(pointer, Ordering::Release);
                    return false;
                }
                // Release: as above; Acquire: the displaced one may be an earlier holder's.
                let displaced = local.next.swap(pointer, Ordering::AcqRel);
                // SAFETY: the slot holds null or the record of a green thread.
                match unsafe { displaced.as_ref() } {
                    None => false,
                    Some(displaced) => {
                        self.push(local, displaced);
                        true
                    }
                }
            }
        }
    }

    fn ready_globally(&self, green: &'static Green) {
        self.global.push(green);
    }

    #[inline]
    fn next(&self, seat: Seat, share: bool) -> Option<Next> {
        let local = self.locals.get(seat.index());
        let fresh = |green| Next {
            green,
            inherits_slice: false,
        };
        let picks = local.picks.get().wrapping_add(1);
        local.picks.set(picks);
        if picks.is_multiple_of(GLOBAL_INTERVAL)
            && let Some((green, _)) = self.global.take(|_| 0)
        {
            return Some(fresh(green));
        }
        if !local.next.load(Ordering::Relaxed).is_null() {
            let used = local.next_in_a_row.get();
            // Acquire, Release: as in `ready`; a thief may have been faster.
            let pointer = local.next.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: the slot holds null or the record of a green thread.
            if let Some(green) = unsafe { pointer.as_ref() } {
                if used < NEXT_IN_A_ROW || local.queue.is_empty() {
                    local.next_in_a_row.set(used.saturating_add(1));
                    return Some(Next {
                        green,
                        inherits_slice: true,
                    });
                }
                self.push(local, green);
            }
        }
        local.next_in_a_row.set(0);
        if local.round_len.load(Ordering::Relaxed) != 0 {
            if share {
                local.publish_round();
            } else if !picks.is_multiple_of(ROUND_TURNS) || local.queue.is_empty() {
                // SAFETY: the round is the seat's holder's.
                return unsafe { local.with_round(Fifo::pop) }.map(fresh);
            }
        }
        if let Some(pointer) = local.queue.pop() {
            return Some(fresh(green(pointer)));
        }
        self.take_global(local, self.locals.len()).map(fresh)
    }

    fn steal(&self, seat: Seat, random: u32, last: bool) -> Option<&'static Green> {
        let (me, count) = (seat.index(), self.locals.len());
        let mine = &self.locals.get(me).queue;
        let start = random as usize % count;
        let victims = (start..start + count)
            .map(|i| i % count)
            .filter(|&i| i != me);
        for victim in victims.map(|i| self.locals.get(i)) {
            loop {
                match victim.stealer.steal_batch_with_limit_and_pop(mine, BATCH) {
                    Steal::Success(pointer) => return Some(green(pointer)),
                    Steal::Empty => break,
                    Steal::Retry => core::hint::spin_loop(),
                }
            }
            if last && !victim.next.load(Ordering::Relaxed).is_null() {
                // Acquire: pairs with the Release in `ready`.
                let pointer = victim.next.swap(core::ptr::null_mut(), Ordering::Acquire);
                // SAFETY: the slot holds null or the record of a green thread.
                if let Some(green) = unsafe { pointer.as_ref() } {
                    return Some(green);
                }
            }
        }
        None
    }

    fn leave(&self, seat: Seat) {
        let local = self.locals.get(seat.index());
        let mut batch = Fifo::new();
        // Acquire: pairs with the Release in `ready`.
        let next = local.next.swap(core::ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the slot holds null or the record of a green thread.
        if let Some(green) = unsafe { next.as_ref() } {
            batch.push(green);
        }
        while let Some(pointer) = local.queue.pop() {
            batch.push(green(pointer));
        }
        // SAFETY: the round is the seat's holder's.
        batch.append(unsafe { local.with_round(|r| core::mem::replace(r, Fifo::new())) });
        if batch.len() != 0 {
            self.global.append(batch);
        }
    }

    fn resize(&self, processors: usize) {
        self.locals.grow_to(processors, |_| Local::new());
    }

    fn has_work(&self) -> bool {
        !self.global.is_empty() || (0..self.locals.len()).any(|i| self.len(i) != 0)
    }

    fn has_work_for_others(&self) -> bool {
        let has = |local: &Local| {
            !local.stealer.is_empty() || !local.next.load(Ordering::Relaxed).is_null()
        };
        !self.global.is_empty() || self.locals.iter().any(has)
    }

    fn len(&self, processor: usize) -> usize {
        let local = self.locals.get(processor);
        local.stealer.len()
            + local.round_len.load(Ordering::Relaxed)
            + !local.next.load(Ordering::Relaxed).is_null() as usize
    }

    fn global_len(&self) -> usize {
        self.global.len()
    }
}
