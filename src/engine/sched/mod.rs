//! The scheduler. Read `run.rs` first: it is the loop that every kernel thread of the runtime runs.
//!
//! | file | idea |
//! |---|---|
//! | `run` | the run loop: find a thread, here or at other processors, switch to it, do what it asks for; making threads ready |
//! | `thread`, `records`, `identity` | a green thread's record, and the thread as C sees it; the store of records; its name and number |
//! | `switch` | to a green thread and back; what becomes of malloc's caches |
//! | `current` | which thread is this, where is it hidden, and its way into the runtime; threads announce that they block, or may block |
//! | `park` | how a thread waits, and how another one wakes it |
//! | `worker`, `processor`, `cluster` | the kernel thread; the right to run, and how it is owned and taken; all of them together, and how many threads live |
//! | `idle`, `parker` | sleeping and waking without a lost wake-up (`idle.md` has the proof); the word on which a kernel thread sleeps |
//! | `timers`, `list` | deadlines; intrusive lists |
//! | `start` | a thread's stack; its first time and its last: where its stack comes from, and where it goes |
//! | `resize`, `user_policy` | more processors, or fewer; a policy that a user wrote |
//! | `locked` | threads that are locked to a kernel thread; a call that changes it locks its thread |
//! | `io` | a driver as the scheduler sees it; which thread collects its events, and when |
//! | `preempt`, `monitor` | ending a time slice from outside; the monitor, which also helps when there can be no more kernel threads, and counts the calls that block |
//! | `handlers` | the program's signal handlers, and what they leave to the monitor; user ids change in every kernel thread |
//! | `cpu_time` | a thread's CPU time, once somebody asks for it |
//! | `spawner` | makes kernel threads ahead of need, and returns unused stacks; the crate's own kernel threads |
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
//! | the turn at events | a worker that does not get it sleeps on its futex (`io`) |
//! | places in what a driver holds back at a processor | it goes out before the next thread runs (`io`) |

pub(crate) mod cluster;
pub(crate) mod cpu_time;
pub(crate) mod current;
pub(crate) mod fork;
pub(crate) mod handlers;
pub(crate) mod identity;
mod idle;
pub(crate) mod io;
pub(crate) mod list;
pub(crate) mod locked;
mod monitor;
pub(crate) mod park;
mod parker;
pub(crate) mod preempt;
mod processor;
pub(crate) mod records;
pub(crate) mod resize;
mod run;
pub(crate) mod spawner;
pub(crate) mod start;
pub(crate) mod switch;
pub(crate) mod thread;
pub(crate) mod timers;
mod tuning;
pub(crate) mod unload;
mod user_policy;
pub(crate) mod worker;

pub(crate) use self::cluster::{Cluster, Config, Counter};
pub(crate) use self::current::enter;
pub(crate) use self::identity::Identity;
pub(crate) use self::monitor::Place as BlockedPlace;
pub(crate) use self::processor::{Owned, Processor, RunLoop};
pub(crate) use self::run::{ready, ready_from, ready_globally};
pub(crate) use self::thread::{Green, ThreadFlags};
pub(crate) use self::worker::Worker;
