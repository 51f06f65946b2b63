//! The observer: for whom it listens to the scheduler (`engine::probe`). The probe's word has a bit for each of them, and
//! every function of the table passes its event on to those whose bit is set.
//!
//! | who | what for |
//! |---|---|
//! | [`MEASURE`] | histograms (`measure`) |
//! | [`TRACE`] | the trace that is being written (`trace::ring`, `trace::record`) |
//! | [`EVENTS`] | subscribers of the crate tracing (`events`, which looks at the bit by itself) |

use super::events::{self, ENDED, SPAWNED};
use super::trace::record;
#[cfg(green)]
use super::{measure, trace::ring};
use crate::engine::probe::{self, Kernel, Observer};
#[cfg(green)]
use crate::engine::probe::{Action, Lost, OfThreads};

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
            if listens(MEASURE) {
                measure::readied(thread);
            }
            if listens(TRACE) {
                ring::spawned(by, thread);
            }
        },
        ended: |thread| events::of_thread(ENDED, thread.identity()),
        readied: |by, thread, why| {
            if listens(MEASURE) {
                measure::readied(thread);
            }
            if listens(TRACE) {
                ring::readied(by, thread, why);
            }
        },
        picked: |processor, thread, from| {
            if listens(TRACE) {
                ring::picked(&processor, thread, from);
            }
            if listens(MEASURE) {
                measure::picked(&processor, thread, from);
            }
        },
        stopped: |processor, thread, action| {
            if listens(MEASURE) {
                measure::stopped(processor.as_ref(), thread, action);
            }
            if listens(EVENTS)
                && let Action::Preempt = action
            {
                events::of_thread(events::PREEMPTED, thread.identity());
            }
            if listens(TRACE) {
                ring::stopped(processor.as_ref(), thread, action);
            }
        },
        blocks: |worker, how| {
            if listens(MEASURE) {
                measure::blocks(worker, how);
            }
        },
        blocked: |processor, worker, thread, how| {
            if listens(MEASURE) {
                measure::blocked(processor.as_ref(), worker);
            }
            let Some(processor) = processor else { return };
            if let Lost::Blocked(Some(place)) = how {
                events::blocked(place);
            }
            if listens(TRACE) {
                ring::blocked(&processor, thread);
            }
        },
        worker_has: |processor, worker, running| {
            if listens(MEASURE) && running.is_some() {
                measure::resumed(&processor, worker);
            }
            if listens(TRACE) {
                ring::worker_has(&processor, running);
            }
        },
        worker_idle: |processor| {
            if listens(TRACE) {
                ring::worker_idle(&processor);
            }
        },
    },
    kernel: |identity, what| {
        match what {
            Kernel::Spawned => events::of_thread(SPAWNED, identity),
            Kernel::Ended => events::of_thread(ENDED, identity),
            _ => {}
        }
        if listens(TRACE) {
            record::kernel(identity, what);
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
