//! Stands in for the library's `sched`: its protocol files.

#[path = "../../../src/sched/idle.rs"]
pub(crate) mod idle;
#[path = "../../../src/sched/ownership.rs"]
pub(crate) mod ownership;
#[path = "../../../src/sched/wake.rs"]
pub(crate) mod wake;

use crate::green::Green;

pub(crate) fn ready(green: &'static Green) {
    green.resume();
}
