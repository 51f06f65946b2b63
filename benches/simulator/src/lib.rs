//! A simulator for machines that we do not have: greenthread's policies, unchanged, on 1 to 1,024
//! virtual processors.
//!
//! | file | what it is |
//! |---|---|
//! | `virtual_time` | virtual time: a processor is a coroutine, an atomic operation an event |
//! | `cost` | what operations cost, as measured, and when |
//! | `library/` | what the library's sources find where the library's modules would be |
//! | `deque` | crossbeam's deque, as far as local queues use it |
//! | `machine` | the scheduler around a policy: the run loop, searching, sleeping, waking |
//! | `workload` | what the threads do |
//! | `contenders` | the policies: a line each |
//! | `plot` | the picture |
//!
//! Compiled from the library's own sources, and not from copies: all of `src/engine/policy`, the lock and
//! the table that policies build on, and the idle word. `machine` is written anew, after
//! `src/engine/sched/mod.rs`, and says what it leaves out.
//!
//! `cargo run --release` prints the table and draws the picture; `cargo run --release --bin fit`
//! measures the costs; `docs/scaling.md` says what came of it.

// The library's public items are nobody's here, and not all of them are needed.
#![allow(dead_code, unused_imports, unreachable_pub)]

// The local queue names its deque by the crate's name.
extern crate self as crossbeam_deque;
pub use deque::{Steal, Stealer, Worker};

#[path = "library/engine.rs"]
mod engine;
pub use engine::policy;
use engine::{arch, atomic, green, sys};

mod deque;

pub mod contenders;
pub mod cost;
pub mod machine;
pub mod plot;

pub mod virtual_time;
pub mod workload;
