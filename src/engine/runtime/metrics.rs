//! [`Metrics`]: figures about a runtime, and the table of those that are one number, or times ([`FIGURES`]).
//!
//! A figure has one name, that of its field, wherever it leaves the program: in Prometheus' text and for the crate metrics
//! (`observe::export`), on the observation socket, and in a line of `schedtrace`. A new one is the counter, a field here
//! that `metrics_of` fills in, and a row.

use core::panic::Location;
use core::time::Duration;

use super::{Histogram, KernelBackend};
use crate::engine::atomic::Ordering;

/// Figures about a runtime: counts since its start, and its present state.
///
/// They are returned by [`Runtime::metrics`](crate::runtime::Runtime::metrics). In
/// [`Mode::Kernel`](super::Mode::Kernel) most of them are 0.
///
/// Counts are always kept. Times are measured, and the histograms grow, only while
/// [`observe::measure`](crate::observe::measure) or `GREENTHREAD_METRICS=on` asks for that.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// greenthread::spawn(|| ()).join().unwrap();
/// assert!(Runtime::global().metrics().spawns >= 1);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of times that a processor left a green thread, for whatever reason.
    pub switches: u64,
    /// The number of times that a processor took threads from another processor's queue.
    pub steals: u64,
    /// The number of times that a processor without work looked for threads at all other processors. In
    /// [`steals`](Metrics::steals) of these cases it found some.
    pub steal_attempts: u64,
    /// The number of times that a thread was interrupted because its time slice was over.
    pub preemptions: u64,
    /// The number of times that a processor was taken from a thread that was blocked in the kernel,
    /// or that could not be interrupted.
    pub hand_offs: u64,
    /// The number of times that a blocking call of libc, made by code that knows nothing of green
    /// threads, has parked the thread that made it.
    pub parked_calls: u64,
    /// The system calls in which threads were blocked when their processor was taken from them: the ten
    /// most frequent ones, the most frequent first. Each such thread keeps a kernel thread until its
    /// call returns.
    pub blocked_calls: Vec<BlockedCall>,
    /// The number of threads that were started.
    pub spawns: u64,
    /// The number of times that a sleeping kernel thread was woken because there was work.
    pub wake_ups: u64,
    /// The number of threads that have been started and have not ended.
    pub live_threads: usize,
    /// The number of kernel threads for green threads, blocked ones and idle ones included.
    pub kernel_threads: usize,
    /// The number of those kernel threads that are idle.
    pub parked_kernel_threads: usize,
    /// The number of ready threads that wait in the global queue and not at a processor.
    pub global_queue_len: usize,
    /// The figures of each processor. Processors that are being taken away
    /// ([`Runtime::set_processors`]) but still run a thread come last.
    ///
    /// [`Runtime::set_processors`]: crate::runtime::Runtime::set_processors
    pub processors: Vec<ProcessorMetrics>,
    /// For how long threads were ready before they ran: from a wake-up, a spawn, or the end of the turn
    /// before, to the beginning of a turn. A thread to which another one hands over
    /// ([`coroutine`](crate::coroutine)) does not wait and is not counted.
    pub scheduling_latency: Histogram,
    /// The same times, by where the processor found the thread.
    pub queue_wait: QueueWait,
    /// For how long threads ran at a stretch, on a processor: the time after a thread has lost its processor
    /// ([`hand_offs`](Metrics::hand_offs)) is not part of it.
    pub run_time: Histogram,
    /// For how long threads held kernel threads after they were seen to be blocked and had lost their processors:
    /// until they came back to the runtime.
    pub blocked_time: Histogram,
}

/// [`Metrics::scheduling_latency`] in three parts.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// let metrics = Runtime::global().metrics();
/// let parts = &metrics.queue_wait;
/// let count = parts.next_slot.count() + parts.queue.count() + parts.stolen.count();
/// assert_eq!(count, metrics.scheduling_latency.count());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueWait {
    /// Of threads that ran next after the thread that had readied them, in the same time slice.
    pub next_slot: Histogram,
    /// Of threads that the processor took from a queue, its own or the global one.
    pub queue: Histogram,
    /// Of threads that the processor took from another one. (It may take several at once; the others count as
    /// taken from its own queue.)
    pub stolen: Histogram,
}

/// Figures about one processor.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// let runtime = Runtime::builder().processors(1).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// for processor in runtime.metrics().processors {
///     println!("{} switches, {} threads wait", processor.switches, processor.queue_len);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorMetrics {
    /// The number of ready threads that wait in the processor's queue.
    pub queue_len: usize,
    /// The number of times that the processor left a green thread.
    pub switches: u64,
}

