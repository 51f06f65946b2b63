//! Threads as std has them, and the ways to wait that belong to no other program of tests: parking, scopes, sleeping,
//! thread-locals, panics, coroutines, dataflow, futures.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/dying.rs"]
mod dying;
#[path = "../support/safe.rs"]
mod safe;
#[path = "../support/mod.rs"]
mod support;

mod blocking;
mod coroutine;
mod coroutine_threads;
mod cpu_time;
mod dataflow;
mod drop_in;
mod foreign;
mod future;
mod join_limits;
mod locals;
mod panics;
mod park;
mod registers;
mod safe_api;
mod safe_policy;
mod safe_traits;
mod scope;
mod start;
mod std_paths;
mod thread;
mod time;
mod timers;
