//! Work stealing (the default): a queue for each processor, thieves that take half of a queue, and
//! a global queue behind.
//!
//! The design is that of Go's scheduler; the seeds call it "distributed runqueues with stealing". A
//! processor looks at its next slot, then at its local queue, then at the global queue. Every 61st
//! time it looks at the global queue first, so that a busy local queue cannot starve it. (61 is
//! Go's number: a prime, so that it does not fall into step with a program's period.)
//!
//! - *Next slot.* The thread that the running one has readied last runs next: it finds its data in
//!   the cache. A thread that it displaces goes to the back of the local queue. The slot is used at
//!   most [`NEXT_IN_A_ROW`] times in a row while others wait, and its thread goes on in the time
//!   slice in which it became ready.
//! - *Local queue.* Its size is fixed (`local_queue`). When it is full, half of it moves to the
//!   global queue.
//! - *Round.* Threads that gave way by themselves take turns in a list of the processor's own. It
//!   needs no atomic instruction, which would be a third of the cost of a switch. While another
//!   processor has nothing to do, the round is moved to the local queue at every turn, where it can
//!   be stolen. Every [`ROUND_TURNS`]th turn is the local queue's. A preempted thread joins the
//!   round if there is one. But if no thread has joined it by itself for a whole turn, its threads
//!   compute, and further preempted ones go to the global queue. Now and then a thread of the round
//!   goes by way of the global queue: so threads change processors, and none has more turns for
//!   long because fewer others yield where it is.
//! - *Preempted* threads wait in the global queue, behind fresh ones (`aging`). A processor that
//!   has just given a thread a whole time slice looks there first if a fresh one waits: so a thread
//!   from outside waits for one slice, not for the slices of all threads in a local queue. (If it
//!   is the turn of a preempted thread, it waits for that thread's slice too.)
//! - *Stealing.* A thief takes half of a victim's queue. It takes the next slot only on the last
//!   pass, for its owner is about to run that thread.
//!
//! Each idea can be switched off, to see what it is worth.
//!
//! Rejected: crossbeam's `Injector` as the global queue, which allocates; waking a sleeper whenever
//! the next slot is filled, which costs a ping-pong pair 13 µs a message (the monitor looks after a
//! next slot that is not used).

#[cfg(test)]
mod tests;

use core::cell::{Cell, UnsafeCell};

use super::local_queue::{BATCH, LocalQueue};
use super::seats::Seats;
use super::shared_queue::SharedQueue;
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::engine::green::Green;
use crate::engine::green::fifo::Fifo;
use crate::engine::sys::perturb;

const GLOBAL_INTERVAL: u32 = 61;
/// One yield in so many, times the number of processors, changes queues: all processors together
/// come to the global queue as often as one alone would.
const MIXING_INTERVAL: u32 = 64;
const NEXT_IN_A_ROW: u32 = 3;
const ROUND_TURNS: u32 = 4;

/// Gives each processor a queue; a processor whose queue is empty takes half of another one.
///
/// This is the default policy. A thread that the running one spawns or wakes runs next on the same
/// processor; threads from outside and preempted threads wait in a global queue. The methods switch
/// the ideas off one by one, to measure what each is worth.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::WorkStealing, runtime::Runtime};
///
/// let runtime = Runtime::builder()
///     .policy(WorkStealing::new().next_slot(false))
///     .build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct WorkStealing {
    ideas: Ideas,
    global: SharedQueue,
    locals: Seats<Local>,
}

/// The ideas that are switched on.
#[derive(Clone, Copy, Debug)]
struct Ideas {
    stealing: bool,
    next_slot: bool,
    last_in_first_out: bool,
    global_interval: u32,
}

struct Local {
    queue: LocalQueue,
    next: AtomicPtr<Green>,
    /// The round, and beside it its length for others to see.
    round: UnsafeCell<Fifo>,
    round_len: AtomicUsize,
    picks: Cell<u32>,
    next_in_a_row: Cell<u32>,
    yields_to_mixing: Cell<u32>,
    /// Whether the last thread was preempted, and is in the global queue.
    was_preempted: Cell<bool>,
    /// The number of preempted threads since one joined the round by itself.
    preempted_in_a_row: Cell<usize>,
}

// SAFETY: the cells are used only by the holder of the processor's `Seat`, of which there is one at
// a time, and seats change hands with a Release and an Acquire (`sched::ownership`).
unsafe impl Sync for Local {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for Local {}

impl Default for WorkStealing {
    fn default() -> WorkStealing {
        WorkStealing::new()
    }
}

impl core::fmt::Debug for WorkStealing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("WorkStealing").field(&self.ideas).finish()
    }
}

