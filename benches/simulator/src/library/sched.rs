//! Stands in for the library's `sched`: the scheduler around a policy. The idle word, the idlers, their
//! lists, the wake words, the ownership of processors, the turn at events and the live_count are the
//! library's own sources; what they act on is here.
//!
//! | file | stands in for |
//! |---|---|
//! | `cluster`, `worker`, `processor` | the records of those names, with the fields that the sources use |
//! | `run` | the run loop and the search for work: `sched/run.rs`, step by step |
//! | `start` | a thread's first time and its last |
//!
//! Virtual processor `i` of `virtual_time` is the CPU of worker `i`. A worker that lies down gives its
//! processor away, and may get another one, as in the library.
//!
//! What shares a cache line here shares it in the library, as far as it matters: the compiler's layout
//! of the records was printed (`-Zprint-type-sizes`) and is rebuilt by `repr(C)`.

#[path = "../../../../src/engine/sched/idle.rs"]
mod idle;
#[path = "../../../../src/engine/sched/tuning.rs"]
#[allow(dead_code)] // the monitor's
mod tuning;

#[path = "sched/cluster.rs"]
mod cluster;
#[path = "sched/current.rs"]
pub(crate) mod current;
#[path = "sched/events.rs"]
pub(crate) mod events;
#[path = "sched/processor.rs"]
mod processor;
#[path = "sched/run.rs"]
mod run;
#[path = "sched/start.rs"]
pub(crate) mod start;
#[path = "sched/thread.rs"]
pub(crate) mod thread;
#[path = "sched/worker.rs"]
mod worker;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::processor::{Counter, Counts, Owned, Processor, RunLoop};
pub use self::run::Action;
pub(crate) use self::run::{Program, enter, ready_from, ready_globally, run, wake_up};
pub(crate) use self::thread::Green;
pub(crate) use self::worker::Worker;
pub(crate) use crate::engine::policy::Fifo;
