//! The observer: for whom it listens to the scheduler (`engine::probe`). The probe's word has a bit for each of them, and
//! every function of the table passes its event on to those whose bit is set.
//!
//! | who | what for |
//! |---|---|
//! | [`MEASURE`] | histograms (`measure::gather`) |
//! | [`TRACE`] | the trace that is being written (`trace::write`) |
//! | [`EVENTS`] | subscribers of the crate tracing (`events`) |

#[cfg(feature = "tracing")]
use super::events;
#[cfg(green)]
use super::measure::gather;
use super::trace;
#[cfg(green)]
use super::trace::write;
#[cfg(green)]
use crate::engine::probe::OfThreads;
use crate::engine::probe::{self, Observer};
#[cfg(all(green, feature = "tracing"))]
use crate::engine::probe::{Lost, Stop};

/// Picks of every switch are told to it alone.
pub(super) const MEASURE: u32 = probe::PICKS;
pub(super) const TRACE: u32 = 2;
#[cfg(feature = "tracing")]
pub(super) const EVENTS: u32 = 4;

static OBSERVER: Observer = Observer {
    #[cfg(green)]
    threads: OfThreads {
        spawned: |by, thread| {
            #[cfg(feature = "tracing")]
            if listens(EVENTS) {
                events::spawned(thread.identity());
            }
            if listens(MEASURE) {
                gather::readied(thread);
            }
            if listens(TRACE) {
                write::spawned(by, thread);
            }
        },
        ended: |_thread| {
            #[cfg(feature = "tracing")]
            if listens(EVENTS) {
                events::ended(_thread.identity());
            }
        },
        readied: |by, thread, why| {
            if listens(MEASURE) {
                gather::readied(thread);
            }
            if listens(TRACE) {
                write::readied(by, thread, why);
            }
        },
        picked: |mut processor, thread, from| {
            if listens(TRACE) {
                write::picked(&mut processor, thread, from);
            }
            if listens(MEASURE) {
                gather::picked(&mut processor, thread, from);
            }
        },
        stopped: |mut processor, stopped| {
            if listens(MEASURE) {
                gather::stopped(processor.as_mut(), stopped);
            }
            #[cfg(feature = "tracing")]
            if listens(EVENTS)
                && let Stop::Preempted = stopped.why()
            {
                events::preempted(stopped.thread().identity());
            }
            if listens(TRACE) {
                write::stopped(processor, stopped);
            }
        },
        blocks: |worker, how| {
            if listens(MEASURE) {
                gather::blocks(worker, how);
            }
        },
        blocked: |mut processor, worker, words, _how| {
            if listens(MEASURE) {
                gather::blocked(processor.as_mut(), worker);
            }
            if let Some(processor) = &mut processor {
                #[cfg(feature = "tracing")]
                if listens(EVENTS)
                    && let Lost::Blocked(Some(place)) = _how
                {
                    events::blocked(place);
                }
                if listens(TRACE) {
                    write::blocked(processor, words);
                }
            }
        },
        worker_has: |mut processor, worker, running| {
            if listens(MEASURE) && running.is_some() {
                gather::resumed(&mut processor, worker);
            }
            if listens(TRACE) {
                write::worker_has(&mut processor, running);
            }
        },
        worker_idle: |mut processor| {
            if listens(TRACE) {
                write::worker_idle(&mut processor);
            }
        },
    },
    kernel: |identity, what| {
        #[cfg(feature = "tracing")]
        if listens(EVENTS) {
            match what {
                probe::Kernel::Spawned => events::spawned(identity),
                probe::Kernel::Ended => events::ended(identity),
                _ => {}
            }
        }
        if listens(TRACE) {
            trace::common::kernel(identity, what);
        }
    },
};

/// Whether these listen.
#[inline]
pub(super) fn listens(who: u32) -> bool {
    probe::word() & who != 0
}

/// From now on these listen.
pub(super) fn add(who: u32) {
    probe::observe(&OBSERVER, |word| word | who);
}

/// These listen no more.
pub(super) fn remove(who: u32) {
    probe::observe(&OBSERVER, |word| word & !who);
}