/// A system call that has blocked kernel threads.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// for call in Runtime::global().metrics().blocked_calls {
///     println!("{}: {} times", call.name, call.count);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedCall {
    /// The name of the system call, such as `flock` or `clock_nanosleep`; for one that is rarely met, `syscall` and its
    /// number.
    pub name: String,
    /// The number of times that a thread in this call has lost its processor.
    pub count: u64,
    /// Whose calls these were: the ten most frequent places, the most frequent first.
    pub places: Vec<BlockedPlace>,
}

/// Where the threads were spawned that a [`BlockedCall`] has blocked.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// for call in Runtime::global().metrics().blocked_calls {
///     for place in &call.places {
///         let Some(at) = place.spawned_at else { continue };
///         println!("{}, {} times: threads spawned at {at}", call.name, place.count);
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedPlace {
    /// The place in the program that spawned the threads, if it is known.
    pub spawned_at: Option<&'static Location<'static>>,
    /// The number of times that such a thread has lost its processor in this call.
    pub count: u64,
    /// For how long such threads held kernel threads, while times were measured.
    pub time: Duration,
}

/// A row of [`FIGURES`]: a figure's name, what it means, and where it is.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: Value,
}

pub(crate) enum Value {
    /// It only grows.
    Counter(fn(&Metrics) -> u64),
    /// The present state.
    Gauge(fn(&Metrics) -> u64),
    /// Histograms; several have labels, which say from where a thread came.
    Times(&'static [Part]),
}

pub(crate) type Part = (&'static str, fn(&Metrics) -> &Histogram);

const fn counter(name: &'static str, help: &'static str, of: fn(&Metrics) -> u64) -> Figure {
    let value = Value::Counter(of);
    Figure { name, help, value }
}

const fn gauge(name: &'static str, help: &'static str, of: fn(&Metrics) -> u64) -> Figure {
    let value = Value::Gauge(of);
    Figure { name, help, value }
}

const fn times(name: &'static str, help: &'static str, parts: &'static [Part]) -> Figure {
    let value = Value::Times(parts);
    Figure { name, help, value }
}

#[rustfmt::skip]
pub(crate) const FIGURES: &[Figure] = &[
    counter("switches", "Times that a processor left a green thread.", |m| m.switches),
    counter("steals", "Times that a processor took threads from another one.", |m| m.steals),
    counter("steal_attempts", "Times that a processor looked for threads at the other ones.", |m| m.steal_attempts),
    counter("preemptions", "Times that a thread was interrupted at the end of its time slice.", |m| m.preemptions),
    counter("hand_offs", "Times that a processor was taken from a thread that was blocked in the kernel.", |m| m.hand_offs),
    counter("parked_calls", "Blocking calls of libc that parked a green thread.", |m| m.parked_calls),
    counter("spawns", "Threads that were started.", |m| m.spawns),
    counter("wake_ups", "Times that a sleeping kernel thread was woken for work.", |m| m.wake_ups),
    gauge("live_threads", "Threads that were started and have not ended.", |m| m.live_threads as u64),
    gauge("kernel_threads", "Kernel threads for green threads.", |m| m.kernel_threads as u64),
    gauge("parked_kernel_threads", "Kernel threads for green threads that are idle.", |m| m.parked_kernel_threads as u64),
    gauge("global_queue_len", "Ready threads in the global queue.", |m| m.global_queue_len as u64),
    gauge("processors", "Threads that can run at once.", |m| m.processors.len() as u64),
    times("scheduling_latency", "Time from being ready to running.", &[("", |m| &m.scheduling_latency)]),
    times("queue_wait", "The same, by where the processor found the thread.", &[
        ("next_slot", |m| &m.queue_wait.next_slot),
        ("queue", |m| &m.queue_wait.queue),
        ("stolen", |m| &m.queue_wait.stolen),
    ]),
    times("run_time", "Time that a thread runs at a stretch.", &[("", |m| &m.run_time)]),
    times("blocked_time", "Time that a blocked thread holds a kernel thread after it has lost its processor.",
        &[("", |m| &m.blocked_time)]),
];

impl Metrics {
    pub(super) fn of_kernel_threads(backend: &KernelBackend) -> Metrics {
        let live = backend.live.load(Ordering::Relaxed);
        Metrics {
            spawns: backend.spawns.load(Ordering::Relaxed),
            live_threads: live,
            kernel_threads: live,
            processors: vec![
                ProcessorMetrics::default();
                backend.processors.load(Ordering::Relaxed)
            ],
            ..Metrics::default()
        }
    }
}
