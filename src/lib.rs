#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! | first | `src/sched/mod.rs` | the run loop: find work, switch, do what was asked for |
//! |---|---|---|
//! | then | `src/sched/switch.rs`, `src/context.rs` | to a green thread and back |
//! | | `src/wait/mod.rs` | how a thread waits, and who wakes it |
//! | | `src/current.rs` | who am I, and the way into the runtime |
//! | | `src/sched/sysmon.rs`, `src/sched/preempt.rs` | ending a time slice from outside |
//! | | `src/tls/` | a thread-local block for each green thread |
//!
//! Imports go downward: `thread` and `runtime` → `sched` → `policy`, `wait` → `current`, `green`,
//! `context` → `stack`,
//! `tls` → `sys` → `arch`. The types of `sched` that a green thread's record points to are the one
//! exception.
//!
//! # Where unsafe lives
//!
//! In `arch`, `sys`, `stack`, `tls`, `context`, `green`, `current`, and in `sched` and `policy`
//! where a record is reached through a pointer. Each block argues.

#![warn(unreachable_pub)]

#[path = "../arch/mod.rs"]
mod arch;
mod atomic;
mod context;
mod current;
mod driver;
mod green;
mod policy;
pub mod runtime;
mod sched;
mod stack;
mod sys;
mod thread;
mod tls;
mod wait;

pub use crate::thread::{
    Builder, JoinHandle, KernelThreadLock, Result, Scope, ScopedJoinHandle, Thread, ThreadId,
    available_parallelism, blocking, current, lock_kernel_thread, panicking, park, park_timeout,
    scope, sleep, sleep_until, spawn, yield_now,
};

/// For tests: whether the code that asks runs with preemption off, where it must not allocate.
#[doc(hidden)]
pub fn __preemption_is_off() -> bool {
    crate::current::is_preemption_off()
}
