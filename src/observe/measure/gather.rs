//! Gathering times from the scheduler's events: how long threads wait for a processor, how long they run, and how long they
//! hold kernel threads when they block.
//!
//! | what is measured | from | to |
//! |---|---|---|
//! | a wait | a thread is made ready (woken, spawned, has yielded, was preempted) | a processor takes it to run it |
//! | a run | a processor takes it | it has left its stack, or its processor was taken |
//! | a hold | the processor of a blocked thread is taken | the thread comes back to the runtime |
//!
//! A switch reads the clock once: a thread begins when the one before it has left, unless the processor had
//! nothing to run in between. A wake-up reads it once more.
//!
//! *Where times are kept.* When a thread became ready: in the second of the observer's words in its record. When the present
//! run of a processor began: in its [`Gauge`]. When the processor of a blocked thread was taken: in the [`Hold`] of its
//! worker. A time from before measuring was last switched on ([`SINCE`]) is not used.
//!
//! # Invariants
//! 1. Only the owner of a processor, or whoever has it in hand, adds to the processor's waits and runs: plain stores.
//!    Those of holds have many writers.
//! 2. A processor's histograms are mapped at its first run that is measured, and are never freed.
//!
//! Orderings: all are Relaxed, but for the list of histograms (Release, Acquire). A reader sees each bucket as it was at some moment; sums and counts need not fit
//! together exactly. What the monitor writes to a hold is published by its taking of the processor.

use crate::arch::ticks;
use crate::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::probe::{BlockedPlace, Lost, Pick, Processor, Stop, Stopped, Thread};
use crate::engine::public::Histogram;
use crate::observe::kept::{ByProcessor, ByWorker, Zeroable, mapped};
use crate::sys::{clock, kernel_thread, statics::AtomicStatic};

/// The ticks at which measuring was last switched on.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds in 2^32 ticks.
static RATE: AtomicU64 = AtomicU64::new(0);
/// How long ticks are compared with the clock, in nanoseconds, before measuring begins.
const COMPARED_FOR: u64 = 1_000_000;

/// A histogram that is being gathered.
pub(super) struct Gathered {
    nanos: AtomicU64,
    counts: [AtomicU64; Histogram::BUCKETS],
}

impl Gathered {
    /// Adds a time in ticks. There is one writer.
    #[inline]
    fn add(&self, ticks: u64) {
        let nanos = nanos(ticks);
        let raise =
            |count: &AtomicU64, by: u64| count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
        raise(&self.nanos, nanos);
        raise(&self.counts[Histogram::bucket(nanos)], 1);
    }

    /// The same in nanoseconds, where there are several writers.
    fn add_shared(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
        self.counts[Histogram::bucket(nanos)].fetch_add(1, Relaxed);
    }

    /// The sum of the times, in nanoseconds, and how many there are in each bucket.
    pub(super) fn read(&self) -> (u64, impl Iterator<Item = u64>) {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        (self.nanos.load(Relaxed), counts)
    }
}

/// The histograms of one processor.
pub(super) struct Measures {
    runtime: usize,
    /// Those that were made before.
    before: AtomicStatic<Measures>,
    pub(super) runs: Gathered,
    /// From the next slot, from a queue, and stolen.
    pub(super) waits: [Gathered; 3],
    /// Those of any worker of the runtime.
    pub(super) holds: Gathered,
}

/// What is kept of a processor.
struct Gauge {
    /// When its present thread began to run, or the last one left; or 0.
    began: u64,
    measures: Option<&'static Measures>,
}

/// What is kept of a worker.
struct Hold {
    /// When the monitor took its processor, or was about to; or 0.
    since: AtomicU64,
    /// Its thread was blocked then, here if that is known.
    is_blocked: AtomicBool,
    place: AtomicStatic<BlockedPlace>,
}

static GAUGES: ByProcessor<Gauge> = ByProcessor::new();
static HOLDS: ByWorker<Hold> = ByWorker::new();
static ALL: AtomicStatic<Measures> = AtomicStatic::none();

// SAFETY: no time, and no histograms.
unsafe impl Zeroable for Gauge {}
// SAFETY: no time, false, and an address that is null.
unsafe impl Zeroable for Hold {}

impl Measures {
    /// Those of one more processor of this runtime.
    #[cold]
    fn make(runtime: usize) -> Option<&'static Measures> {
        let measures: *mut Measures = mapped()?;
        // SAFETY: new memory, which stays; zero bytes are counts, and nothing before.
        let measures = unsafe {
            (&raw mut (*measures).runtime).write(runtime);
            &*measures.cast_const()
        };
        let mut before = ALL.load(Relaxed);
        loop {
            measures.before.store(before, Relaxed);
            // Release: partner: Acquire in `of_runtime`.
            match ALL.replace(before, measures, Release) {
                Ok(()) => return Some(measures),
                Err(now) => before = now,
            }
        }
    }
}

