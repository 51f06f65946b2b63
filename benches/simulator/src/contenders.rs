//! The policies: a line each.

use crate::policy::{GlobalQueue, Policy, WorkStealing};

pub struct Contender {
    pub name: &'static str,
    pub make: fn() -> Box<dyn Policy>,
}

/// Work stealing first: others are compared with it.
pub const ALL: &[Contender] = &[
    Contender {
        name: "work stealing",
        make: || Box::new(WorkStealing::new()),
    },
    Contender {
        name: "global queue",
        make: || Box::new(GlobalQueue::new()),
    },
];
