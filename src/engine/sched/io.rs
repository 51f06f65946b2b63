//! Which thread collects events, and when.
//!
//! A driver makes threads ready from outside. The scheduler knows the driver by two functions ([`Collect`]). One kernel
//! thread at a time collects events: the thread that has the [`Turn`]. Two at once would not find more, and each
//! would take half of the events to a processor of its own: the design's prototype lost a tenth to a quarter of its
//! throughput by that. The turn is taken
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
//! ([`see_to_events`]); if nobody sleeps and a processor is blocked in the kernel, it
//! takes that one (`monitor`). A processor that has found events does not wake
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
//! others have run, too ([`has_company`], [`hold`], [`Held`]). It goes out ([`flush`])
//!
//! | when | by |
//! |---|---|
//! | as many switches have passed as threads have arrived, or the driver can hold no more | the run loop, before the next thread |
//! | the processor has run dry, or passes to another worker | the run loop |
//! | a thread has turned out to run long | the run loop, when the monitor has seen it and asked for attention |
//! | the monitor has taken the processor | the monitor |
//!
//! The threads that waited for that are arrivals again. The number of switches is a guess: if others run between the
//! arrivals, or some of them are stolen, it goes out sooner or later than it might, but never later than that. A
//! processor without an owner holds nothing back.
//!
//! # Invariants
//!
//! 1. Between [`turn`] and the end of the [`Turn`] no other thread collects.
//! 2. `SOURCES` counts the sources of events: while the count is 0 no event can come.
//! 3. While descriptors are registered and nobody has the turn, a processor or the monitor is awake and will see to
//!    the events. For a worker takes the turn before it sleeps, if the turn is free; a thread that gives the turn back
//!    is awake, and has kicked the monitor if it slept; and the monitor does not sleep while the turn is free. A
//!    cluster that ends kicks the monitors of all others.

use core::any::Any;
use std::sync::OnceLock;

use crate::engine::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::engine::policy::{Readied, Ready};
use crate::engine::probe::{self, By, Readied as Why};
pub(crate) use crate::engine::sched::tuning::BATCH;
use crate::engine::sched::tuning::{APART, HELP_AFTER, LATE, LENT, LONGEST_TICK, SPIN};
use crate::engine::sched::{Cluster, Owned, RunLoop, list::Fifo, ready_globally};
use crate::engine::sys::{clock, clock::NEVER, kernel_thread, perturb};

// ==== the turn ====

/// A driver, as the scheduler knows it: it makes threads ready from outside.
pub(crate) trait Collect: Sync {
    /// Collects events, [`BATCH`] at most, for at most `nanos`. Returns the threads that they make
    /// ready.
    fn collect(&self, nanos: Option<u64>) -> Fifo;

    /// Ends the collecting that goes on, or the next one.
    fn ring(&self);
}

/// The process's driver. It lives as long as the process.
static DRIVER: OnceLock<&'static dyn Collect> = OnceLock::new();
/// Whether a thread has the turn. SeqCst where the turn is taken, given back, and looked at by a thread that is about
/// to sleep: each such thread sees that another one has the turn, or is seen to sleep.
static TAKEN: AtomicBool = AtomicBool::new(false);
static SOURCES: AtomicUsize = AtomicUsize::new(0);
/// When events were last asked for (monotonic nanoseconds).
static ASKED: AtomicU64 = AtomicU64::new(0);

/// There is one more source of events, and `driver` collects them.
pub(crate) fn add_source(driver: &'static dyn Collect) {
    DRIVER.get_or_init(|| driver);
    SOURCES.fetch_add(1, Relaxed);
}

/// There is one source less.
pub(crate) fn remove_source() {
    SOURCES.fetch_sub(1, Relaxed);
}

/// Whether any event can come.
#[inline]
pub(crate) fn is_in_use() -> bool {
    SOURCES.load(Relaxed) != 0
}

/// Whether an event can come and nobody would notice it.
pub(super) fn is_unwatched() -> bool {
    // SeqCst: the monitor looks after it has said that it sleeps; partner: the swap in `turn` (invariant 3).
    is_in_use() && !TAKEN.load(SeqCst)
}

/// The right to collect events, of one thread at a time.
pub(crate) struct Turn(&'static dyn Collect);

/// The turn, if an event can come and nobody has the turn.
pub(super) fn turn() -> Option<Turn> {
    if !is_in_use() || TAKEN.load(Relaxed) {
        return None;
    }
    let driver = DRIVER.get()?;
    perturb::point("events: turn");
    // SeqCst: a worker that goes to sleep without the turn, and the monitor that looks for sleepers without one,
    // see each other; partner: the load in `is_unwatched`.
    (!TAKEN.swap(true, SeqCst)).then(|| Turn(*driver))
}

/// Ends the wait of the thread that has the turn, or the wait of the next such thread.
pub(super) fn ring() {
    if let Some(driver) = DRIVER.get() {
        driver.ring();
    }
}

impl Turn {
    /// Collects events, for at most `nanos`. Returns the threads that they make ready.
    pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
        perturb::point("events: collecting");
        let ready = self.0.collect(nanos);
        ASKED.store(clock::now(), Relaxed);
        ready
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        perturb::point("events: turn over");
        // SeqCst: partner: the load in `is_unwatched`.
        TAKEN.store(false, SeqCst);
    }
}