impl WorkStealing {
    /// Makes a policy with all ideas on and with empty queues.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{ForOthers, Policy, WorkStealing};
    ///
    /// let policy = WorkStealing::new();
    /// policy.resize(2);
    /// assert_eq!(policy.work_for_others(), ForOthers::Nothing);
    /// ```
    pub const fn new() -> WorkStealing {
        WorkStealing {
            ideas: Ideas {
                stealing: true,
                next_slot: true,
                last_in_first_out: false,
                global_interval: GLOBAL_INTERVAL,
            },
            global: SharedQueue::new(),
            locals: Seats::new(),
        }
    }

    /// Sets whether processors without work take threads from others. Default: yes.
    ///
    /// Without stealing they get only threads from the global queue: those spawned from outside,
    /// preempted ones, and the overflow of other processors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().stealing(false)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn stealing(mut self, on: bool) -> WorkStealing {
        self.ideas.stealing = on;
        self
    }

    /// Sets whether a thread that the running one has just spawned or woken runs next. Default:
    /// yes.
    ///
    /// Without the slot the thread goes to the end of the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().next_slot(false)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn next_slot(mut self, on: bool) -> WorkStealing {
        self.ideas.next_slot = on;
        self
    }

    /// Sets whether the local queues are last in, first out. Default: no.
    ///
    /// Such queues run threads whose data is more likely to be in the caches. But as long as other
    /// threads ready each other, those at the bottom wait until a thief takes them.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().last_in_first_out(true)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn last_in_first_out(mut self, on: bool) -> WorkStealing {
        self.ideas.last_in_first_out = on;
        self
    }

    /// Sets how often the global queue comes first: at every `picks`th pick of a processor.
    /// Default: 61.
    ///
    /// With 0 it never comes first, and the threads in it wait until a processor has nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().global_interval(16)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn global_interval(mut self, picks: u32) -> WorkStealing {
        self.ideas.global_interval = picks;
        self
    }

    /// [`Policy::ready`] for a seat that has not come before.
    #[cold]
    #[inline(never)]
    fn ready_at_first(&self, thread: Ready, how: Readied, seat: &Seat) -> ForOthers {
        self.locals.of(seat);
        self.ready(thread, how, Some(seat))
    }

    /// [`Policy::next`] for a seat that has not come before.
    #[cold]
    #[inline(never)]
    fn next_at_first(&self, seat: &Seat, others: Others) -> Option<Next> {
        self.locals.of(seat);
        self.next(seat, others)
    }

    fn take_global(&self, local: &Local) -> Option<Ready> {
        let processors = self.locals.len();
        let room = local.queue.room();
        let (first, mut batch) = self
            .global
            .take_with_others(|left| (left / processors).min(BATCH).min(room))?;
        perturb::point("work_stealing: taken");
        while let Some(green) = batch.pop() {
            green.prefetch_record();
            // SAFETY: called by `next`, which holds the seat.
            unsafe { local.queue.push(Ready::new(green)) };
        }
        Some(Ready::new(first))
    }

    /// # Safety
    /// The caller holds the seat that `local` belongs to.
    #[inline]
    unsafe fn push(&self, local: &Local, thread: Ready) {
        // SAFETY: the caller's promise.
        unsafe {
            match local.queue.room() {
                0 => self.overflow(local, thread),
                _ => local.queue.push(thread),
            }
        }
    }

    /// Moves half of the full queue to the global queue, and `last` behind it.
    ///
    /// # Safety
    /// The caller holds the seat that `local` belongs to.
    #[cold]
    #[inline(never)]
    unsafe fn overflow(&self, local: &Local, last: Ready) {
        let mut batch = Fifo::new();
        for _ in 0..BATCH {
            // SAFETY: the caller's promise.
            match unsafe { local.queue.pop() } {
                Some(thread) => batch.push(thread.into_green()),
                None => break,
            }
        }
        batch.push(last.into_green());
        perturb::point("work_stealing: overflow");
        self.global.append(batch);
    }

    /// # Safety
    /// The caller holds the seat that `local` belongs to.
    #[inline]
    unsafe fn ready_next(&self, local: &Local, thread: Ready) -> ForOthers {
        let pointer = core::ptr::from_ref(thread.into_green()).cast_mut();
        if local.next.load(Ordering::Relaxed).is_null() {
            // Only the holder of the seat fills the slot. Release: publishes the record to a
            // thief, whose swap is an Acquire.
            local.next.store(pointer, Ordering::Release);
            return ForOthers::Nothing;
        }
        perturb::point("work_stealing: displacing");
        // Release: as above; Acquire: the displaced one may be an earlier holder's.
        let displaced = local.next.swap(pointer, Ordering::AcqRel);
        // SAFETY: the slot holds null or the record of a green thread.
        match unsafe { displaced.as_ref() } {
            None => ForOthers::Nothing,
            Some(displaced) => {
                // SAFETY: the caller's promise.
                unsafe { self.push(local, Ready::new(displaced)) };
                ForOthers::when(self.ideas.stealing)
            }
        }
    }
}