impl Gauge {
    /// The histograms of the processor, which is one of this runtime; they are made if there are none.
    #[inline]
    fn measures(&mut self, runtime: usize) -> Option<&'static Measures> {
        self.measures = self.measures.or_else(|| Measures::make(runtime));
        self.measures
    }
}

/// The histograms of all processors that this runtime has had.
pub(super) fn of_runtime(runtime: usize) -> impl Iterator<Item = &'static Measures> {
    // Acquire: partner: Release in `make`.
    core::iter::successors(ALL.load(Acquire), |measures| measures.before.load(Relaxed))
        .filter(move |measures| measures.runtime == runtime)
}

fn nanos(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
}

/// The ticks from `then`, which may not have been noted, to `now`.
#[inline]
fn elapsed(then: u64, now: u64) -> Option<u64> {
    (then != 0 && then >= SINCE.load(Relaxed)).then(|| now.saturating_sub(then))
}

/// `thread` is about to be ready.
pub(in crate::observe) fn readied(thread: Thread<'_>) {
    thread.words()[1].store(ticks(), Relaxed);
}

pub(in crate::observe) fn picked(processor: &mut Processor<'_>, thread: Thread<'_>, from: Pick) {
    let runtime = processor.seen().runtime();
    let Some(gauge) = GAUGES.of(processor) else {
        return;
    };
    let has_rested = matches!(from, Pick::Found | Pick::Stolen);
    if has_rested || gauge.began < SINCE.load(Relaxed) {
        gauge.began = ticks();
    }
    let [_, word] = thread.words();
    let ready_at = word.load(Relaxed);
    word.store(0, Relaxed);
    let from = match from {
        Pick::NextSlot => 0,
        Pick::Queue | Pick::Found => 1,
        Pick::Stolen => 2,
    };
    if let Some(wait) = elapsed(ready_at, gauge.began)
        && let Some(measures) = gauge.measures(runtime)
    {
        measures.waits[from].add(wait);
    }
}

pub(in crate::observe) fn stopped(processor: Option<&mut Processor<'_>>, stopped: Stopped<'_>) {
    let (thread, now) = (stopped.thread(), ticks());
    match processor {
        Some(processor) => run_ends(processor, now, now),
        None => came_back(thread.worker(), thread.runtime(), now),
    }
    if let Stop::Yielded | Stop::Preempted = stopped.why() {
        thread.words()[1].store(now, Relaxed);
    }
}

/// The run on `processor` is over; the next one began at `next`.
fn run_ends(processor: &mut Processor<'_>, now: u64, next: u64) {
    let runtime = processor.seen().runtime();
    if let Some(gauge) = GAUGES.of(processor)
        && let Some(run) = elapsed(core::mem::replace(&mut gauge.began, next), now)
        && let Some(measures) = gauge.measures(runtime)
    {
        measures.runs.add(run);
    }
}

/// The monitor is about to take the processor of `worker`.
pub(in crate::observe) fn blocks(worker: u32, how: Lost) {
    if let Some(hold) = HOLDS.of(worker) {
        let (is_blocked, place) = match how {
            Lost::Blocked(place) => (true, place),
            Lost::Computing => (false, None),
        };
        hold.is_blocked.store(is_blocked, Relaxed);
        hold.place.store(place, Relaxed);
        hold.since.store(ticks(), Relaxed);
    }
}

/// It has taken it, or has not.
pub(in crate::observe) fn blocked(processor: Option<&mut Processor<'_>>, worker: u32) {
    match processor {
        Some(processor) => run_ends(processor, ticks(), 0),
        None => {
            if let Some(hold) = HOLDS.of(worker) {
                hold.since.store(0, Relaxed);
            }
        }
    }
}

/// `worker`, whose thread runs without a processor, gets this one.
pub(in crate::observe) fn resumed(processor: &mut Processor<'_>, worker: u32) {
    let now = ticks();
    came_back(worker, processor.seen().runtime(), now);
    if let Some(gauge) = GAUGES.of(processor) {
        gauge.began = now;
    }
}

/// The thread that `worker` runs has come back to the runtime, which has taken its processor.
fn came_back(worker: u32, runtime: usize, now: u64) {
    let Some(hold) = HOLDS.of(worker) else { return };
    let held = elapsed(hold.since.swap(0, Relaxed), now);
    if let (Some(held), true) = (held, hold.is_blocked.load(Relaxed)) {
        let held = nanos(held);
        if let Some(measures) = of_runtime(runtime).next() {
            measures.holds.add_shared(held);
        }
        if let Some(place) = hold.place.load(Relaxed) {
            place.add_time(held);
        }
    }
}

/// Measuring is about to begin. The caller may block.
pub(super) fn begin() {
    if RATE.load(Relaxed) == 0 {
        RATE.store(compare(), Relaxed);
    }
    SINCE.store(ticks(), Relaxed);
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
        let (before, now, after) = (ticks(), clock::now(), ticks());
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
