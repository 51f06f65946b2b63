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
//!   most [`NEXT_IN_A_ROW`] times in a row while others wait in the queue, or
//!   [`GLOBAL_INTERVAL`] times while others wait in the round only, and its thread goes on in the time
//!   slice in which it became ready. Where threads wait for long in it, since the running one computes on,
//!   others take them.
//! - *Local queue.* Its size is fixed. When it is full, half of it moves to the
//!   processor's overflow, which has no bound; thieves and the processor itself take it from
//!   there. So processors that make many threads share no lock. Every [`GLOBAL_INTERVAL`]th pick is the
//!   overflow's, since threads that wake each other may keep the queue from running empty.
//! - *Round.* Threads that gave way by themselves take turns in a list of the processor's own. It
//!   needs no atomic instruction, which would be a third of the cost of a switch. While another
//!   processor has nothing to do, the round is moved to the local queue at every turn, where it can
//!   be stolen. Every [`ROUND_TURNS`]th turn is the local queue's, or if nothing waits there a fresh
//!   thread's of the global queue. (Only turns of the round count. Counted with those of the next slot, the
//!   queue's turn could fall on the slot each time.) A preempted thread joins the round if there is one. But if no
//!   thread has joined it by itself for a whole turn, its threads compute, and further preempted
//!   ones go to the global queue. Now and then processors exchange threads of their rounds: so none has more turns for
//!   long because fewer others yield where it is. Without stealing they exchange none.
//! - *Preempted* threads wait in the global queue, behind fresh ones (`shared_queue`). A processor that
//!   has just given a thread a whole time slice looks there first if a fresh one waits: so a thread
//!   from outside waits for one slice, not for the slices of all threads in a local queue. (If it
//!   is the turn of a preempted thread, it waits for that thread's slice too.)
//! - *Stealing.* A thief takes half of a victim's queue, or, when that is empty, half a queue of its overflow. It
//!   takes the next slot only on the last pass, for its owner is about to run that thread; a slow one at once.
//!
//! Each idea can be switched off ([`Options`]), to see what it is worth.
//!
//! Rejected: crossbeam's `Injector` as the global queue, which allocates; crossbeam's deque as the
//! local queue, which allocates beyond 64 threads, and whose thieves must let memory be reclaimed
//! now and then; the global queue as the place of the overflow, whose lock stops all from 16
//! processors on (`docs/scaling.md`); the global queue as the place where threads that yield change
//! processors, for the same reason; waking a sleeper whenever
//! the next slot is filled, which costs a ping-pong pair 13 µs a message.
//!
//! # The data of one processor
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
//! No thread is handed to a processor that is out of use: whoever hands one over asks under the overflow's lock (`contract`,
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
//! # The local queue
//!
//! A ring of fixed size, of which a thief takes half at once. The scheme is that of Go's and tokio's local queues; the
//! orderings are those of the model (`tests/models/local_queue.rs`).
//!
//! Threads have numbers in the order in which they come, and number `n` lies in slot
//! `n % SLOTS`. Three numbers say what the slots hold; the first two are one word, [`Front`]:
//!
//! | from | to | the slots hold |
//! |---|---|---|
//! | `kept` | `first` | threads that a thief has claimed and is copying |
//! | `first` | `end` | the threads that wait |
//! | `end` | `kept + SLOTS` | nothing |
//!
//! | caller | step |
//! |---|---|
//! | holder of the seat | *push*: writes slots from `end` on, then raises `end` |
//! | | *take*: raises `first`, and `kept` with it unless a thief copies; reads the slot |
//! | thief, or the holder when the queue is full | *claim*, if no thief copies: raises `first` by half of the threads |
//! | | copies the slots, then *release*: raises `kept` to `first` |
//!
//! ## Invariants
//!
//! 1. `kept` ≤ `first` ≤ `end` ≤ `kept + SLOTS`. The numbers wrap around, so they are compared by
//!    their distances.
//! 2. Only the holder of the seat writes slots and `end`, and it writes only slots that hold
//!    nothing.
//! 3. `first` passes each number once, by a compare-exchange. The caller that has made it owns the
//!    thread, and reads the slot only then.
//!    The holder may look at those that still wait ([`LocalQueue::first_two`]), to prefetch what they lead to:
//!    a thief may take them meanwhile.
//! 4. One thief copies at a time. Another one finds the queue *busy*, and does not wait. (Of these, the holder that moves
//!    half of the full queue is one.)
//!
//! A claim that comes after the word has changed and come back to the same value is as good as any
//! other: the word says everything about who owns which slots. Only the number of threads that the
//! thief wants would be out of date, and for that 2³² threads would have to pass between two of its
//! instructions.
//!
//! ## Memory orderings
//!
//! - `end`: the store is a Release, and a thief's load an Acquire: the slots are written before.
//! - The front: a thief's release is a Release, and the load before a push an Acquire: the slots
//!   were read before they are written again. Changes in between are read-modify-writes, and carry
//!   that on.
//! - All else is Relaxed. A thief may see an `end` that is older than the front; it takes the
//!   distance for nothing then ([`Front::waiting`]).
//!
//! # Memory orderings of the rest
//!
//! The record of the thread in the next slot is published by a Release, for the Acquire of the one who takes it. All else
//! is Relaxed: the overflow is under its lock, `wanted` publishes nothing, and the rest are hints to callers, unless these
//! have ordered themselves after the pushes (as the fences of the idle handshake do).

