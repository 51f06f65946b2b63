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
//! | | `src/driver/source.rs`, `src/sched/io.rs` | waiting for a descriptor, and who hears of it |
//! | | `src/tls/` | a thread-local block for each green thread |
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

#[cfg(green)]
#[allow(unsafe_code, reason = "registers and assembly")]
#[path = "../arch/mod.rs"]
mod arch;
mod atomic;
#[allow(unsafe_code, reason = "messages behind locks and on stacks")]
pub mod channel;
#[cfg(green)]
#[allow(unsafe_code, reason = "stacks that change hands")]
mod context;
#[allow(unsafe_code, reason = "values that change hands")]
pub mod coroutine;
#[cfg(green)]
#[allow(unsafe_code, reason = "records that change hands")]
mod current;
#[allow(unsafe_code, reason = "closures that wait, a stack in one word")]
pub mod dataflow;
#[cfg(green)]
#[allow(unsafe_code, reason = "intrusive timers, system calls")]
mod driver;
#[cfg(green)]
#[allow(unsafe_code, reason = "descriptors")]
pub mod fs;
pub mod future;
#[cfg(green)]
#[allow(unsafe_code, reason = "records, and the stacks that they get")]
mod green;
#[cfg(green)]
#[allow(unsafe_code, reason = "descriptors")]
pub mod io;
#[cfg(green)]
#[allow(unsafe_code, reason = "descriptors and messages")]
pub mod net;
#[cfg(green)]
pub mod os;
#[allow(unsafe_code, reason = "queues of records")]
pub mod policy;
#[cfg(green)]
#[allow(unsafe_code, reason = "descriptors")]
pub mod process;
pub mod runtime;
#[cfg(green)]
#[allow(unsafe_code, reason = "records that change hands, signals")]
mod sched;
#[cfg(green)]
#[allow(unsafe_code, reason = "signal handlers")]
pub mod signal;
#[cfg(green)]
#[allow(unsafe_code, reason = "memory for stacks")]
mod stack;
#[allow(unsafe_code, reason = "data behind locks")]
pub mod sync;
#[cfg(green)]
#[allow(unsafe_code, reason = "system calls")]
mod sys;
#[allow(unsafe_code, reason = "closures and results that cross stacks")]
pub mod thread;
pub mod time;
#[cfg(green)]
#[allow(unsafe_code, reason = "libc's control blocks")]
mod tls;
#[allow(unsafe_code, reason = "a parked thread's record, nodes on stacks")]
mod wait;

// Everything but Linux on x86-64: kernel threads, by way of std alone.
#[cfg(not(green))]
#[allow(unsafe_code, reason = "a record that there is none of")]
mod elsewhere;
#[cfg(not(green))]
pub use std::{fs, io, net, os, process};

#[cfg(not(green))]
pub use self::elsewhere::signal;
#[cfg(not(green))]
use self::elsewhere::{arch, context, current, green, sched, stack, sys};

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
    crate::current::is_preemption_off()
}
