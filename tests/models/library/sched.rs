//! Stands in for the library's `sched`: its protocol files.

#[path = "../../../src/engine/sched/idle.rs"]
pub(crate) mod idle;
#[path = "../../../src/engine/sched/ownership.rs"]
pub(crate) mod ownership;
#[path = "../../../src/engine/sched/wake.rs"]
pub(crate) mod wake;

use crate::engine::green::Green;

pub(crate) fn ready(green: &'static Green) {
    green.resume();
}