#[cfg(test)]
mod tests;

use core::cell::UnsafeCell;
use core::{fmt, iter, mem, ptr};

use super::contract::{Held, Seats};
use super::shared_queue::SharedQueue;
use super::tuning::{GLOBAL_INTERVAL, LONG, MANY, MIXING_INTERVAL, NEXT_IN_A_ROW, ROUND_TURNS};
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Cell, Ordering};
use crate::engine::sched::{Fifo, Green};
use crate::engine::sys::shared::{AtomicStatic, Guard, Lock};
use crate::engine::sys::{clock, perturb};

// ==== the policy ====

/// The interval, in turns of the round, at which a processor looks at the next slot of its neighbour:
/// a multiple of [`ROUND_TURNS`].
const HELP_INTERVAL: u32 = 4 * ROUND_TURNS;
/// The interval, in picks, at which a processor evens out the queue with that of another one.
const EVENING_OUT: u32 = GLOBAL_INTERVAL * GLOBAL_INTERVAL;

/// The ideas that are switched on.
#[derive(Clone, Copy, Debug)]
struct Options {
    stealing: bool,
    next_slot: bool,
    last_in_first_out: bool,
    global_interval: u32,
}

/// Gives each processor a queue; a processor whose queue is empty takes half of another one.
///
/// This is the default policy. A thread that the running one spawns or wakes runs next on the same
/// processor. Threads from outside and preempted threads wait in a global queue. The methods
/// switch single ideas on or off, to measure what each is worth.
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
    options: Options,
    global: SharedQueue,
    locals: Seats<Local>,
}

impl fmt::Debug for WorkStealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkStealing").field(&self.options).finish()
    }
}

