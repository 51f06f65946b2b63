//! Stands in for the library's `engine::door`.
#![allow(unused_imports)]

pub(crate) use super::atomic;
pub(crate) use super::green::current::{PreemptionOff, preemption_off};
pub(crate) use super::sys::{clock, die, lock, perturb};
pub(crate) use super::wait::{Waiter, claim, dependents, list, queue, turns};
