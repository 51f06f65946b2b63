//! Stands in for the library's `sched`: its protocol files.

#[path = "../../../src/sched/idle.rs"]
pub(crate) mod idle;
#[path = "../../../src/sched/ownership.rs"]
pub(crate) mod ownership;