impl WorkStealing {
    /// Creates a policy with all ideas switched on and with empty queues.
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
            options: Options {
                stealing: true,
                next_slot: true,
                last_in_first_out: false,
                global_interval: GLOBAL_INTERVAL,
            },
            global: SharedQueue::new(),
            locals: Seats::new(),
        }
    }

    /// Makes a policy with the same options, and without threads.
    pub(crate) fn anew(&self) -> WorkStealing {
        WorkStealing {
            options: self.options,
            ..WorkStealing::new()
        }
    }

    /// Sets whether processors without work take threads from others. Default: yes.
    ///
    /// Without stealing they get only threads from the global queue: those spawned from outside,
    /// preempted ones, and the overflow of other processors. All others stay on their processor, those
    /// that yield too.
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
        self.options.stealing = on;
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
        self.options.next_slot = on;
        self
    }

    /// Sets whether the local queues are last in, first out. Default: no.
    ///
    /// Such queues run threads whose data is more likely to be in the caches. But as long as other
    /// threads ready each other, those at the bottom wait until a thief takes them. The older half
    /// of the threads is where thieves find it, and runs first in, first out.
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
        self.options.last_in_first_out = on;
        self
    }

    /// Sets how often the global queue comes first: at every `picks`th pick of a processor.
    /// Default: 61. Beside threads that only yield, fresh threads of the global queue do not wait
    /// for so long.
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
        self.options.global_interval = picks;
        self
    }

    fn take_global(&self, local: &Held<Local>) -> Option<Ready> {
        let processors = self.locals.in_use();
        // Even an empty queue may have no space, while a thief copies: see `LocalQueue::space`.
        let most = local.queue.space().min(HALF);
        let share = |left: usize| (left / processors).min(most);
        let (first, mut batch) = self.global.take_with_others(share)?;
        perturb::point("work_stealing: taken");
        local.push_some_of(&mut batch);
        Some(first)
    }

    #[inline]
    fn push(&self, local: &Held<Local>, thread: Ready) {
        if self.options.last_in_first_out {
            local.stack(thread);
        } else if local.queue.space() != 0 {
            local.queue.push(thread.into_green());
        } else {
            self.overflow(local, thread);
        }
    }

    /// Moves half of the full queue, and `last` behind it, to where there is no bound. (Only `last`, while a thief copies.)
    #[cold]
    #[inline(never)]
    fn overflow(&self, local: &Held<Local>, last: Ready) {
        let mut chain = Fifo::new();
        local.queue.take_half(|green| chain.push(green));
        chain.push(last.into_green());
        perturb::point("work_stealing: overflow");
        match self.options.stealing {
            true => local.overflow.push(chain),
            false => self.global.append(chain),
        }
    }

    /// Exchanges threads with other processors: `thread`, which has yielded, goes to one that has
    /// asked, or into the round. The one that has asked may have gone to sleep since, and then only a
    /// thief comes for the thread.
    #[cold]
    #[inline(never)]
    fn mix(&self, local: &Held<Local>, thread: Ready) -> ForOthers {
        let green = thread.into_green();
        if let Some(index) = local.exchange_requests(&self.locals)
            && let Some(asking) = self.locals.find(index)
            && self.options.stealing
            && asking.len() <= local.len()
        {
            perturb::point("work_stealing: handing over");
            if asking.overflow.give(|| self.locals.uses(index), green) {
                return ForOthers::Work;
            }
        }
        local.with_round(|round| round.push(green));
        ForOthers::Nothing
    }

    /// Takes the thread out of the neighbour's next slot now and then, if it would wait there for long.
    #[cold]
    #[inline(never)]
    fn help(&self, local: &Held<Local>) -> Option<Ready> {
        let turns = local.round_turns.get();
        if !self.options.stealing || !turns.is_multiple_of(HELP_INTERVAL) {
            return None;
        }
        // The neighbour is always the same processor, so that its cache lines stay near.
        let neighbour = (local.index + 1) % self.locals.in_use();
        self.locals.find(neighbour)?.next.relieve()
    }

    /// Takes the first thread of the overflow; or now and then threads of another processor, if more wait there than here.
    #[cold]
    #[inline(never)]
    fn take_beyond_the_queue(&self, local: &Held<Local>, picks: u32) -> Option<Ready> {
        if self.options.stealing && picks.is_multiple_of(EVENING_OUT) {
            perturb::point("work_stealing: evening out");
            let partner = local.next_partner(&self.locals);
            if let Some(thread) = partner.and_then(|partner| local.even_out(partner)) {
                return Some(thread);
            }
        }
        match local.overflow.len() {
            0 => None,
            _ => local.overflow.take(1).pop().map(Ready::new),
        }
    }

    /// Chooses the thread that runs next.
    #[inline(always)]
    fn choose(&self, local: &Held<Local>, others: Others) -> Option<Next> {
        let picks = local.picks.get().wrapping_add(1);
        local.picks.set(picks);
        if picks.is_multiple_of(GLOBAL_INTERVAL)
            && let Some(thread) = self.take_beyond_the_queue(local, picks)
        {
            return Some(thread.into());
        }
        if local.was_preempted.replace(false)
            && let Some(thread) = self.global.take_if_fresh()
        {
            return Some(thread.into());
        }
        let interval = self.options.global_interval;
        if interval != 0 && local.is_global_turn(interval) {
            let is_round_empty = local.round_len() == 0;
            let has_only_next = !local.next.is_empty() && local.queue.is_empty() && is_round_empty;
            let global = match has_only_next {
                // Before a preempted thread, the thread in the slot would wait for a whole time slice. So preempted
                // threads get their turn only when the monitor ends the slice that the slot's threads share.
                true => self.global.take_if_fresh(),
                false => self.global.take(),
            };
            if let Some(thread) = global {
                return Some(thread.into());
            }
        }
        if !local.next.is_empty() {
            let used = local.next_in_a_row.get();
            perturb::point("work_stealing: next slot");
            // The slot may be empty by now, if a thief was faster.
            if let Some(thread) = local.next.take(clock::now) {
                if used < NEXT_IN_A_ROW || used < local.most_in_a_row() {
                    local.next_in_a_row.set(used.saturating_add(1));
                    return Some(Next {
                        thread,
                        inherits_slice: true,
                    });
                }
                self.push(local, thread);
            }
        }
        local.next_in_a_row.set(0);
        if local.round_len() != 0 {
            if others == Others::Idle {
                local.publish_round();
            } else if !local.is_queues_turn() {
                return local.pop_round().map(Next::from);
            } else if local.stealable() == 0 {
                let fresh = (interval != 0).then(|| self.global.take_if_fresh());
                let thread = fresh.flatten().or_else(|| self.help(local));
                return thread.or_else(|| local.pop_round()).map(Next::from);
            }
        }
        if let Some(thread) = local.pop() {
            return Some(thread.into());
        }
        let global = self.take_global(local);
        // The round may still hold threads: the queue may have had no space for them (`LocalQueue::space`).
        global.or_else(|| local.pop_round()).map(Next::from)
    }

    /// [`Policy::ready`] for a seat that comes for the first time. (Without these two functions the compiler makes a
    /// loop of the second attempt, and a yield among 1,000 threads takes 3 % more.)
    #[cold]
    #[inline(never)]
    fn ready_at_first(&self, thread: Ready, how: Readied, seat: &Seat) -> ForOthers {
        self.locals.of(seat);
        self.ready(thread, how, Some(seat))
    }

    /// [`Policy::next`] for a seat that comes for the first time.
    #[cold]
    #[inline(never)]
    fn next_at_first(&self, seat: &Seat, others: Others) -> Option<Next> {
        self.locals.of(seat);
        self.next(seat, others)
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
        match (local, how) {
            (Some(local), Readied::Yielded) if local.mixes_now() => self.mix(local, thread),
            (Some(local), Readied::Yielded | Readied::Arrived) => {
                local.preempted_in_a_row.set(0);
                local.with_round(|round| round.push(thread.into_green()));
                ForOthers::Nothing
            }
            // In the round the thread comes behind all threads that waited while it ran. From the global queue it could
            // come back before them.
            (Some(local), Readied::Preempted) if local.preempted_joins_round() => {
                local.with_round(|round| round.push(thread.into_green()));
                ForOthers::Nothing
            }
            (Some(local), Readied::Spawned | Readied::Woken) if self.options.next_slot => {
                let displaced = local.next.fill(thread, clock::now);
                let is_work = displaced.is_some() || local.next.is_slow();
                if let Some(displaced) = displaced {
                    self.push(local, displaced);
                }
                ForOthers::when(is_work && self.options.stealing)
            }
            (Some(local), Readied::Spawned | Readied::Woken) => {
                self.push(local, thread);
                ForOthers::when(self.options.stealing)
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
        let next = self.choose(local, others)?;
        local.next.set_running(next.thread.green());
        Some(next)
    }

    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        if !self.options.stealing {
            return None;
        }
        let (mine, is_last) = (self.locals.of(seat), victims.is_last_pass());
        let next_of = |victim: &Local| match is_last && !victim.next.is_empty() {
            true => {
                perturb::point("work_stealing: stealing the next");
                victim.next.steal()
            }
            false => victim.next.relieve(),
        };
        let mut victims = victims.filter_map(|index| self.locals.find(index));
        let steal = |victim| mine.steal_from(victim).or_else(|| next_of(victim));
        let thread = mine.pop().or_else(|| victims.find_map(steal))?;
        mine.next.set_running(thread.green());
        Some(thread)
    }

    fn leave(&self, seat: &Seat) {
        let local = self.locals.of(seat);
        local.withdraw_request(&self.locals);
        self.global.append(local.leave());
    }

    fn resize(&self, processors: usize) {
        // A processor may have asked for a thread, gone to sleep, and gone out of use before the thread came to its
        // overflow, where no thief looks any more.
        let empty = |unused: &Local, _: &Local| self.global.append(unused.overflow.take_all());
        self.locals.resize(processors, Local::new, empty);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.global.len(),
            Some(processor) => self.locals.find(processor).map_or(0, Local::len),
        }
    }

    fn out_of_reach(&self, processor: usize) -> usize {
        match self.options.stealing {
            true => self.locals.find(processor).map_or(0, Local::round_len),
            false => self.len(Some(processor)),
        }
    }

    fn work_for_others(&self) -> ForOthers {
        let a_thief_finds_one = |local: &Local| local.stealable() != 0 || !local.next.is_empty();
        let work = !self.global.is_empty()
            || self.options.stealing && self.locals.iter().any(a_thief_finds_one);
        ForOthers::when(work)
    }
}