/// How long nobody has looked for events that can come.
pub(super) fn unseen(now: u64) -> u64 {
    match is_in_use() && !TAKEN.load(Relaxed) {
        true => now.saturating_sub(ASKED.load(Relaxed)),
        false => 0,
    }
}

// ==== the threads that events make ready ====

/// What a driver holds back at a processor, to hand it to the kernel together with more of its kind.
pub(crate) trait Held: Any {
    /// Hands it over. Returns the threads that waited for that. It does not block, runs under any thread
    /// pointer, and allocates nothing.
    fn flush(&mut self) -> Fifo;
}

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
            ready_globally(green, Readied::Arrived);
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
    (arrivals != 0 || processor.holds.load(Relaxed)) && waiting() as u64 <= arrivals
}

/// A driver holds something back for the running thread, which parks now. If that is all that it can hold, it
/// goes out next.
pub(crate) fn hold(processor: &mut Owned<'_>, is_full: bool) {
    processor.holds.store(true, Relaxed);
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
    if processor.holds.load(Relaxed) {
        flush_now(processor);
    }
}

#[cold]
#[inline(never)]
fn flush_now(processor: &mut Owned<'_>) {
    processor.holds.store(false, Relaxed);
    let own = processor.own();
    own.looks.flush = NEVER;
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
    let now = ASKED.load(Relaxed);
    let since = (*crowded_since).min(now);
    let too_much = now - since >= HELP_AFTER;
    *crowded_since = if too_much { NEVER } else { since };
    too_much
}

/// Makes all of `ready` ready; the caller has no processor, and no preemption.
pub(crate) fn pass_on(mut ready: Fifo) {
    while let Some(green) = ready.pop() {
        perturb::point("io: passing on");
        probe::readied(By::Outside, green, Why::Arrived);
        ready_globally(green, Readied::Arrived);
    }
}

/// One look, by the owner of `processor`. True: events came.
pub(super) fn look(processor: &mut Owned<'_>) -> bool {
    let ready = turn().map(|turn| turn.collect(Some(0)));
    perturb::point("io: collected");
    ready.is_some_and(|ready| take_in(processor, ready))
}

/// [`look`] by a processor that has other threads to run. If no events came, it gives way to the
/// OS: the sender of the next event may be waiting for this CPU, and threads that only give way in
/// turn would keep it.
pub(super) fn look_when_busy(processor: &mut Owned<'_>) {
    if is_in_use() && !look(processor) {
        kernel_thread::give_way();
    }
}

/// Looks for a while, if events have come so quickly of late that it pays: sleeping and being woken
/// would take longer. The owner of `processor` searches. Returns the threads that are ready now, or none if there is other
/// work to do; `None`: there was nothing, or looking does not pay.
pub(super) fn spin(processor: &mut Owned<'_>) -> Option<Fifo> {
    if !processor.own().spin_pays || !processor.cluster().config.ideas.spinning {
        return None;
    }
    let turn = turn()?;
    let end = clock::now() + SPIN;
    loop {
        let ready = turn.collect(Some(0));
        if ready.len() != 0 || processor.cluster().something_to_do() {
            return Some(ready);
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
            return None;
        }
    }
}

/// Takes in the threads that events made ready while the worker, which has a processor now, slept for `slept`
/// nanoseconds.
pub(super) fn settle(run: &mut RunLoop, ready: Fifo, slept: u64) {
    match run.owned() {
        Some(mut processor) => {
            if take_in(&mut processor, ready) {
                let own = processor.own();
                own.spin_pays = slept < SPIN && ASKED.load(Relaxed) >= own.spins_from;
            }
        }
        None => pass_on(ready),
    }
}

/// The monitor's part. True: the monitor must look again soon, for the turn is free, or may be free at
/// any time.
pub(super) fn see_to_events(cluster: &'static Cluster, now: u64) -> bool {
    if !is_in_use() {
        return false;
    }
    let unseen = unseen(now);
    if unseen >= LATE {
        for processor in cluster.processors() {
            processor.attention.store(true, Relaxed);
        }
        if cluster.idle.sleeping() != 0 {
            cluster.send_to_watch();
        }
        // Nobody looks, or there is no worker to send.
        if unseen >= LONGEST_TICK
            && let Some(turn) = turn()
        {
            pass_on(turn.collect(Some(0)));
        }
    }
    true
}
