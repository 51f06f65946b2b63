//! Stands in for the library's `current`: nobody preempts a virtual processor.

use crate::sched::Green;

pub(crate) struct PreemptionOff(());

pub(crate) fn preemption_off() -> PreemptionOff {
    PreemptionOff(())
}

pub(crate) fn preemption_off_by_user() -> PreemptionOff {
    PreemptionOff(())
}

/// Policies do not ask; threads that set their own priority do, and here none does.
pub(crate) fn green() -> Option<&'static Green> {
    None
}
