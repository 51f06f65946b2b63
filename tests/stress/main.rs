//! Everything at once, under preemption, for a second each; the variables `GT_STRESS_SECS` and `GT_TORTURE_SECS` make it
//! longer.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../support/mod.rs"]
mod support;

mod channel;
mod coroutine;
mod gates;
mod mpsc;
mod select;
mod stress;
mod sync;
mod torture;
