//! Stands in for the timers of the library's `events`: nobody waits for a time, and everybody looks. The deadlines lie
//! on lines that nobody writes, so a look at all of them is charged as so many hits, at once.

use core::any::Any;
use std::sync::OnceLock;

use crate::engine::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::engine::policy::{Readied, Ready};
use crate::engine::probe::{self, By, ReadyReason};
pub(crate) use crate::engine::sched::tuning::BATCH;
use crate::engine::sched::tuning::{APART, HELP_AFTER, LATE, LENT, LONGEST_TICK, SPIN};
use crate::engine::sched::{Cluster, Fifo, Owned, RunLoop, ready_globally};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{kernel_thread, perturb};
use crate::virtual_time;

/// What a look at one processor's deadline loads: the table's length and its segment, and the deadline.
const LOADS: usize = 3;

/// Nothing is held back.
pub(super) struct Looks {
    pub(super) next: u64,
    pub(super) flush: u64,
}

pub(super) fn fire_own_timers(_: &mut Owned<'_>) {
    virtual_time::hits(LOADS);
}

/// Fires the timers that are due at all processors.
pub(super) fn fire_all_timers(processor: &mut Owned<'_>) {
    earliest_deadline(processor.cluster());
}

pub(crate) fn is_any_timer_due(cluster: &Cluster) -> bool {
    earliest_deadline(cluster) != NEVER
}

pub(crate) fn earliest_deadline(cluster: &Cluster) -> u64 {
    virtual_time::hits(LOADS * cluster.active());
    NEVER
}

include!(concat!(env!("OUT_DIR"), "/events.rs"));
