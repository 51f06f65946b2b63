#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! | first | `src/engine/sched/mod.rs` | the run loop: find work, switch, do what was asked for |
//! |---|---|---|
//! | then | `src/engine/sched/switch.rs`, `src/engine/context.rs` | to a green thread and back |
//! | | `src/engine/wait/mod.rs` | how a thread waits, and who wakes it |
//! | | `src/engine/sched/enter.rs` | the way into the runtime |
//! | | `src/engine/sched/sysmon.rs`, `src/engine/sched/preempt.rs` | ending a time slice from outside |
//! | | `src/engine/driver/source.rs`, `src/engine/sched/io.rs` | waiting for a descriptor, and who hears of it |
//! | | `src/engine/tls/` | a thread-local block for each green thread |
//!
//! Imports go downward: `net`, `fs`, `process`, `coroutine`, `thread` and `runtime` → `driver` → `sched` → `policy`,
//! `wait` → `current`, `green`, `context` → `stack`, `tls` → `sys` → `arch`. Two exceptions: the types of
//! `sched` that a green thread's record points to, and what `sched` asks of the drivers (timers, events).
//!
//! # Where unsafe lives
//!
//! The modules below that allow it say what for. Elsewhere it is denied. Each block argues.

#![warn(unreachable_pub)]
#![deny(unsafe_code)]
#![cfg_attr(
    not(green),
    allow(dead_code, reason = "what only green threads use stays where it is")
)]

pub mod channel;
pub mod coroutine;
pub mod dataflow;
mod engine;
#[cfg(green)]
pub mod fs;
pub mod future;
#[cfg(green)]
pub mod io;
#[cfg(green)]
pub mod net;
#[cfg(green)]
pub mod os;
pub use crate::engine::policy;
#[cfg(green)]
pub mod process;
pub mod runtime;
#[cfg(green)]
pub mod signal;
pub mod sync;
pub mod thread;
pub mod time;

#[cfg(not(green))]
pub use crate::engine::elsewhere::signal;
#[cfg(not(green))]
pub use std::{fs, io, net, os, process};

pub use crate::future::block_on;
#[doc(inline)]
pub use crate::thread::{
    AccessError, Builder, JoinHandle, KernelThreadLock, LocalKey, Result, Scope, ScopedJoinHandle,
    Thread, ThreadId, available_parallelism, blocking, current, lock_kernel_thread, panicking,
    park, park_timeout, park_until, scope, sleep, sleep_until, spawn, yield_now,
};
#[allow(deprecated)]
#[doc(inline)]
pub use crate::thread::{park_timeout_ms, sleep_ms};

/// For tests: whether the code that asks runs with preemption off, where it must not allocate.
#[doc(hidden)]
pub fn __preemption_is_off() -> bool {
    crate::engine::door::is_preemption_off()
}
