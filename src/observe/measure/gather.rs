//! Measuring: histograms of how long threads wait for a processor, how long they run, and how long they block
//! kernel threads. They are gathered while [`METRICS`](super::METRICS) is on.
//!
//! | what is measured | from | to |
//! |---|---|---|
//! | a wait | a thread is made ready (woken, spawned, has yielded, was preempted) | a processor takes it to run it |
//! | a run | a processor takes it | it has left its stack, or its processor was taken |
//! | a hold | the processor of a blocked thread was taken | the thread comes back to the runtime |
//!
//! A switch reads the clock once: a thread begins when the one before it has left, unless the processor had
//! nothing to run in between. A wake-up reads it once more.
//!
//! *Which runs are measured.* Each thread that is made ready, or leaves its stack, gets an oddity, for which the run
//! loop looks at each switch anyway; so a run's beginning costs nothing more while nothing is measured.
//!
//! *Where times are kept.* When a thread became ready is kept in its record, at the place of its signal mask
//! ([`Green::set_measured`]); the waits of the few threads with a mask of their own are not measured. When it began, and when
//! its processor was taken, is kept with its machine ([`Stint`]). A time from before measuring was last switched
//! on ([`SINCE`]) is not used.
//!
//! # Invariants
//! 1. Only the owner of a processor, or whoever has it in hand, adds to the processor's histograms: plain stores.
//!    Those of the cluster have many writers.
//! 2. A processor's histograms are mapped at its first run that is measured, and are never freed.
//!
//! Orderings: all are Relaxed. A reader sees each bucket as it was at some moment; sums and counts need not fit
//! together exactly. `processor.measures` is a Release for its reader's Acquire.

use core::cell::Cell;

use super::scale::{BUCKETS, bucket};
use super::{METRICS, ON};
use crate::engine::arch;
use crate::engine::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::green::Green;
use crate::engine::green::context::Action;
use crate::engine::sched::blocked_calls::Place;
use crate::engine::sched::{Cluster, Machine, Owned, Processor};
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::{clock, kernel_thread, mm};

/// The ticks at which measuring was last switched on.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds in 2^32 ticks.
static RATE: AtomicU64 = AtomicU64::new(0);
/// How long ticks are compared with the clock, in nanoseconds, before measuring begins.
const COMPARED_FOR: u64 = 1_000_000;

/// A histogram that is being gathered.
pub(crate) struct Gathered {
    nanos: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

impl Gathered {
    pub(crate) const fn new() -> Gathered {
        Gathered {
            nanos: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Adds a time in ticks. There is one writer.
    #[inline]
    fn add(&self, ticks: u64) {
        let nanos = nanos(ticks);
        let raise =
            |count: &AtomicU64, by: u64| count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
        raise(&self.nanos, nanos);
        raise(&self.counts[bucket(nanos)], 1);
    }

    /// The same where there are several writers.
    fn add_shared(&self, ticks: u64) {
        let nanos = nanos(ticks);
        self.nanos.fetch_add(nanos, Relaxed);
        self.counts[bucket(nanos)].fetch_add(1, Relaxed);
    }

    /// The sum of the times, in nanoseconds, and how many there are in each bucket.
    pub(crate) fn read(&self) -> (u64, impl Iterator<Item = u64>) {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        (self.nanos.load(Relaxed), counts)
    }
}

/// From where a processor took the thread that it runs next.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum From {
    /// The next slot: the thread inherits the time slice.
    NextSlot,
    /// The processor's own queue, or the global one.
    Queue,
    /// Another processor's queue. (The others that were stolen with it come from a queue.)
    Stolen,
}

/// The histograms of one processor.
pub(crate) struct Measures {
    pub(crate) runs: Gathered,
    /// By [`From`].
    pub(crate) waits: [Gathered; 3],
}

impl Measures {
    fn map() -> Option<&'static Measures> {
        let memory = mm::map(size_of::<Measures>().next_multiple_of(mm::page())).ok()?;
        // SAFETY: new memory, large enough and aligned to a page, which stays; zeroes are valid counts.
        Some(unsafe { &*core::ptr::with_exposed_provenance(memory) })
    }
}

/// The measuring part of what a processor's owner has.
pub(crate) struct Gauge {
    /// When the last thread left, if the processor has been busy since; or 0.
    left_at: u64,
    has_stolen: bool,
}

impl Gauge {
    pub(crate) const fn new() -> Gauge {
        Gauge {
            left_at: 0,
            has_stolen: false,
        }
    }
}

/// The measuring part of a machine.
pub(crate) struct Stint {
    /// When its thread began to run; the kernel thread's own.
    began: Cell<u64>,
    /// When the monitor took its processor, or was about to; or 0.
    taken_at: AtomicU64,
    /// What its thread was blocked in then; see [`blocked`](Stint::blocked).
    blocked: AtomicU32,
}

impl Stint {
    pub(crate) const fn new() -> Stint {
        Stint {
            began: Cell::new(0),
            taken_at: AtomicU64::new(0),
            blocked: AtomicU32::new(0),
        }
    }

