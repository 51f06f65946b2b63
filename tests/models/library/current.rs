//! Stands in for the library's `current`: here only the checker preempts, and nobody takes a
//! processor away.

use std::{cell::Cell, sync::atomic::AtomicBool};

use crate::engine::sched::Green;

mod part {
    include!(concat!(env!("OUT_DIR"), "/parts/current.rs"));
}
pub(crate) use self::part::{Hiding, VFORK};

/// No signal comes.
pub(crate) static HANDLERS_EXIST: AtomicBool = AtomicBool::new(false);

/// Nobody counts calls.
pub(crate) fn count_parked() {}

pub(crate) struct PreemptionOff(());

pub(crate) fn preemption_off() -> PreemptionOff {
    PreemptionOff(())
}

loom::thread_local! {
    static CURRENT: Cell<Option<&'static Green>> = Cell::new(None);
}

pub(crate) fn begin(green: &'static Green) {
    CURRENT.with(|current| current.set(Some(green)));
}

pub(crate) fn green() -> Option<&'static Green> {
    CURRENT.with(Cell::get)
}

loom::thread_local! {
    static HIDDEN: Cell<bool> = Cell::new(false);
}

/// A signal handler does this.
pub(crate) fn in_handler(work: impl FnOnce()) {
    HIDDEN.with(|hidden| hidden.set(true));
    work();
    HIDDEN.with(|hidden| hidden.set(false));
}

pub(crate) fn is_hidden() -> bool {
    HIDDEN.with(Cell::get)
}

/// Nobody forks.
pub(crate) fn is_forked_child() -> bool {
    false
}
