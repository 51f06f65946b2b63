//! The policies: a line each.

use crate::policy::{GlobalQueue, LeastLoaded, Policy, Priorities, RelaxedFifo, WorkStealing};

pub struct Contender {
    pub name: &'static str,
    pub make: fn() -> Box<dyn Policy>,
}

macro_rules! contenders {
    ($($name:literal: $policy:expr;)*) => {
        /// Work stealing first: others are compared with it.
        pub const ALL: &[Contender] = &[$(Contender { name: $name, make: || Box::new($policy) }),*];
    };
}

contenders! {
    "work stealing": WorkStealing::new();
    "global queue": GlobalQueue::new();
    "relaxed FIFO": RelaxedFifo::new();
    "least loaded": LeastLoaded::new();
    "priorities": Priorities::new();
}
