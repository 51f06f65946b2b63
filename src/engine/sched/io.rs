//! Which thread collects events, and when.
//!
//! The driver has one turn at collecting (`events`). It is taken
//!
//! | by | when | for how long |
//! |---|---|---|
//! | a worker that goes to sleep | nobody has it, and a processor sleeps | until something comes: instead of the futex |
//! | a processor that has run dry | nobody has it | a look; while events come quickly, [`SPIN`] |
//! | a busy processor | every [`LOOK_AT_EVENTS`](super::tuning::LOOK_AT_EVENTS) switches, or when the monitor says so | a look |
//! | the monitor | nobody has looked for [`LONGEST_TICK`]: all processors are busy, or lack workers | a look |
//!
//! A worker that has the turn and gets up gives it back and does not wake another for it: it first
//! runs the threads that the events made ready, and then the next look finds all later events at
//! once. Only if that takes long does the monitor send a sleeper to watch
//! ([`Cluster::see_to_events`]); if nobody sleeps and a processor is blocked in the kernel, it
//! takes that one ([`Cluster::needs_a_watch`]). A processor that has found events does not wake
//! others to help, either, before it is plain that it cannot keep up.
//!
//! *Looking for a while takes no CPU from anybody.* The thread that sends the next event, or receives
//! the answer to the last one, may wait for this very CPU: the system puts it there when it finds no
//! other one idle at that moment, leaves it there, and need not interrupt us for it before our slice
//! is over, milliseconds later. Events that another CPU sends meanwhile would keep us looking, so
//! no bound for one search helps that thread. Therefore a processor gives way after each look
//! that has found nothing. That is a short system call if nobody waits. If somebody does, it runs at
//! once, and mostly for a few microseconds; to sleep for its sake would cost more, and the system's count
//! of threads that can run does not say on which CPU. One that computes keeps the CPU for a time slice; beside
//! such threads a processor sleeps instead, for the system interrupts them for a thread that it wakes.
//!
//! *What arrivals hand to the kernel can go together.* Threads that events have made ready run one after the other,
//! as a rule for a moment each. So a driver may hold back at the processor what one of them hands over, until the
//! others have run, too ([`has_company`], [`hold`], [`Held`](super::events::Held)). It goes out ([`flush`])
//!
//! | when | by |
//! |---|---|
//! | as many switches have passed as threads have arrived, or the driver can hold no more | the run loop, before the next thread |
//! | the processor has run dry, or passes to another worker | the run loop |
//! | a thread has turned out to run long | the run loop, when the monitor has seen it and asked for attention |
//! | the processor is laid to rest | the thread that lays it to rest |
//!
//! The threads that waited for that are arrivals again. The number of switches is a guess: if others run between the
//! arrivals, or some of them are stolen, it goes out sooner or later than it might, but never later than that. A
//! processor without an owner holds nothing back.
//!
//! Invariant: while descriptors are registered and nobody has the turn, a processor or the monitor
//! is awake and will see to it. For a worker takes the turn before it sleeps, if it is free; a
//! thread that gives it back is awake, and has kicked the monitor if it slept; and the monitor does
//! not sleep while the turn is free. A cluster that ends kicks the monitors of all others.

use crate::engine::atomic::Ordering;
use crate::engine::policy::{Readied, Ready};
use crate::engine::probe::{self, By, Readied as Why};
use crate::engine::sched::events::events;
use crate::engine::sched::list::Fifo;
use crate::engine::sched::tuning::{APART, BATCH, HELP_AFTER, LATE, LENT, LONGEST_TICK, SPIN};
use crate::engine::sched::{Cluster, Owned, RunLoop};
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::{clock, kernel_thread, perturb};

/// Takes `ready` into the queue of `processor`, which is the caller's. True: `ready` was not empty.
pub(super) fn take_in(processor: &mut Owned<'_>, ready: Fifo) -> bool {
    let count = ready.len();
    let cluster = processor.cluster();
    arrive(processor, ready);
    if is_too_much(processor, count) || cluster.policy.len(None) != 0 {
        cluster.notify();
    }
    count != 0
}

/// Takes `ready` into the queue of `processor`, and expects each of these threads to run for a moment.
fn arrive(processor: &mut Owned<'_>, mut ready: Fifo) {
    let count = ready.len();
    let cluster = processor.cluster();
    let mut expected = 0;
    while let Some(green) = ready.pop() {
        if count > 1 {
            green.prefetch();
        }
        probe::readied(By::Processor(processor.lend()), green, Why::Arrived);
        if core::ptr::eq(green.cluster(), cluster) {
            let thread = Ready::new(green);
            cluster
                .policy
                .ready(thread, Readied::Arrived, Some(&processor.seat()));
            expected += 1;
        } else {
            super::ready_globally(green, Readied::Arrived);
        }
    }
    let switches = processor.switches.get();
    let until = &mut processor.own().arrivals_until;
    *until = switches.max(*until) + expected;
}

/// Whether what the running thread hands to the kernel should wait for threads behind it that may hand over
/// something, too: arrivals are in the queue, and nothing else, or something is held back already.
pub(crate) fn has_company(processor: &mut Owned<'_>) -> bool {
    let next = processor.switches.get() + 1;
    let arrivals = processor.own().arrivals_until.saturating_sub(next);
    let waiting = || processor.cluster().policy.len(Some(processor.index));
    (arrivals != 0 || processor.holds.load(Ordering::Relaxed)) && waiting() as u64 <= arrivals
}

