//! Stands in for the library's `sched`: its protocol files.

#[path = "../../../src/engine/sched/idle.rs"]
pub(crate) mod idle;
#[path = "../../../src/engine/sched/ownership.rs"]
pub(crate) mod ownership;
#[path = "../../../src/engine/sched/wake.rs"]
pub(crate) mod wake;

use crate::engine::context::Action;
use crate::engine::green::Green;

pub(crate) fn ready(green: &'static Green) {
    green.resume();
}

pub(crate) struct Entered(&'static Green);

pub(crate) fn enter() -> Option<Entered> {
    crate::engine::green::current::green().map(Entered)
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
