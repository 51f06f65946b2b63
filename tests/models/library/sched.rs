//! Stands in for the library's `sched`: its protocol files.

#[path = "../../../src/sched/idle.rs"]
pub(crate) mod idle;
#[path = "../../../src/sched/ownership.rs"]
pub(crate) mod ownership;

/// In the models only kernel threads wait.
pub(crate) enum Green {}

pub(crate) fn ready(green: Green) {
    match green {}
}
