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
//!   others take them (`local`).
//! - *Local queue.* Its size is fixed (`local_queue`). When it is full, half of it moves to the
//!   processor's overflow (`local`), which has no bound; thieves and the processor itself take it from
//!   there. So processors that make many threads share no lock. Every [`GLOBAL_INTERVAL`]th pick is the
//!   overflow's, since threads that wake each other may keep the queue from running empty.
//! - *Round.* Threads that gave way by themselves take turns in a list of the processor's own. It
//!   needs no atomic instruction, which would be a third of the cost of a switch. While another
//!   processor has nothing to do, the round is moved to the local queue at every turn, where it can
//!   be stolen. Every [`ROUND_TURNS`]th turn is the local queue's, or if nothing waits there a fresh
//!   thread's of the global queue. (Only turns of the round count. Counted with those of the next slot, the
//!   queue's turn could fall on the slot each time.) A preempted thread joins the round if there is one. But if no
//!   thread has joined it by itself for a whole turn, its threads compute, and further preempted
//!   ones go to the global queue. Now and then processors exchange threads of their rounds
//!   (`local`): so none has more turns for long because fewer others yield where it is. Without
//!   stealing they exchange none.
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

mod local;
#[cfg(test)]
mod tests;

use core::fmt;

use self::local::Local;
use super::local_queue::HALF;
use super::seat::{Held, Seats};
use super::shared_queue::SharedQueue;
use super::tuning::{GLOBAL_INTERVAL, NEXT_IN_A_ROW, ROUND_TURNS};
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::sched::Fifo;
use crate::engine::sys::{clock, perturb};

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

    fn take_global(&self, local: &Held<'_, Local>) -> Option<Ready> {
        let processors = self.locals.in_use();
        // There may be none, though the queue is empty: see `LocalQueue::space`.
        let most = local.queue.space().min(HALF);
        let (first, mut batch) = self
            .global
            .take_with_others(|left| (left / processors).min(most))?;
        perturb::point("work_stealing: taken");
        local.push_some_of(&mut batch);
        Some(Ready::new(first))
    }

    #[inline]
    fn push(&self, local: &Held<'_, Local>, thread: Ready) {
        match self.options.last_in_first_out {
            true => local.stack(thread),
            false => local
                .push(thread)
                .unwrap_or_else(|thread| self.overflow(local, thread)),
        }
    }

    /// Moves half of the full queue, and `last` behind it, to where there is no bound.
    #[cold]
    #[inline(never)]
    fn overflow(&self, local: &Held<'_, Local>, last: Ready) {
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
    fn mix(&self, local: &Held<'_, Local>, thread: Ready) -> ForOthers {
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
    fn help(&self, local: &Held<'_, Local>) -> Option<Ready> {
        let turns = local.round_turns.get();
        if !self.options.stealing || !turns.is_multiple_of(HELP_INTERVAL) {
            return None;
        }
        local.neighbour(&self.locals)?.next.relieve()
    }

    /// Takes the first thread of the overflow; or now and then threads of another processor, if more wait there than here.
    #[cold]
    #[inline(never)]
    fn take_beyond_the_queue(&self, local: &Held<'_, Local>, picks: u32) -> Option<Ready> {
        if self.options.stealing && picks.is_multiple_of(EVENING_OUT) {
            perturb::point("work_stealing: evening out");
            let partner = local.next_partner(&self.locals);
            if let Some(thread) = partner.and_then(|partner| local.even_out(partner)) {
                return Some(thread);
            }
        }
        local.take_from_overflow()
    }

    /// Chooses the thread that runs next.
    #[inline(always)]
    fn choose(&self, local: &Held<'_, Local>, others: Others) -> Option<Next> {
        let picks = local.picks.get().wrapping_add(1);
        local.picks.set(picks);
        if picks.is_multiple_of(GLOBAL_INTERVAL)
            && let Some(thread) = self.take_beyond_the_queue(local, picks)
        {
            return Some(thread.into());
        }
        if local.was_preempted.replace(false)
            && let Some(green) = self.global.take_if_fresh()
        {
            return Some(Ready::new(green).into());
        }
        let interval = self.options.global_interval;
        if interval != 0 && local.is_global_turn(interval) {
            let global = match local.has_only_next() {
                // A preempted thread would keep it waiting for a whole time slice. The monitor ends
                // its own.
                true => self.global.take_if_fresh(),
                false => self.global.take(),
            };
            if let Some(green) = global {
                return Some(Ready::new(green).into());
            }
        }
        if !local.next.is_empty() {
            let used = local.next_in_a_row.get();
            perturb::point("work_stealing: next slot");
            // A thief may have been faster.
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
                let fresh = match interval {
                    0 => None,
                    _ => self.global.take_if_fresh(),
                };
                let fresh = fresh.map(Ready::new).or_else(|| self.help(local));
                return fresh.or_else(|| local.pop_round()).map(Next::from);
            }
        }
        if let Some(thread) = local.pop() {
            return Some(thread.into());
        }
        let global = self.take_global(local);
        // The queue may have had no space for the round: see `LocalQueue::space`.
        global.or_else(|| local.pop_round()).map(Next::from)
    }

    /// Takes threads from the victims, and returns one.
    fn steal_for(&self, mine: &Held<'_, Local>, victims: Victims<'_>) -> Option<Ready> {
        let last = victims.is_last_pass();
        if let Some(thread) = mine.pop() {
            return Some(thread);
        }
        for victim in victims.filter_map(|index| self.locals.find(index)) {
            if let Some(thread) = mine.steal_from(victim) {
                return Some(thread);
            }
            let next = match last && !victim.next.is_empty() {
                true => {
                    perturb::point("work_stealing: stealing the next");
                    victim.next.steal()
                }
                false => victim.next.relieve(),
            };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    #[inline]
    fn ready_next(&self, local: &Held<'_, Local>, thread: Ready) -> ForOthers {
        let displaced = local.next.fill(thread, clock::now);
        let is_work = displaced.is_some() || local.next.is_slow();
        if let Some(displaced) = displaced {
            self.push(local, displaced);
        }
        ForOthers::when(is_work && self.options.stealing)
    }
}

impl Policy for WorkStealing {
    #[inline]
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let local = match seat {
            None => None,
            Some(seat) => match self.locals.hold_known(seat) {
                None => {
                    self.locals.of(seat); // it comes for the first time
                    return self.ready(thread, how, Some(seat));
                }
                known => known,
            },
        };
        match (local, how) {
            (Some(local), Readied::Yielded) if local.mixes_now() => self.mix(&local, thread),
            (Some(local), Readied::Yielded | Readied::Arrived) => {
                local.preempted_in_a_row.set(0);
                local.with_round(|round| round.push(thread.into_green()));
                ForOthers::Nothing
            }
            // The thread goes behind all that waited while it ran: from the global queue it could
            // come back before them.
            (Some(local), Readied::Preempted) if local.preempted_joins_round() => {
                local.with_round(|round| round.push(thread.into_green()));
                ForOthers::Nothing
            }
            (Some(local), Readied::Spawned | Readied::Woken) if self.options.next_slot => {
                self.ready_next(&local, thread)
            }
            (Some(local), Readied::Spawned | Readied::Woken) => {
                self.push(&local, thread);
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
        let Some(local) = self.locals.hold_known(seat) else {
            self.locals.of(seat); // it comes for the first time
            return self.next(seat, others);
        };
        let next = self.choose(&local, others)?;
        local.next.set_running(next.thread.green());
        Some(next)
    }

    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        if !self.options.stealing {
            return None;
        }
        let mine = self.locals.hold(seat);
        let thread = self.steal_for(&mine, victims)?;
        mine.next.set_running(thread.green());
        Some(thread)
    }

    fn leave(&self, seat: &Seat) {
        let local = self.locals.hold(seat);
        local.withdraw_request(&self.locals);
        self.global.append(local.leave());
    }

    fn resize(&self, processors: usize) {
        // A processor may have asked for a thread, lain down, and gone out of use before it got one: no thief looks there
        // any more.
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
            true => {
                let local = self.locals.find(processor);
                local.map_or(0, Local::round_len)
            }
            false => self.len(Some(processor)),
        }
    }

    fn work_for_others(&self) -> ForOthers {
        let work = !self.global.is_empty()
            || self.options.stealing && self.locals.iter().any(Local::has_work_for_others);
        ForOthers::when(work)
    }
}