    /// The monitor is about to take the processor because its thread is blocked, at `place` if that is known.
    pub(in crate::engine::sched) fn blocks(&self, place: Option<Place>) {
        let number = place.map_or(0, Place::number);
        self.blocked.store(number + 1, Relaxed);
    }

    /// The monitor is about to take the processor although its thread computes.
    pub(in crate::engine::sched) fn computes(&self) {
        self.blocked.store(0, Relaxed);
    }

    /// The monitor is about to take the processor.
    pub(in crate::engine::sched) fn ends(&self) {
        if ON.load(Relaxed) & METRICS != 0 {
            // The retaking of the processor, which comes next, publishes this, and `blocked`.
            self.taken_at.store(arch::ticks(), Relaxed);
        }
    }

    /// The monitor has not taken it.
    pub(in crate::engine::sched) fn goes_on(&self) {
        self.taken_at.store(0, Relaxed);
        self.blocked.store(0, Relaxed);
    }

    /// Whether the thread was blocked when the processor was taken, and where, if that is known. Asked once.
    fn blocked(&self) -> Option<Option<Place>> {
        match self.blocked.swap(0, Relaxed) {
            0 => None,
            number => Some(Place::of_number(number - 1)),
        }
    }
}

fn nanos(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
}

/// The ticks from `then`, which may not have been noted, to `now`.
#[inline]
fn elapsed(then: u64, now: u64) -> Option<u64> {
    (then != 0 && then >= SINCE.load(Relaxed)).then(|| now.saturating_sub(then))
}

/// `green` has left its stack and asks for `action`.
#[cold]
#[inline(never)]
pub(super) fn left(processor: Option<&mut Owned<'_>>, green: &'static Green, action: Action) {
    let (machine, now) = (green.machine(), arch::ticks());
    match processor {
        Some(processor) => {
            let run = elapsed(machine.stint.began.replace(0), now);
            if let (Some(run), Some(measures)) = (run, of(processor)) {
                measures.runs.add(run);
            }
            processor.own().gauge.left_at = now;
        }
        None => came_back(machine, green.cluster(), now),
    }
    match action {
        Action::Yield | Action::Preempt => green.set_measured(now),
        // It may turn out that the wait is over already.
        Action::Park => green.set_measured(0),
        Action::HandOver => {
            if let Some(successor) = green.next.get() {
                successor.set_measured(0);
            }
        }
        Action::Exit => {}
    }
}

/// The run loop is about to run `green`; `processor`: the machine's, if it still has one.
#[cold]
#[inline(never)]
pub(in crate::engine::sched) fn begins(
    processor: Option<Owned<'_>>,
    machine: &'static Machine,
    green: &'static Green,
    inherits_slice: bool,
) {
    let ready_at = green.take_measured();
    let Some(mut processor) = processor else {
        return machine.stint.began.set(arch::ticks());
    };
    let gauge = &mut processor.own().gauge;
    let from = match (inherits_slice, core::mem::take(&mut gauge.has_stolen)) {
        (_, true) => From::Stolen,
        (true, false) => From::NextSlot,
        (false, false) => From::Queue,
    };
    let now = match core::mem::take(&mut gauge.left_at) {
        left_at if left_at < SINCE.load(Relaxed) => arch::ticks(),
        left_at => left_at,
    };
    machine.stint.began.set(now);
    let wait = elapsed(ready_at, now);
    if let (Some(wait), Some(measures)) = (wait, of(&processor)) {
        measures.waits[from as usize].add(wait);
    }
}

/// The owner of `processor` had nothing to run for a while.
#[cold]
pub(super) fn rested(processor: &mut Owned<'_>) {
    processor.own().gauge.left_at = 0;
}

#[cold]
pub(super) fn stole(processor: &mut Owned<'_>) {
    processor.own().gauge.has_stolen = true;
}

/// `green`, the caller's, is about to be ready.
#[cold]
pub(super) fn readied(green: &'static Green) {
    green.set_measured(arch::ticks());
}

/// `machine`, whose thread runs without a processor, is about to get one.
#[cold]
pub(super) fn resumes(machine: &'static Machine, cluster: &'static Cluster) {
    let now = arch::ticks();
    came_back(machine, cluster, now);
    machine.stint.began.set(now);
}

/// The thread that `machine` runs has come back to the runtime, which has taken its processor.
fn came_back(machine: &'static Machine, cluster: &'static Cluster, now: u64) {
    let stint = &machine.stint;
    let taken_at = stint.taken_at.swap(0, Relaxed);
    let held = elapsed(taken_at, now);
    if let (Some(held), Some(place)) = (held, stint.blocked()) {
        cluster.holds.add_shared(held);
        cluster.blocked_calls.add_time(place, nanos(held));
    }
    let end = if held.is_some() { taken_at } else { now };
    if let Some(run) = elapsed(stint.began.replace(0), end) {
        cluster.detached_runs.add_shared(run);
    }
}

/// The histograms of `processor`, which are made if there are none.
#[inline]
fn of(processor: &Owned<'_>) -> Option<&'static Measures> {
    let place: &AtomicStatic<Measures> = &processor.measures;
    match place.load(Relaxed) {
        None => make(processor.shared()),
        made => made,
    }
}

#[cold]
#[inline(never)]
fn make(processor: &'static Processor) -> Option<&'static Measures> {
    let made = Measures::map();
    // Release: partner: Acquire in `read`.
    processor.measures.store(made, Release);
    made
}

/// The histograms of a processor, if there are any.
pub(crate) fn read(processor: &Processor) -> Option<&'static Measures> {
    // Acquire: partner: Release in `make`.
    processor.measures.load(Acquire)
}

/// Whether times are measured.
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed) & METRICS != 0
}

