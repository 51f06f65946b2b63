//! Models of the library's protocols, checked exhaustively up to a stated bound.
//!
//! For each protocol file (the library's own source, compiled here with the model checker's
//! atomics):
//! - the *model* is a handful of threads that use it as the library does, and say what must hold;
//! - the *mutants* (listed in `build.rs`) are copies of the source, or of the model where an
//!   obligation lies with the protocol's user, with one thing weakened. Each must fail, in the way
//!   predicted: that shows that the model can see the error, and that the thing is needed.
//!
//! The bound is the number of preemptions (switches away from a thread that could go on) in one
//! execution; None is no bound. It stands beside each model; `MODEL_PREEMPTIONS=n` in the
//! environment sets it for all.
//!
//! What the checker does not see: its SeqCst fences also synchronise with each other, which the
//! memory model does not promise, and its failing compare-exchange always reads the newest value.
//! The compiler fence at an entry to the runtime and the monitor's `membarrier` are both modelled
//! as SeqCst fences (see `sched/ownership.rs`).
#![cfg(test)]
#![allow(dead_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

mod atomic;

mod ticket {
    pub(crate) mod model;
    #[path = "../../../src/wait/ticket.rs"]
    pub(crate) mod protocol;
}

mod ownership {
    pub(crate) mod model;
    #[path = "../../../src/sched/ownership.rs"]
    pub(crate) mod protocol;
}

mod idle {
    pub(crate) mod model;
    #[path = "../../../src/sched/idle.rs"]
    pub(crate) mod protocol;
}

/// Runs `model` in every interleaving with at most `bound` preemptions, or as many as the
/// environment says.
fn check(bound: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let asked = std::env::var("MODEL_PREEMPTIONS").ok();
    builder.preemption_bound = asked
        .map(|n| n.parse().expect("MODEL_PREEMPTIONS: a number"))
        .or(bound);
    builder.check(model);
}

/// Checks that `model` fails, and with a message that contains `how`.
fn must_fail(model: fn(), how: &str) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(model)) else {
        panic!("the weakened protocol passed");
    };
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("");
    assert!(message.contains(how), "failed in another way: {message}");
}

macro_rules! models {
    ($($protocol:ident: $($model:ident)*;)*) => {
        $($(#[test] fn $model() { $protocol::model::$model() })*)*
    };
}

models! {
    ticket: wait_for_two wait_with_timeout kernel_thread_waits;
    ownership: enter_twice surrender migrate_away migrate_and_return assigned;
    idle: one_readier two_readiers;
}

// The mutants, one module and one test each.
include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