// ==== the next slot ====

/// The number of threads that are remembered, at most.
const REMEMBERED: usize = 8;
/// [`NextSlot::filled_at`] of a fill that is not timed.
const NOT_TIMED: u64 = 0;
/// [`NextSlot::running`] before the first thread; no record's address, nor that of an empty place.
const NOBODY: usize = 2;
/// In a place: the thread did not linger the last time. Records have even addresses.
const DOUBTED: usize = 1;

#[repr(C)]
struct NextSlot {
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
    fn is_empty(&self) -> bool {
        self.thread.load(Ordering::Relaxed).is_none()
    }

    #[inline(always)]
    fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Takes the thread, unless another caller was faster.
    #[inline]
    fn steal(&self) -> Option<Ready> {
        // The timing ends before the exchange, for the slot may have been filled again right after it.
        self.end_timing();
        perturb::point("next_slot: stealing");
        self.exchange(None)
    }

    /// Takes the thread if the slot is slow.
    #[inline]
    fn relieve(&self) -> Option<Ready> {
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
    fn set_running(&self, thread: &Green) {
        self.running.set(ptr::from_ref(thread).addr());
    }

    /// Takes the thread, unless a thief was faster.
    #[inline(always)]
    fn take(&self, clock: impl FnOnce() -> u64) -> Option<Ready> {
        let thread = self.exchange(None)?;
        if self.filled_at.load(Ordering::Relaxed) != NOT_TIMED {
            self.learn(clock);
        }
        Some(thread)
    }

    /// Puts `thread` into the slot, and returns the thread that it displaces there.
    #[inline]
    fn fill(&self, thread: Ready, clock: impl FnOnce() -> u64) -> Option<Ready> {
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

// ==== the overflow ====

#[derive(Default)]
struct Overflow {
    threads: Lock<Fifo>,
    len: AtomicUsize,
    /// The processor that wants a thread from this one, plus one; 0: none does. It lies here since that processor then writes
    /// one cache line of this one, not two.
    wanted: AtomicUsize,
}

impl Overflow {
    /// Returns the number of threads; any thread may ask.
    #[inline(always)]
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn change<T>(&self, mut threads: Guard<'_, Fifo>, change: impl FnOnce(&mut Fifo) -> T) -> T {
        let result = change(&mut threads);
        self.len.store(threads.len(), Ordering::Relaxed);
        result
    }

    /// Adds threads behind the others. For the holder of the seat.
    fn push(&self, chain: Fifo) {
        self.change(self.threads.lock(), |threads| threads.append(chain));
    }

    /// Hands over a thread of another processor if this one `is_in_use`, which is asked under the lock. False: it is not,
    /// or another caller has the lock, and the thread is still the caller's.
    fn give(&self, is_in_use: impl FnOnce() -> bool, thread: &'static Green) -> bool {
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
        let take = |threads| self.change(threads, |threads| threads.take_first(HALF));
        self.threads.try_lock().map(take).unwrap_or_default()
    }

    /// Takes all threads. The caller is not preempted.
    fn take_all(&self) -> Fifo {
        self.change(self.threads.lock(), mem::take)
    }
}

// ==== a processor ====

/// The fields that others look at come first: the name of the entry, the round's length, the overflow and
/// the next slot on one cache line, the ends of the queue on another.
#[repr(C)]
#[derive(Default)]
struct Local {
    /// The round's length, for others to see; the round itself is below.
    round_len: AtomicUsize,
    overflow: Overflow,
    next: NextSlot,
    queue: LocalQueue,
    round: UnsafeCell<Fifo>,
    index: usize,
    picks: Cell<u32>,
    /// The picks since the global queue last came first.
    picks_since_global: Cell<u32>,
    /// The picks that were the round's or, in their place, the queue's.
    round_turns: Cell<u32>,
    next_in_a_row: Cell<u32>,
    yields_to_mixing: Cell<u32>,
    /// The last processor with which this one exchanged threads.
    partner: Cell<usize>,
    /// Whether the last thread was preempted, and is in the global queue.
    was_preempted: Cell<bool>,
    /// The number of preempted threads since one joined the round by itself.
    preempted_in_a_row: Cell<usize>,
}

defaults!(NextSlot LocalQueue);

// SAFETY: the cells are used only by the holder of the processor's `Seat`, of which there is one at
// a time, and seats change hands with a Release and an Acquire (`sched::processor`).
unsafe impl Sync for Local {}
// SAFETY: as above; the pointers are to `Green`, which is Sync.
unsafe impl Send for Local {}

impl Local {
    fn new(index: usize) -> Local {
        Local {
            index,
            yields_to_mixing: Cell::new(MIXING_INTERVAL),
            partner: Cell::new(index),
            ..Local::default()
        }
    }

    /// Returns the number of threads in the round.
    #[inline(always)]
    fn round_len(&self) -> usize {
        self.round_len.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that wait here.
    fn len(&self) -> usize {
        self.queue.len() + self.overflow.len() + self.round_len() + !self.next.is_empty() as usize
    }

    /// Returns the number of threads that wait in the queue and behind it.
    fn stealable(&self) -> usize {
        self.queue.len() + self.overflow.len()
    }
}

impl Held<Local> {
    /// Puts the threads of `batch` at the end of the queue, as far as there is space.
    fn push_some_of(&self, batch: &mut Fifo) {
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
    fn pop(&self) -> Option<Ready> {
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
            // The queue had too little space, because a thief still copies.
            self.overflow.push(chain);
        }
        first.map(Ready::new)
    }

    /// Takes half of the victim's queue, or the first threads of its overflow, and returns one thread more. The own queue
    /// is empty.
    fn steal_from(&self, victim: &Local) -> Option<Ready> {
        match victim.queue.steal_half(&self.queue, HALF) {
            None if victim.overflow.len() != 0 => self.first_of(victim.overflow.steal()),
            first => first.map(Ready::new),
        }
    }

    /// Takes from `partner` as many threads as both have the same number then, or as many as it can take
    /// at once; one if they have the same number already. Returns one of them.
    fn even_out(&self, partner: &Local) -> Option<Ready> {
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
    fn is_global_turn(&self, interval: u32) -> bool {
        let picks = self.picks_since_global.get() + 1;
        let is_turn = picks >= interval;
        self.picks_since_global.set(if is_turn { 0 } else { picks });
        is_turn
    }

    /// Counts a turn of the round, and says whether the queue has it: each [`ROUND_TURNS`]th.
    #[inline(always)]
    fn is_queues_turn(&self) -> bool {
        let turns = self.round_turns.get().wrapping_add(1);
        self.round_turns.set(turns);
        turns.is_multiple_of(ROUND_TURNS)
    }

    /// Returns how often the next slot may be used in a row.
    #[inline(always)]
    fn most_in_a_row(&self) -> u32 {
        match (self.queue.is_empty(), self.round_len()) {
            (false, _) => NEXT_IN_A_ROW,
            (true, 0) => u32::MAX,
            (true, _) => GLOBAL_INTERVAL,
        }
    }

    /// Counts a yield, and says whether it is time to exchange threads.
    #[inline(always)]
    fn mixes_now(&self) -> bool {
        let left = self.yields_to_mixing.get() - 1;
        self.yields_to_mixing.set(left);
        left == 0
    }

    /// Asks the next partner for a thread, and returns the index of the processor that asks for one
    /// here.
    fn exchange_requests(&self, locals: &Seats<Local>) -> Option<usize> {
        self.yields_to_mixing.set(MIXING_INTERVAL);
        if let Some(partner) = self.next_partner(locals) {
            let wanted = &partner.overflow.wanted;
            wanted.store(self.index + 1, Ordering::Relaxed);
        }
        let wanted = self.overflow.wanted.load(Ordering::Relaxed);
        if wanted != 0 {
            self.overflow.wanted.store(0, Ordering::Relaxed);
        }
        wanted.checked_sub(1)
    }

    /// Takes the last request back, for a processor that leaves.
    fn withdraw_request(&self, locals: &Seats<Local>) {
        let wanted = &locals.get(self.partner.get()).overflow.wanted;
        if wanted.load(Ordering::Relaxed) == self.index + 1 {
            wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the processor after the last partner, round about.
    fn next_partner<'a>(&self, locals: &'a Seats<Local>) -> Option<&'a Local> {
        let after = |index| (index + 1) % locals.in_use();
        let mut partner = after(self.partner.get());
        if partner == self.index {
            partner = after(partner);
        }
        self.partner.set(partner);
        (partner != self.index).then(|| locals.find(partner))?
    }

    /// Counts a preemption, and says whether the thread joins the round: whether there is a round
    /// in which not all threads compute, as far as is known.
    fn preempted_joins_round(&self) -> bool {
        let in_a_row = self.preempted_in_a_row.get();
        self.preempted_in_a_row.set(in_a_row.saturating_add(1));
        in_a_row < self.round_len()
    }

    /// Calls `f` with the round, which calls nothing of this type.
    #[inline(always)]
    fn with_round<R>(&self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        // SAFETY: the seat is held, and no caller's `f` comes back here.
        let round = unsafe { &mut *self.round.get() };
        let result = f(round);
        self.round_len.store(round.len(), Ordering::Relaxed);
        result
    }

    /// Takes the first thread of the round.
    #[inline(always)]
    fn pop_round(&self) -> Option<Ready> {
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
    fn publish_round(&self) {
        self.with_round(|round| self.push_some_of(round));
    }

    /// Puts `thread` in front of the round, as the newest of a stack. The older half of the stack
    /// goes to the queue when that is empty, so that thieves find some.
    fn stack(&self, thread: Ready) {
        self.with_round(|round| {
            let others = mem::take(round);
            round.push(thread.into_green());
            round.append(others);
            if self.queue.is_empty() {
                let newer = round.take_first(round.len().div_ceil(2));
                let mut older = mem::replace(round, newer);
                self.push_some_of(&mut older);
                round.append(older);
            }
        });
    }

    /// Takes all threads; the processor goes out of use until it asks for a thread again.
    fn leave(&self) -> Fifo {
        let mut all = Fifo::new();
        let next = self.next.steal().map(Ready::into_green).into_iter();
        let queued = iter::from_fn(|| self.queue.pop());
        next.chain(queued).for_each(|green| all.push(green));
        all.append(self.overflow.take_all());
        all.append(self.with_round(mem::take));
        all
    }
}

// ==== the local queue ====

/// The number of threads that fit.
pub(crate) const SLOTS: usize = if cfg!(greenthread_model) { 4 } else { 256 };
/// The greatest number of threads that move at once.
pub(crate) const HALF: usize = SLOTS / 2;

/// A run queue. The holder of the processor's seat, one at a time, pushes and takes
/// ([`Held`](Held)); others steal and ask for its length.
#[repr(C)]
pub(crate) struct LocalQueue {
    front: AtomicU64,
    end: AtomicU32,
    slots: [Cell<Option<&'static Green>>; SLOTS],
}

// SAFETY: slots are read by the one caller to whom the front gives their threads (invariant 3), and
// written by the holder of the seat, of whom there is one at a time, after they were read
// (invariant 2, and the orderings). A seat changes hands with a Release and an Acquire
// (`sched::processor`).
unsafe impl Sync for LocalQueue {}
// SAFETY: as above; the threads are `Green`s, which are Sync.
unsafe impl Send for LocalQueue {}

/// The numbers before which slots hold nothing (`kept`), and before which no thread waits
/// (`first`).
#[derive(Clone, Copy)]
pub(crate) struct Front {
    kept: u32,
    pub(crate) first: u32,
}

impl Front {
    fn of(word: u64) -> Front {
        Front {
            kept: (word >> 32) as u32,
            first: word as u32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.kept) << 32 | u64::from(self.first)
    }

    /// Returns whether a thief copies.
    fn is_busy(self) -> bool {
        self.kept != self.first
    }

    /// Returns how many threads wait, or 0 if `end` is older than the front.
    fn waiting(self, end: u32) -> u32 {
        match end.wrapping_sub(self.first) {
            waiting if waiting <= SLOTS as u32 => waiting,
            _ => 0,
        }
    }

    /// The holder of the seat takes a thread.
    fn taken(self) -> Front {
        let first = self.first.wrapping_add(1);
        let kept = if self.is_busy() { self.kept } else { first };
        Front { kept, first }
    }

    /// A thief claims `count` threads.
    fn claimed(self, count: u32) -> Front {
        Front {
            first: self.first.wrapping_add(count),
            ..self
        }
    }

    /// The thief has copied the threads.
    fn released(self, claim: Front) -> Front {
        // The holder of the seat may have taken more threads meanwhile. The thief does not copy these, so their slots are
        // free, too.
        debug_assert_eq!(self.kept, claim.kept);
        Front {
            kept: self.first,
            ..self
        }
    }
}

impl LocalQueue {
    pub(crate) fn new() -> LocalQueue {
        LocalQueue {
            front: AtomicU64::new(0),
            end: AtomicU32::new(0),
            slots: core::array::from_fn(|_| Cell::new(None)),
        }
    }

    pub(crate) fn slot(&self, number: u32) -> &Cell<Option<&'static Green>> {
        &self.slots[number as usize % SLOTS]
    }

    /// Changes the front by `change`, until that comes between nobody's changes.
    #[inline(always)]
    fn change(
        &self,
        success: Ordering,
        mut change: impl FnMut(Front) -> Option<Front>,
    ) -> Option<Front> {
        let change = |word| change(Front::of(word)).map(Front::word);
        let changed = self.front.fetch_update(success, Ordering::Relaxed, change);
        changed.ok().map(Front::of)
    }

    // ---- for the holder of the seat ----

    /// Returns the number of threads that may be pushed. While a thief copies, the slots of all that
    /// was taken after its claim stay with it: for a thief that the system does not run, an empty
    /// queue has no space.
    #[inline]
    pub(crate) fn space(&self) -> usize {
        // Acquire: pairs with a thief's release.
        let front = Front::of(self.front.load(Ordering::Acquire));
        let end = self.end.load(Ordering::Relaxed);
        SLOTS - end.wrapping_sub(front.kept) as usize
    }

    /// Puts `thread` at the end, where the caller has found [space](LocalQueue::space) for it.
    #[inline]
    pub(crate) fn push(&self, thread: &'static Green) {
        let end = self.end.load(Ordering::Relaxed);
        self.slot(end).set(Some(thread));
        // Release: pairs with the Acquire in `claim`.
        self.end.store(end.wrapping_add(1), Ordering::Release);
    }

    /// Takes the first thread.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&'static Green> {
        let end = self.end.load(Ordering::Relaxed);
        let before = self.change(Ordering::Relaxed, |front| {
            (front.first != end).then(|| front.taken())
        })?;
        self.slot(before.first).get()
    }

    /// Returns the first two threads, in their order. They may be a thief's at any time.
    #[inline(always)]
    pub(crate) fn first_two(&self) -> Option<(&'static Green, &'static Green)> {
        let first = Front::of(self.front.load(Ordering::Relaxed)).first;
        let slot = |number| self.slot(number).get();
        Some((slot(first)?, slot(first.wrapping_add(1))?))
    }

    /// Takes half of the threads, the first ones, and passes them to `put`. It takes none while a thief copies: the slots
    /// of all that is taken meanwhile would stay with the thief.
    pub(crate) fn take_half(&self, put: impl FnMut(&'static Green)) {
        if let Some((before, count)) = self.claim(HALF) {
            let numbers = (0..count).map(|i| before.first.wrapping_add(i));
            numbers.filter_map(|n| self.slot(n).get()).for_each(put);
            self.release(before);
        }
    }

    // ---- for all ----

    /// Moves half of the threads, but `most` at most, to the caller's own queue, except for one, which
    /// is returned. `None`: there are none, or another thief is there.
    pub(crate) fn steal_half(&self, own: &LocalQueue, most: usize) -> Option<&'static Green> {
        let (before, count) = self.claim(most.min(own.space() + 1))?;
        perturb::point("local_queue: claimed");
        let end = own.end.load(Ordering::Relaxed);
        for i in 1..count {
            let thread = self.slot(before.first.wrapping_add(i)).get();
            own.slot(end.wrapping_add(i - 1)).set(thread);
        }
        let first = self.slot(before.first).get();
        // Release: pairs with the Acquire in a thief's `claim`.
        own.end
            .store(end.wrapping_add(count - 1), Ordering::Release);
        perturb::point("local_queue: copied");
        self.release(before);
        first
    }

    /// Claims half of the threads, but at most so many. Returns the front before, and how many.
    pub(crate) fn claim(&self, most: usize) -> Option<(Front, u32)> {
        let mut count = 0;
        let before = self.change(Ordering::Relaxed, |front| {
            // Acquire: pairs with the Release in `push`.
            let waiting = front.waiting(self.end.load(Ordering::Acquire));
            perturb::point("local_queue: about to claim");
            count = waiting.div_ceil(2).min(most as u32);
            (count != 0 && !front.is_busy()).then(|| front.claimed(count))
        })?;
        Some((before, count))
    }

    /// Ends the claim that was made at this front.
    pub(crate) fn release(&self, before: Front) {
        // Release: pairs with the Acquire in `space`.
        self.change(Ordering::Release, |front| Some(front.released(before)));
    }

    /// Returns the number of threads that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let front = Front::of(self.front.load(Ordering::Relaxed));
        front.waiting(self.end.load(Ordering::Relaxed)) as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
