//! What the observer keeps of each processor, and how times are gathered from the scheduler's events: how long threads wait
//! for a processor, how long they run, and how long they hold kernel threads when they block.
//!
//! | what is measured | from | to |
//! |---|---|---|
//! | a wait | a thread is made ready (woken, spawned, has yielded, was preempted) | a processor takes the thread |
//! | a run | a processor takes the thread | the thread has left its stack, or its processor was taken |
//! | a hold | the processor of a blocked thread is taken | the thread comes back to the runtime |
//!
//! A switch reads the clock once: a thread begins when the one before it has left, unless the processor had
//! nothing to run in between. A wake-up reads the clock once more.
//!
//! *Where times are kept.* When a thread became ready: in the second of the observer's words in its record. When the present
//! run of a processor began: in the [`Measures`] of the processor. When the processor of a blocked thread was taken: in the
//! first of the observer's words in the record of its worker; the second one says where the thread was blocked. A time
//! from before measuring was last switched on ([`SINCE`]) is not used.
//!
//! # Invariants
//! 1. Only the owner of a processor, or the thread that gives the processor away, adds to its waits and runs: plain stores.
//!    Those of holds have many writers.
//! 2. What is kept of a processor ([`Kept`]) is mapped at the processor's first event, as the scheduler, which calls, may
//!    not allocate. The observer's word in the processor's record leads there, and a list leads to all of them. Nothing of
//!    this is ever freed.
//!
//! Orderings: those of times are all Relaxed. A reader sees each bucket as it was at some moment; sums and counts need not fit
//! together exactly. What the monitor writes to a worker's words is published by its taking of the processor. An entry is put
//! in the list with Release and found there with Acquire; the same holds for a ring. The processor's word is Relaxed, because
//! the owner of the processor alone writes and reads it.

use core::ptr::{self, from_ref};

use super::trace::ring::Ring;
use crate::arch::ticks;
use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::inspect;
use crate::engine::probe::{
    Action, BlockedSite, Lost, ObserverWords, OwnedProcessor, Pick, ThreadInEvent,
};
use crate::engine::public::{Histogram, Metrics};
use crate::sys::{clock, kernel_thread, mm, shared::AtomicStatic};

// ==== what is kept ====

/// The entry of one processor. Zero bytes are a value of every field but `processor`.
pub(super) struct Kept {
    pub(super) processor: &'static inspect::Processor,
    before: AtomicStatic<Kept>,
    pub(super) measures: Measures,
    /// There is one from the first event of a trace on.
    pub(super) ring: AtomicStatic<Ring>,
}

static LAST: AtomicStatic<Kept> = AtomicStatic::none();

/// The entries of all processors of the process.
pub(super) fn all() -> impl Iterator<Item = &'static Kept> {
    // Acquire: partner: Release in `make`.
    core::iter::successors(LAST.load(Acquire), |kept| kept.before.load(Relaxed))
}

/// New memory of zero bytes for a `T`, which stays.
fn mapped<T>() -> Option<*mut T> {
    let memory = mm::map(size_of::<T>().next_multiple_of(mm::page())).ok()?;
    Some(ptr::with_exposed_provenance_mut(memory))
}

