//! Stands in for the library's `probe`: nobody observes.

use crate::engine::green::Green;
use crate::engine::sched::{Machine, Owned};

#[allow(dead_code, reason = "the simulator has no deadlines of its own")]
pub(crate) enum Readied {
    Fired,
    Arrived,
}

pub(crate) struct Outside;

pub(crate) fn readied<A>(_: A, _: &'static Green, _: Readied) {}
pub(crate) fn worker_has(_: &mut Owned<'_>, _: &'static Machine) {}
pub(crate) fn worker_idle(_: &mut Owned<'_>) {}
