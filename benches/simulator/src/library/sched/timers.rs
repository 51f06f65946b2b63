//! Stands in for the library's `timers`: nobody waits for a time, and everybody looks. The deadlines lie
//! on lines that nobody writes, so a look at all of them is charged as so many hits, at once.

use crate::engine::sched::{Cluster, Owned};
use crate::engine::sys::clock::NEVER;
use crate::virtual_time;

/// What a look at one processor's deadline loads: the table's length and its segment, and the deadline.
const LOADS: usize = 3;

/// Nothing is held back.
pub(super) struct Looks {
    pub(super) flush: u64,
}

impl Looks {
    pub(super) fn flush_by(&mut self, _: u64) {}
}

pub(super) fn fire_own(_: &mut Owned<'_>) {
    virtual_time::hits(LOADS);
}

/// Fires the timers that are due at all processors.
pub(super) fn fire_all(processor: &mut Owned<'_>) {
    earliest(processor.cluster());
}

pub(crate) fn any_due(cluster: &Cluster) -> bool {
    earliest(cluster) != NEVER
}

pub(crate) fn earliest(cluster: &Cluster) -> u64 {
    virtual_time::hits(LOADS * cluster.active());
    NEVER
}
