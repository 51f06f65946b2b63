//! Stands in for `current`: nobody is green, and nobody is preempted by us.

use core::marker::PhantomData;

use super::Green;

/// It stays with its thread, as the real one.
pub(crate) struct PreemptionOff(PhantomData<*mut ()>);

pub(crate) fn preemption_off() -> PreemptionOff {
    PreemptionOff(PhantomData)
}

/// Whoever has a `Lock` of a policy, which nobody asks here.
pub(crate) fn preemption_off_by_user() -> PreemptionOff {
    PreemptionOff(PhantomData)
}

pub(crate) fn is_preemption_off() -> bool {
    false
}

pub(crate) fn green() -> Option<&'static Green> {
    None
}