/// A driver holds something back for the running thread, which parks now. If that is all that it can hold, it
/// goes out next.
pub(crate) fn hold(processor: &mut Owned<'_>, is_full: bool) {
    processor.holds.store(true, Ordering::Relaxed);
    let switches = processor.switches.get();
    let own = processor.own();
    let last = if is_full {
        switches + 1
    } else {
        own.arrivals_until
    };
    own.looks.flush_by(last);
}

/// Hands over what a driver holds back at `processor`, for its owner, and takes in the threads that waited for
/// that.
#[inline]
pub(super) fn flush(processor: &mut Owned<'_>) {
    if processor.holds.load(Ordering::Relaxed) {
        flush_now(processor);
    }
}

#[cold]
#[inline(never)]
fn flush_now(processor: &mut Owned<'_>) {
    processor.holds.store(false, Ordering::Relaxed);
    let own = processor.own();
    own.looks.flushed();
    if let Some(held) = &mut own.held {
        let ready = held.flush();
        arrive(processor, ready);
    }
}

/// Whether `processor`, which takes in `count` threads, needs help.
fn is_too_much(processor: &mut Owned<'_>, count: usize) -> bool {
    let crowded_since = &mut processor.own().crowded_since;
    if count < BATCH {
        *crowded_since = NEVER;
        return false;
    }
    let now = events().asked();
    let since = (*crowded_since).min(now);
    let too_much = now - since >= HELP_AFTER;
    *crowded_since = if too_much { NEVER } else { since };
    too_much
}

/// Makes all of `ready` ready; the caller has no processor, and no preemption. A sleeper is woken
/// once for all threads of a cluster, not for each.
pub(crate) fn pass_on(mut ready: Fifo) {
    let mut last: Option<&'static Cluster> = None;
    while let Some(green) = ready.pop() {
        let cluster = green.cluster();
        if let Some(last) = last.replace(cluster)
            && !core::ptr::eq(last, cluster)
        {
            last.notify();
        }
        perturb::point("io: passing on");
        probe::readied(By::Outside, green, Why::Arrived);
        let thread = Ready::new(green);
        cluster.policy.ready(thread, Readied::Arrived, None);
    }
    if let Some(last) = last {
        last.notify();
    }
}

/// One look, by the owner of `processor`. True: events came.
pub(super) fn look(processor: &mut Owned<'_>) -> bool {
    let ready = events().turn().map(|turn| turn.collect(Some(0)));
    perturb::point("io: collected");
    ready.is_some_and(|ready| take_in(processor, ready))
}

/// [`look`] by a processor that has other threads to run. If no events came, it gives way to the
/// OS: the sender of the next event may be waiting for this CPU, and threads that only give way in
/// turn would keep it.
pub(super) fn look_when_busy(processor: &mut Owned<'_>) {
    if events().is_in_use() && !look(processor) {
        kernel_thread::give_way();
    }
}

/// The result of looking for a while.
pub(super) enum Spun {
    /// There was nothing, or it does not pay now.
    InVain,
    /// Threads whose descriptors are ready.
    Events(Fifo),
    /// There is other work to do.
    OtherWork,
}

/// Looks for a while, if events have come so quickly of late that it pays: sleeping and being woken
/// would take longer. The owner of `processor` searches.
pub(super) fn spin(processor: &mut Owned<'_>) -> Spun {
    if !processor.own().spin_pays || !processor.cluster().config.ideas.spinning {
        return Spun::InVain;
    }
    let Some(turn) = events().turn() else {
        return Spun::InVain;
    };
    let end = clock::now() + SPIN;
    loop {
        let ready = turn.collect(Some(0));
        if ready.len() != 0 {
            return Spun::Events(ready);
        }
        if processor.cluster().something_to_do() {
            return Spun::OtherWork;
        }
        // `echo at half load` (benches/latency) has a worse p99 without it.
        let before = clock::now();
        kernel_thread::give_way();
        let now = clock::now();
        if now - before >= LENT {
            processor.own().spins_from = now + APART;
        }
        if now >= end {
            processor.own().spin_pays = false;
            return Spun::InVain;
        }
    }
}

/// Takes in the threads that events made ready while the worker, which has a processor now, slept.
pub(super) fn settle(run: &mut RunLoop, ready: Fifo) {
    let slept = run.worker().events_after.replace(u64::MAX);
    match run.owned() {
        Some(mut processor) => {
            if take_in(&mut processor, ready) {
                let own = processor.own();
                own.spin_pays = slept < SPIN && events().asked() >= own.spins_from;
            }
        }
        None => pass_on(ready),
    }
}

/// How long nobody has looked for events that can come.
fn unseen(now: u64) -> u64 {
    let events = events();
    match events.is_in_use() && !events.is_watched() {
        true => now.saturating_sub(events.asked()),
        false => 0,
    }
}

impl Cluster {
    /// Whether a processor that is blocked in the kernel is needed for events: no other processor
    /// looks for events, and none sleeps that could be told to.
    pub(super) fn needs_a_watch(&self, now: u64) -> bool {
        self.idle.sleeping() == 0 && unseen(now) >= LATE
    }

    /// The monitor's part. True: it must look again soon, for the turn is free, or may be free at
    /// any time.
    pub(super) fn see_to_events(&'static self, now: u64) -> bool {
        let events = events();
        if !events.is_in_use() {
            return false;
        }
        let unseen = unseen(now);
        if unseen >= LATE {
            for processor in self.processors() {
                processor.attention.store(true, Ordering::Relaxed);
            }
            if self.idle.sleeping() != 0 {
                self.send_to_watch();
            }
            // Nobody looks, or there is no worker to send.
            if unseen >= LONGEST_TICK
                && let Some(turn) = events.turn()
            {
                pass_on(turn.collect(Some(0)));
            }
        }
        true
    }
}