impl Local {
    fn new(last_in_first_out: bool) -> Local {
        Local {
            queue: LocalQueue::new(last_in_first_out),
            next: AtomicPtr::new(core::ptr::null_mut()),
            round: UnsafeCell::new(Fifo::new()),
            round_len: AtomicUsize::new(0),
            picks: Cell::new(0),
            next_in_a_row: Cell::new(0),
            yields_to_mixing: Cell::new(MIXING_INTERVAL),
            was_preempted: Cell::new(false),
            preempted_in_a_row: Cell::new(0),
        }
    }

    /// Counts a yield, and says whether the thread changes queues. For the holder of the seat.
    #[inline(always)]
    fn mixes_now(&self, processors: usize) -> bool {
        let left = self.yields_to_mixing.get() - 1;
        let mixes = left == 0;
        self.yields_to_mixing.set(match mixes {
            true => MIXING_INTERVAL * processors as u32,
            false => left,
        });
        mixes
    }

    /// Counts a preemption, and says whether the thread joins the round: whether there is a round
    /// in which not all threads compute, as far as is known. For the holder of the seat.
    fn preempted_joins_round(&self) -> bool {
        let in_a_row = self.preempted_in_a_row.get();
        self.preempted_in_a_row.set(in_a_row.saturating_add(1));
        in_a_row < self.round_len.load(Ordering::Relaxed)
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

    /// Moves the round, as far as there is room, to the queue, where others can steal from it.
    ///
    /// # Safety
    /// The caller holds the seat, and not the round.
    #[cold]
    #[inline(never)]
    unsafe fn publish_round(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.with_round(|round| {
                while self.queue.room() != 0
                    && let Some(green) = round.pop()
                {
                    self.queue.push(Ready::new(green));
                }
            });
        }
    }
}

