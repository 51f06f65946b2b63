//! The observer: for whom it listens to the scheduler (`engine::probe`). The probe's word has a bit for each of them, and
//! every function of the table passes its event on to those whose bit is set.
//!
//! | who | what for |
//! |---|---|
//! | [`MEASURE`] | histograms (`measure`) |
//! | [`TRACE`] | the trace that is being written (`trace::ring`, `trace::record`) |
//! | [`EVENTS`] | subscribers of the crate tracing (`events`, which looks at the bit by itself) |
//!
//! What must not be done where an event happens is left in a [`Queue`], into which any number of threads put, and from
//! which one takes. A writer takes a place by moving `head`, fills the place, and writes its first word last. The reader
//! takes places in turn, up to one whose first word is still 0, and clears them. If no place is free, the event is lost,
//! and counted. Nobody waits for anybody: a writer that the system does not run holds up the reader's progress, and
//! nothing else.
//!
//! # Memory orderings
//! - an event → the reader: Release of the first word in `put`, Acquire in `take`.
//! - a free place → the writer: Release of `tail` in `take`, Acquire in `put`.

use super::events::{self, ENDED, SPAWNED};
use super::trace::record;
#[cfg(green)]
use super::{measure, trace::ring};
use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::probe::{self, Kernel, Observer};
#[cfg(green)]
use crate::engine::probe::{Action, Lost, OfThreads};
use crate::sys::shared::Zeros;

/// The probe tells the picks of every switch only if this bit is set.
pub(super) const MEASURE: u32 = probe::PICKS;
pub(super) const TRACE: u32 = 2;
/// No bit where nobody can subscribe.
pub(super) const EVENTS: u32 = if cfg!(feature = "tracing") { 4 } else { 0 };

static OBSERVER: Observer = Observer {
    #[cfg(green)]
    threads: OfThreads {
        spawned: |by, thread| {
            events::of_thread(SPAWNED, thread.identity());
            tell(MEASURE, || measure::readied(thread));
            tell(TRACE, || ring::spawned(by, thread));
        },
        ended: |thread| events::of_thread(ENDED, thread.identity()),
        readied: |by, thread, why| {
            tell(MEASURE, || measure::readied(thread));
            tell(TRACE, || ring::readied(by, thread, why));
        },
        picked: |processor, thread, from| {
            tell(TRACE, || ring::picked(&processor, thread, from));
            tell(MEASURE, || measure::picked(&processor, thread, from));
        },
        stopped: |processor, thread, action| {
            let on = processor.as_ref();
            tell(MEASURE, || measure::stopped(on, thread, action));
            if let Action::Preempt = action {
                events::of_thread(events::PREEMPTED, thread.identity());
            }
            tell(TRACE, || ring::stopped(on, thread, action));
        },
        blocks: |worker, how| tell(MEASURE, || measure::blocks(worker, how)),
        blocked: |processor, worker, thread, how| {
            tell(MEASURE, || measure::blocked(processor.as_ref(), worker));
            let Some(processor) = processor else { return };
            if let Lost::Blocked(Some(place)) = how {
                events::blocked(place);
            }
            tell(TRACE, || ring::blocked(&processor, thread));
        },
        worker_has: |processor, worker, running| {
            if running.is_some() {
                tell(MEASURE, || measure::resumed(&processor, worker));
            }
            tell(TRACE, || ring::worker_has(&processor, running));
        },
        worker_idle: |processor| tell(TRACE, || ring::worker_idle(&processor)),
    },
    kernel: |identity, what| {
        match what {
            Kernel::Spawned => events::of_thread(SPAWNED, identity),
            Kernel::Ended => events::of_thread(ENDED, identity),
            _ => {}
        }
        tell(TRACE, || record::kernel(identity, what));
    },
};

/// Whether these listen.
#[inline]
pub(super) fn listens(who: u32) -> bool {
    probe::word() & who != 0
}

/// Tells these of an event, if they listen.
#[inline(always)]
fn tell(who: u32, event: impl FnOnce()) {
    if listens(who) {
        event();
    }
}

/// From now on these listen, or listen no more.
pub(super) fn listen(who: u32, on: bool) {
    probe::observe(&OBSERVER, |word| if on { word | who } else { word & !who });
}

/// A queue with so many places, for events of so many words.
pub(super) struct Queue<const PLACES: usize, const WORDS: usize> {
    place: Zeros<[AtomicU64; WORDS], PLACES>,
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
}

impl<const PLACES: usize, const WORDS: usize> Queue<PLACES, WORDS> {
    pub(super) const fn new() -> Self {
        Queue {
            place: Zeros::new(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Puts an event, whose first word is not 0.
    pub(super) fn put(&self, event: [u64; WORDS]) {
        let claimed = self.head.fetch_update(Relaxed, Relaxed, |head| {
            // Acquire: the place is free; partner: Release in `take`.
            // The reader may have gone on since `head` was read: then the difference is negative.
            let used = head.wrapping_sub(self.tail.load(Acquire)) as i64;
            (used < PLACES as i64).then_some(head + 1)
        });
        let Ok(head) = claimed else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let place = &self.place[(head % PLACES as u64) as usize];
        for (word, value) in place.iter().zip(event).skip(1) {
            word.store(value, Relaxed);
        }
        // Release: the event; partner: Acquire in `take`.
        place[0].store(event[0], Release);
    }

    /// Takes the oldest event. One thread at a time takes.
    pub(super) fn take(&self) -> Option<[u64; WORDS]> {
        let tail = self.tail.load(Relaxed);
        let place = &self.place[(tail % PLACES as u64) as usize];
        // Acquire: partner: Release in `put`.
        let first = place[0].load(Acquire);
        if first == 0 {
            return None;
        }
        let event = place.each_ref().map(|word| word.load(Relaxed));
        place[0].store(0, Relaxed);
        // Release: the place is free; partner: Acquire in `put`.
        self.tail.store(tail + 1, Release);
        Some(event)
    }

    /// How many events were lost since this was last asked.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}
