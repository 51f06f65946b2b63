//! Stands in for the library's `engine::facade`.

pub(crate) use crate::engine::sched::current::{PreemptionOff, preemption_off};

/// No report asks who holds a lock.
pub(crate) fn mark() -> usize {
    0
}