impl Policy for WorkStealing {
    #[inline]
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let local = match seat {
            None => None,
            Some(seat) => match self.locals.known(seat) {
                None => return self.ready_at_first(thread, how, seat),
                known => known,
            },
        };
        // SAFETY, of the calls below: the caller, who passes the seat, holds it.
        match (local, how) {
            (Some(local), Readied::Yielded) if local.mixes_now(self.locals.len()) => {
                self.global.push(thread.into_green(), how);
                ForOthers::Nothing
            }
            (Some(local), Readied::Yielded | Readied::Arrived) => {
                local.preempted_in_a_row.set(0);
                // SAFETY: see above; the round is the seat's holder's.
                unsafe { local.with_round(|round| round.push(thread.into_green())) };
                ForOthers::Nothing
            }
            // The thread goes behind all that waited while it ran: from the global queue it could
            // come back before them.
            (Some(local), Readied::Preempted) if local.preempted_joins_round() => {
                // SAFETY: see above; the round is the seat's holder's.
                unsafe { local.with_round(|round| round.push(thread.into_green())) };
                ForOthers::Nothing
            }
            (Some(local), Readied::Spawned | Readied::Woken) if self.ideas.next_slot => {
                // SAFETY: see above.
                unsafe { self.ready_next(local, thread) }
            }
            (Some(local), Readied::Spawned | Readied::Woken) => {
                // SAFETY: see above.
                unsafe { self.push(local, thread) };
                ForOthers::when(self.ideas.stealing)
            }
            (local, _) => {
                if let Some(local) = local {
                    local.was_preempted.set(true);
                }
                self.global.push(thread.into_green(), how);
                ForOthers::Work
            }
        }
    }

    #[inline]
    fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
        let Some(local) = self.locals.known(seat) else {
            return self.next_at_first(seat, others);
        };
        let picks = local.picks.get().wrapping_add(1);
        local.picks.set(picks);
        if local.was_preempted.replace(false)
            && let Some(green) = self.global.take_if_fresh()
        {
            return Some(Ready::new(green).into());
        }
        let interval = self.ideas.global_interval;
        if interval != 0
            && picks.is_multiple_of(interval)
            && let Some(green) = self.global.take()
        {
            return Some(Ready::new(green).into());
        }
        if !local.next.load(Ordering::Relaxed).is_null() {
            let used = local.next_in_a_row.get();
            perturb::point("work_stealing: next slot");
            // Acquire, Release: as in `ready_next`; a thief may have been faster.
            let pointer = local.next.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: the slot holds null or the record of a green thread.
            if let Some(green) = unsafe { pointer.as_ref() } {
                let thread = Ready::new(green);
                if used < NEXT_IN_A_ROW || local.queue.is_empty() {
                    local.next_in_a_row.set(used.saturating_add(1));
                    return Some(Next {
                        thread,
                        inherits_slice: true,
                    });
                }
                // SAFETY: the caller holds the seat.
                unsafe { self.push(local, thread) };
            }
        }
        local.next_in_a_row.set(0);
        if local.round_len.load(Ordering::Relaxed) != 0 {
            // SAFETY: the caller holds the seat, and with it the round.
            unsafe {
                if others == Others::Idle {
                    local.publish_round();
                } else if !picks.is_multiple_of(ROUND_TURNS) || local.queue.is_empty() {
                    let first = local.with_round(Fifo::pop);
                    return first.map(|green| Ready::new(green).into());
                }
            }
        }
        // SAFETY: the caller holds the seat.
        if let Some(thread) = unsafe { local.queue.pop() } {
            return Some(thread.into());
        }
        self.take_global(local).map(Next::from)
    }

    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        if !self.ideas.stealing {
            return None;
        }
        let mine = &self.locals.of(seat).queue;
        let last = victims.is_last_pass();
        // SAFETY: the caller holds the seat.
        if let Some(thread) = unsafe { mine.pop() } {
            return Some(thread);
        }
        for victim in victims.filter_map(|index| self.locals.find(index)) {
            // SAFETY: the caller holds the seat, and its queue is empty.
            if let Some(thread) = unsafe { victim.queue.steal_half(mine) } {
                return Some(thread);
            }
            if last && !victim.next.load(Ordering::Relaxed).is_null() {
                perturb::point("work_stealing: stealing the next");
                // Acquire: pairs with the Release in `ready_next`.
                let pointer = victim.next.swap(core::ptr::null_mut(), Ordering::Acquire);
                // SAFETY: the slot holds null or the record of a green thread.
                if let Some(green) = unsafe { pointer.as_ref() } {
                    return Some(Ready::new(green));
                }
            }
        }
        None
    }

    fn leave(&self, seat: &Seat) {
        let local = self.locals.of(seat);
        let mut batch = Fifo::new();
        // Acquire: pairs with the Release in `ready_next`.
        let next = local.next.swap(core::ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the slot holds null or the record of a green thread.
        if let Some(green) = unsafe { next.as_ref() } {
            batch.push(green);
        }
        // SAFETY: the caller holds the seat, and with it the round.
        unsafe {
            while let Some(thread) = local.queue.pop() {
                batch.push(thread.into_green());
            }
            batch.append(local.with_round(core::mem::take));
        }
        if batch.len() != 0 {
            self.global.append(batch);
        }
    }

    fn resize(&self, processors: usize) {
        super::check(processors);
        let local = |_| Local::new(self.ideas.last_in_first_out);
        self.locals.grow_to(processors, local);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        let Some(processor) = processor else {
            return self.global.len();
        };
        let Some(local) = self.locals.find(processor) else {
            return 0;
        };
        local.queue.len()
            + local.round_len.load(Ordering::Relaxed)
            + !local.next.load(Ordering::Relaxed).is_null() as usize
    }

    fn out_of_reach(&self, processor: usize) -> usize {
        match self.ideas.stealing {
            true => {
                let local = self.locals.find(processor);
                local.map_or(0, |local| local.round_len.load(Ordering::Relaxed))
            }
            false => self.len(Some(processor)),
        }
    }

    fn work_for_others(&self) -> ForOthers {
        let has = |local: &Local| {
            !local.queue.is_empty() || !local.next.load(Ordering::Relaxed).is_null()
        };
        let work = !self.global.is_empty() || self.ideas.stealing && self.locals.iter().any(has);
        ForOthers::when(work)
    }
}