impl Kept {
    /// The entry of `processor`. The first call makes the entry. `None`: there is no memory.
    #[inline]
    pub(super) fn of(processor: &OwnedProcessor<'_>) -> Option<&'static Kept> {
        match ptr::with_exposed_provenance::<Kept>(processor.observed.load(Relaxed)) {
            kept if kept.is_null() => Kept::make(processor),
            // SAFETY: `make` alone writes the word, and the entry that it leads to stays.
            kept => Some(unsafe { &*kept }),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(processor: &OwnedProcessor<'_>) -> Option<&'static Kept> {
        let memory: *mut Kept = mapped()?;
        // SAFETY: the memory is new, large enough and aligned to a page, and stays. The processor is written before there is a
        // reference; in the other fields zero bytes are numbers, and addresses that are null.
        let kept = unsafe {
            (&raw mut (*memory).processor).write(processor.shared());
            &*memory.cast_const()
        };
        let address = memory.expose_provenance();
        processor.observed.store(address, Relaxed);
        kept.before.store(LAST.load(Relaxed), Relaxed);
        // Release: partner: Acquire in `all`.
        while let Err(now) = LAST.replace(kept.before.load(Relaxed), kept, Release) {
            kept.before.store(now, Relaxed);
        }
        Some(kept)
    }

    /// The ring of `processor`, whose owner calls; the first call makes the ring. `None`: there is no memory.
    #[inline]
    pub(super) fn ring(processor: &OwnedProcessor<'_>) -> Option<&'static Ring> {
        let kept = Kept::of(processor)?;
        kept.ring.load(Relaxed).or_else(|| {
            // SAFETY: the memory is new, large enough and aligned to a page, and it stays; zero bytes are a ring.
            let ring = mapped::<Ring>().map(|memory| unsafe { &*memory.cast_const() });
            // Release: partner: Acquire in the collector's `copy`.
            kept.ring.store(ring, Release);
            ring
        })
    }
}

// ==== times ====

/// The ticks at which measuring was last switched on.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds in 2^32 ticks.
static RATE: AtomicU64 = AtomicU64::new(0);
/// How long ticks are compared with the clock, in nanoseconds, before measuring begins.
const COMPARED_FOR: u64 = 1_000_000;

/// The second word of a worker whose processor is taken: its thread computes, or is blocked in an unknown place. Any
/// other value is the address of the place.
const COMPUTES: u64 = 0;
const SOMEWHERE: u64 = 1;

/// A histogram that is being gathered.
struct Gathered {
    nanos: AtomicU64,
    counts: [AtomicU64; Histogram::BUCKETS],
}

impl Gathered {
    /// Adds a time in ticks. There is one writer.
    #[inline]
    fn add(&self, ticks: u64) {
        let nanos = nanos(ticks);
        let raise = |count: &AtomicU64, by: u64| {
            count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
        };
        raise(&self.nanos, nanos);
        raise(&self.counts[Histogram::bucket(nanos)], 1);
    }

    /// The same in nanoseconds, where there are several writers.
    fn add_shared(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
        self.counts[Histogram::bucket(nanos)].fetch_add(1, Relaxed);
    }

    fn add_to(&self, histogram: &mut Histogram) {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        histogram.add((self.nanos.load(Relaxed), counts));
    }
}

/// What is measured of one processor.
pub(super) struct Measures {
    /// When the processor's present thread began to run, or the last one left; or 0.
    began: AtomicU64,
    runs: Gathered,
    /// From the next slot, from a queue, and stolen.
    waits: [Gathered; 3],
    /// Those of any worker of the runtime.
    holds: Gathered,
}

/// What is measured of all processors that this runtime has had.
fn of_runtime(runtime: usize) -> impl Iterator<Item = &'static Measures> {
    let all = all().filter(move |kept| kept.processor.runtime() == runtime);
    all.map(|kept| &kept.measures)
}

pub(super) fn add_times(metrics: &mut Metrics, runtime: usize) {
    let waits = &mut metrics.queue_wait;
    for measures in of_runtime(runtime) {
        let [next_slot, queue, stolen] = &measures.waits;
        next_slot.add_to(&mut waits.next_slot);
        queue.add_to(&mut waits.queue);
        stolen.add_to(&mut waits.stolen);
        measures.runs.add_to(&mut metrics.run_time);
        measures.holds.add_to(&mut metrics.blocked_time);
    }
    for part in [&waits.next_slot, &waits.queue, &waits.stolen] {
        metrics.scheduling_latency.merge(part);
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

/// `thread` is about to be ready.
pub(super) fn readied(thread: ThreadInEvent<'_>) {
    thread.words()[1].store(ticks(), Relaxed);
}

pub(super) fn picked(processor: &OwnedProcessor<'_>, thread: ThreadInEvent<'_>, from: Pick) {
    let Some(Kept { measures, .. }) = Kept::of(processor) else {
        return;
    };
    let has_rested = matches!(from, Pick::Found | Pick::Stolen);
    if has_rested || measures.began.load(Relaxed) < SINCE.load(Relaxed) {
        measures.began.store(ticks(), Relaxed);
    }
    let [_, word] = thread.words();
    let ready_at = word.load(Relaxed);
    word.store(0, Relaxed);
    let from = match from {
        Pick::NextSlot => 0,
        Pick::Queue | Pick::Found => 1,
        Pick::Stolen => 2,
    };
    if let Some(wait) = elapsed(ready_at, measures.began.load(Relaxed)) {
        measures.waits[from].add(wait);
    }
}

pub(super) fn stopped(on: Option<&OwnedProcessor<'_>>, thread: ThreadInEvent<'_>, action: Action) {
    let now = ticks();
    match on {
        Some(processor) => run_ends(processor, now, now),
        None => came_back(thread.worker(), thread.runtime(), now),
    }
    if let Action::Yield | Action::Preempt = action {
        thread.words()[1].store(now, Relaxed);
    }
}

/// The run on `processor` is over; the next one began at `next`.
fn run_ends(processor: &OwnedProcessor<'_>, now: u64, next: u64) {
    if let Some(Kept { measures, .. }) = Kept::of(processor) {
        let began = measures.began.load(Relaxed);
        measures.began.store(next, Relaxed);
        if let Some(run) = elapsed(began, now) {
            measures.runs.add(run);
        }
    }
}

/// The monitor is about to take the processor of the worker with these words.
pub(super) fn blocks([since, place]: ObserverWords, how: Lost) {
    let seen = match how {
        Lost::Blocked(Some(at)) => from_ref(at).expose_provenance() as u64,
        Lost::Blocked(None) => SOMEWHERE,
        Lost::Computing => COMPUTES,
    };
    place.store(seen, Relaxed);
    since.store(ticks(), Relaxed);
}

/// The monitor has taken the processor, or has not.
pub(super) fn blocked(processor: Option<&OwnedProcessor<'_>>, [since, _]: ObserverWords) {
    match processor {
        Some(processor) => run_ends(processor, ticks(), 0),
        None => since.store(0, Relaxed),
    }
}

/// A worker, whose thread runs without a processor, gets this one.
pub(super) fn resumed(processor: &OwnedProcessor<'_>, worker: ObserverWords) {
    let now = ticks();
    came_back(worker, processor.runtime(), now);
    if let Some(kept) = Kept::of(processor) {
        kept.measures.began.store(now, Relaxed);
    }
}

/// The thread of the worker with these words has come back to the runtime, which has taken its processor.
fn came_back([since, place]: ObserverWords, runtime: usize, now: u64) {
    let held = elapsed(since.swap(0, Relaxed), now);
    if let (Some(held), place @ SOMEWHERE..) = (held, place.load(Relaxed)) {
        let held = nanos(held);
        if let Some(measures) = of_runtime(runtime).next() {
            measures.holds.add_shared(held);
        }
        if place != SOMEWHERE {
            let place = ptr::with_exposed_provenance::<BlockedSite>(place as usize);
            // SAFETY: `blocks` alone writes the word, and this is the address of a static place.
            unsafe { &*place }.nanos.add_shared(held);
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
#[inline(never)]
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
