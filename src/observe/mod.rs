//! Seeing what every thread does: dumps, deadlocks, traces, and figures.
//!
//! [`dump`] looks at every thread of every runtime while the program runs on: what it does, for how long, what it
//! waits for and who holds that, where it was spawned, and its backtrace. A program that hangs is asked from
//! outside: `kill -QUIT` makes it write a dump to standard error, or to the file that `GREENTHREAD_DUMP` names,
//! and go on. (A program that has its own handler for `SIGQUIT`, or sets `GREENTHREAD_SIGQUIT=off`, keeps the signal.)
//!
//! When every thread waits for another one and nothing outside can wake any, the program says so once, by
//! itself: `GREENTHREAD_DEADLOCK` chooses `report`, the default, `abort` or `off`. [`deadlocks`] finds threads that wait
//! for each other while others go on.
//!
//! [`trace`] records which thread ran where and when, who woke whom, and who waited for how long.
//!
//! With `GREENTHREAD_OBSERVE=unix:/path` the program answers questions about its threads on a socket, for its own user
//! only: `docs/observe-socket.md` in the repository, and the example `top`, which shows the threads live.
//!
//! [`Runtime::metrics`](crate::runtime::Runtime::metrics) has the figures of one runtime. [`measure`] says whether
//! times are measured too: scheduling latency, time in queues, runs, and how long blocked threads hold kernel
//! threads. [`write_prometheus`] writes the figures of all runtimes as text that Prometheus reads. And
//! `GREENTHREAD_SCHEDTRACE=1000` makes any program say every 1000 ms, on standard error, what its scheduler does:
//!
//! ```text
//! SCHED 1009ms: runtime=0 live_threads=12 kernel_threads=5 parked_kernel_threads=2 global_queue_len=3 processors=2 idle=0 searching=0 blocked=1 [0 4]
//! ```
//!
//! That is: the time since the first runtime was started; the number of the runtime; the figures with the names that they
//! have in [`Metrics`](crate::engine::public::Metrics), `processors` being their number; how many processors sleep, and how many
//! look for work; how many kernel threads are blocked in the kernel (or compute) without a processor; and how many ready
//! threads wait at each processor. The line of a runtime of kernel threads has `mode=kernel` behind the number, and ends
//! with `processors`.
//!
//! With the feature `metrics`, `publish_metrics` gives the figures to the recorder of the crate
//! [metrics](https://docs.rs/metrics). With the feature `tracing`, `publish_events` tells the subscriber of the crate
//! [tracing](https://docs.rs/tracing) what happens to threads. Spans need no feature: they follow green threads by
//! themselves, since every green thread has thread-locals of its own.
//!
//! # Examples
//!
//! ```
//! use greenthread::{channel, observe, thread};
//!
//! let (jobs, to_do) = channel::bounded(0);
//! let worker = thread::Builder::new().name("worker".into()).spawn(move || to_do.iter().sum::<u32>())?;
//! jobs.send(1).unwrap();
//! let dump = observe::dump();
//! let seen = dump.threads().find(|thread| thread.name() == Some("worker")).unwrap();
//! assert_eq!(seen.id(), Some(worker.thread().id()));
//! drop(jobs);
//! assert_eq!(worker.join().unwrap(), 1);
//! # Ok::<(), std::io::Error>(())
//! ```

// | file | idea |
// |---|---|
// | `start` | what the environment and builders ask for, when a runtime starts |
// | `dump` | what users see of a snapshot |
// | `snapshot` | reads all threads, one after the other, while the program runs on |
// | `unwind` | reads a stack, by the tables of what is loaded |
// | `symbols` | the names of functions, by what the files tell of an address |
// | `text`, `json` | a dump for people, and for tools, with the words for a wait; how JSON is written |
// | `reporter` | the kernel thread that writes dumps when a signal asks, and looks for deadlocks |
// | `warn` | warnings of what costs threads their time |
// | `socket` | the socket on which a running program is asked for all that, and for a summary in a few figures |
// | `observer` | hears what happens in the scheduler (`engine::probe`), for the next three; a queue for that |
// | `trace`, `measure`, `events` | the schedule of a piece of work; times, and what is kept of each processor; what happens, for the crate tracing |
// | `export` | whether times are measured; the table of runtimes' figures; for Prometheus, the crate metrics, and standard error |
// | `numbers` | maps and sorts with one instance of std's code for all the above |
// | `gdb` | a table and a script by which gdb finds green threads |
// | `elsewhere` | the stand-in for `snapshot` and its kin where there are no green threads |
//
// Nothing here stops a thread or takes a lock of the scheduler's: `engine::inspect` says why what is read is true.

mod dump;
#[cfg_attr(not(green), allow(dead_code, reason = "no thread loses its processor"))]
#[allow(unsafe_code, reason = "the place of a spawn, from its address")]
mod events;
pub(crate) mod export;
#[cfg(green)]
#[allow(unsafe_code, reason = "names that debuggers know")]
mod gdb;
mod json;
#[cfg(green)]
#[allow(
    unsafe_code,
    reason = "memory of zero bytes; a place, from its address"
)]
mod measure;
mod numbers;
mod observer;
#[cfg(green)]
#[allow(unsafe_code, reason = "a signal's handler")]
mod reporter;
#[cfg_attr(not(green), path = "elsewhere.rs")]
#[allow(unsafe_code, reason = "names that others own")]
mod snapshot;
#[cfg(green)]
#[allow(unsafe_code, reason = "a socket's name, the file of a lock")]
mod socket;
pub(crate) mod start;
#[cfg(green)]
#[allow(unsafe_code, reason = "a file is mapped")]
mod symbols;
#[cfg(sim)]
pub(crate) use self::{symbols::Kind, symbols::Symbol, symbols::Symbols, unwind::Modules};
#[cfg_attr(not(green), allow(dead_code, reason = "nobody asks for one thread"))]
mod text;
#[allow(unsafe_code, reason = "memory for rings, text in words")]
mod trace;
#[cfg(green)]
#[allow(unsafe_code, reason = "the loader's list, unwind tables")]
pub(crate) mod unwind;
#[cfg(green)]
mod warn;

pub use self::dump::{Deadlock, Dump, State, ThreadReport, deadlocks, dump};
#[cfg(feature = "tracing")]
pub use self::events::publish::publish_events;
#[cfg(feature = "metrics")]
pub use self::export::publish::publish_metrics;
pub use self::export::{is_measuring, measure, write_prometheus};
pub use self::trace::{Trace, trace};

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::facade::spawn_helper as employ;

/// Locks a mutex, although a thread may have panicked that held it: what is locked here is whole between two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
