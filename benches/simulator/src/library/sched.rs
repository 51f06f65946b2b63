//! Stands in for the library's `sched`: the scheduler around a policy. The idle word, the idlers, their
//! lists, the wake words, the ownership of processors, the turn at events and the census are the
//! library's own sources; what they act on is here.
//!
//! | file | stands in for |
//! |---|---|
//! | `cluster`, `machine`, `processor` | the records of those names, with the fields that the sources use |
//! | `run` | the run loop and the search for work: `sched/mod.rs`, step by step |
//! | `start` | a thread's first time and its last |
//!
//! Virtual processor `i` of `virtual_time` is the CPU of machine `i`. A machine that lies down gives its
//! processor away, and may get another one, as in the library.
//!
//! What shares a cache line here shares it in the library, as far as it matters: the compiler's layout
//! of the records was printed (`-Zprint-type-sizes`) and is rebuilt by `repr(C)`.

#[path = "../../../../src/engine/sched/census.rs"]
mod census;
#[path = "../../../../src/engine/sched/events.rs"]
pub(crate) mod events;
#[path = "../../../../src/engine/sched/idle.rs"]
mod idle;
#[path = "../../../../src/engine/sched/idlers.rs"]
mod idlers;
#[path = "../../../../src/engine/sched/io.rs"]
pub(crate) mod io;
#[path = "../../../../src/engine/sched/lifo.rs"]
mod lifo;
#[path = "../../../../src/engine/sched/owned.rs"]
mod owned;
#[path = "../../../../src/engine/sched/ownership.rs"]
mod ownership;
#[path = "../../../../src/engine/sched/tuning.rs"]
#[allow(dead_code)] // the monitor's
mod tuning;
#[path = "../../../../src/engine/sched/wake.rs"]
mod wake;
#[path = "../../../../src/engine/sched/watched.rs"]
mod watched;

#[path = "sched/cluster.rs"]
mod cluster;
#[path = "sched/machine.rs"]
mod machine;
#[path = "sched/processor.rs"]
mod processor;
#[path = "sched/run.rs"]
mod run;
#[path = "sched/start.rs"]
pub(crate) mod start;
#[path = "sched/timers.rs"]
mod timers;

pub(crate) use self::census::Counter;
pub(crate) use self::cluster::Cluster;
pub(crate) use self::machine::Machine;
pub(crate) use self::owned::{Owned, RunLoop};
pub(crate) use self::processor::Processor;
pub use self::run::Action;
use self::run::stop_searching;
pub(crate) use self::run::{Program, enter, ready_from, ready_globally, run, wake_up};
