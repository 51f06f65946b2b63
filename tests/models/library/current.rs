//! Stands in for the library's `current`: here only the checker preempts, and nobody takes a
//! processor away.

use std::cell::Cell;

use crate::engine::context::Action;
use crate::engine::green::Green;

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

pub(crate) struct Entered(&'static Green);

pub(crate) fn enter() -> Option<Entered> {
    CURRENT.with(Cell::get).map(Entered)
}

impl Entered {
    pub(crate) fn green(&self) -> &'static Green {
        self.0
    }

    pub(crate) fn suspend(self, action: Action) {
        self.0.leave_stack();
        // This is the run loop now.
        match action {
            // SAFETY: it lives until its thread goes on, which nobody can make it do yet.
            Action::Park(waiter) => match unsafe { (*waiter).commit() } {
                true => {}
                false => self.0.resume(),
            },
            Action::HandOver => {
                if let Some(next) = self.0.next.take() {
                    next.resume();
                }
            }
        }
        self.0.until_resumed();
    }
}
