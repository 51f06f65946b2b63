//! Who runs when: policies, fairness beside threads that compute, more and fewer processors, too few kernel threads.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod hogs;
mod liveness;
mod policy;
mod policy_given;
mod resize;
mod thread_limit;