/// From now on times are measured, or are not. The caller may block.
pub(crate) fn switch(on: bool) {
    if !on {
        ON.fetch_and(!METRICS, Relaxed);
        return;
    }
    if RATE.load(Relaxed) == 0 {
        RATE.store(compare(), Relaxed);
    }
    if !is_on() {
        SINCE.store(arch::ticks(), Relaxed);
    }
    ON.fetch_or(METRICS, Relaxed);
}

/// How many nanoseconds 2^32 ticks last.
fn compare() -> u64 {
    let begin = both_clocks();
    kernel_thread::rest(COMPARED_FOR);
    let mut end = both_clocks();
    // A signal may have ended the rest.
    while end.1 - begin.1 < COMPARED_FOR {
        end = both_clocks();
    }
    let (ticks, nanos) = (end.0 - begin.0, end.1 - begin.1);
    ((u128::from(nanos) << 32) / u128::from(ticks.max(1))) as u64
}

/// The ticks and the clock at one time: of some readings, the one that was interrupted least.
fn both_clocks() -> (u64, u64) {
    let read = |_| {
        let (before, now, after) = (arch::ticks(), clock::now(), arch::ticks());
        (after.wrapping_sub(before), before / 2 + after / 2, now)
    };
    let best = (0..8).map(read).min_by_key(|reading| reading.0);
    best.map_or((0, 0), |(_, ticks, now)| (ticks, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_compared_with_the_clock() {
        let (one, other) = (compare(), compare());
        assert!(one.abs_diff(other) < one / 50, "{one} and {other}");
        RATE.store(one, Relaxed);
        let (begin, start) = both_clocks();
        kernel_thread::rest(5_000_000);
        let (end, stop) = both_clocks();
        let (measured, real) = (nanos(end - begin), stop - start);
        assert!(measured.abs_diff(real) < real / 50, "{measured} and {real}");
    }
}
