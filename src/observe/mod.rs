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
//! have in [`Metrics`](crate::runtime::Metrics), `processors` being their number; how many processors sleep, and how many
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

mod dump;
#[cfg(feature = "tracing")]
#[allow(unsafe_code, reason = "the place of a spawn, from its address")]
pub(crate) mod events;
mod export;
#[cfg(green)]
#[allow(unsafe_code, reason = "memory of zero bytes")]
mod kept;
#[allow(unsafe_code, reason = "memory of zero bytes")]
pub(crate) mod measure;
mod observer;
mod queue;
#[allow(
    unsafe_code,
    reason = "memory for rings, text in words, the end of the process"
)]
pub(crate) mod trace;

pub use self::dump::{Deadlock, Dump, State, ThreadReport, deadlocks, dump};
#[cfg(feature = "tracing")]
pub use self::events::publish_events;
#[cfg(feature = "metrics")]
pub use self::export::publish_metrics;
pub use self::export::write_prometheus;
pub use self::measure::{is_measuring, measure};
pub use self::trace::{Trace, trace};
