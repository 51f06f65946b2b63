//! A simulator for machines that we do not have: greenthread's policies, unchanged, on 1 to 1,024
//! virtual processors.
//!
//! | file | what it is |
//! |---|---|
//! | `virtual_time` | virtual time: a processor is a coroutine, an atomic operation an event |
//! | `cost` | what operations cost, as measured, and when |
//! | `library/` | what the library's sources find where the library's modules would be |
//! | `machine` | a simulation: the library's scheduler, on virtual processors, runs a workload |
//! | `workload` | what the threads do |
//! | `contenders` | the policies: a line each |
//! | `suite` | what is simulated, and on which machines |
//! | `document`, `plot` | the tables of `docs/scaling.md`, and its picture |
//!
//! Compiled from the library's own sources, and not from copies: all of `src/engine/policy`, the lock and
//! the table that policies build on; and of `src/engine/sched` how processors rest and are woken, and who
//! owns them. `library/sched/run.rs` (the run loop and the search for work) and `library/sched/start.rs`
//! (records and rooms) are written anew, after the library's, and say what they leave out.
//!
//! `cargo run --release` prints the table and draws the picture; `cargo run --release --bin fit`
//! measures the costs; `docs/scaling.md` says what came of it.

// The library's public items are nobody's here, and not all of them are needed.
#![allow(dead_code, unused_imports, unreachable_pub)]

/// As in the library: implements `Debug` for types that show nothing of their contents.
macro_rules! without_details {
    ($([$($T:ident),*] $Type:ty, $name:literal;)*) => {$(
        impl<$($T),*> core::fmt::Debug for $Type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    )*};
}

/// As in the library: implements `Default` by `new`.
macro_rules! defaults {
    ($($Type:ident)*) => {$(
        impl Default for $Type {
            fn default() -> $Type {
                $Type::new()
            }
        }
    )*};
}

#[path = "library/engine.rs"]
mod engine;
pub use engine::policy;
use engine::{arch, atomic, sched, sys};

pub mod contenders;
pub mod cost;
pub mod document;
pub mod machine;
pub mod plot;
pub mod suite;

pub mod virtual_time;
pub mod workload;
