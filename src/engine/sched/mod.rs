//! The scheduler. Read `run.rs` first: it is the loop that every kernel thread of the runtime runs.
//!
//! | file | idea |
//! |---|---|
//! | `run` | the run loop: find a thread, here or at other processors, switch to it, do what it asks for; making threads ready |
//! | `thread` | a green thread's record, the store of records, and the thread as C sees it |
//! | `switch` | to a green thread and back; what becomes of malloc's caches |
//! | `current` | which thread is this, where is it hidden, and its way into the runtime; threads announce that they block, or may block |
//! | `frames`, `cancel` | limits around code; how a cancel finds threads and ends their waits |
//! | `park` | how a thread waits, and how another one wakes it; intrusive lists |
//! | `processor` | the right to run, and how it is owned and taken; the workers, which own processors |
//! | `cluster` | processors and workers together; how many threads live, and how many processors there are |
//! | `size` | how many processors and kernel threads there may be |
//! | `idle` | sleeping and waking without a lost wake-up (`idle.md` has the proof); the word on which a kernel thread sleeps |
//! | `events` | what a processor looks for beside its threads: deadlines, and a driver's events |
//! | `start` | a thread's stack; its first time and its last: where its stack comes from, and where it goes |
//! | `monitor` | ends time slices from outside; helps when there can be no more kernel threads; counts the calls that block |
//! | `signals` | the signal that preempts; the program's signal handlers, and what they leave to the monitor; user ids change in every kernel thread |
//! | `locked`, `user_policy` | threads that are locked to a kernel thread, and calls that lock one; a policy that a user wrote |
//! | `cpu_time` | a thread's CPU time, once somebody asks for it |
//! | `spawner` | makes kernel threads ahead of need, and returns unused stacks; the crate's own kernel threads |
//! | `joinable` | who gives back the stack of a thread that C may still name |
//! | `directed` | signals for one green thread, and its cancellation by C |
//! | `fork`, `unload` | what a forked child keeps; `dlclose` waits for green threads, too |
//! | `tuning` | what can be tuned, and what loses without it |
//!
//! Invariants:
//! 1. While a worker owns a processor, the scheduler's code on it never allocates, frees, prints,
//!    panics, or takes a lock that a preemptible thread can hold. (A worker without a processor
//!    may block on anything: others go on.)
//! 2. A green thread has one owner at a time (`thread`), so it is run by one worker and is in one
//!    queue.
//! 3. The fast path (next slot or local queue, switch, back to the queue) touches no thread-local:
//!    the thread pointer is the last green thread's. Code that may touch a thread-local comes after
//!    [`Worker::use_native_tls`].
//!
//! These resources are bounded. The table says what happens when one is used up:
//!
//! | bound | then |
//! |---|---|
//! | slots of a local queue | half of it goes to the processor's overflow, which has no bound |
//! | stacks at hand | the thread goes to the back of the queue while the spawner makes one (`start`) |
//! | spare workers | the processor sleeps on; the spawner makes a worker, which looks for work first of all |
//! | kernel threads | the spawner asks again; a thread that comes back from the kernel takes an idle processor |
//! | the turn at events | a worker that does not get it sleeps on its futex (`events`) |
//! | places in what a driver holds back at a processor | it goes out before the next thread runs (`events`) |

pub(crate) mod cancel;
pub(crate) mod cluster;
pub(crate) mod cpu_time;
pub(crate) mod current;
#[cfg(hooks)]
pub(crate) mod directed;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod frames;
mod idle;
pub(crate) mod joinable;
pub(crate) mod locked;
mod monitor;
pub(crate) mod park;
mod processor;
mod run;
pub(crate) mod signals;
pub(crate) mod size;
pub(crate) mod spawner;
pub(crate) mod start;
pub(crate) mod switch;
pub(crate) mod thread;
mod tuning;
pub(crate) mod unload;
mod user_policy;

pub(crate) use self::cluster::{Cluster, Config};
pub(crate) use self::current::enter;
pub(crate) use self::monitor::BlockedSite;
pub(crate) use self::processor::{Counter, Owned, Processor, RunLoop, Worker};
pub(crate) use self::run::{ready, ready_from, ready_globally};
pub(crate) use self::thread::{Green, ThreadFlags};
pub(crate) use crate::engine::inspect::notes::Identity;
pub(crate) use crate::engine::policy::Fifo;
