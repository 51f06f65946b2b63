//! The table of a runtime's figures that are one number, or times ([`FIGURES`]).
//!
//! A figure has one name, that of its field in [`Metrics`], wherever it leaves the program: in Prometheus' text and for the
//! crate metrics (`observe::export`), on the observation socket, and in a line of `schedtrace`. A new one is the counter, a
//! field that the engine's `metrics_of` fills in, and a row.

use self::Value::{Counter, Gauge, Times};
use crate::engine::public::{Histogram, Metrics};

/// A row of [`FIGURES`]: a figure's name, what it means, and where it is.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: Value,
}

pub(super) enum Value {
    /// It only grows.
    Counter(fn(&Metrics) -> u64),
    /// The present state.
    Gauge(fn(&Metrics) -> u64),
    /// Histograms; several have labels, which say from where a thread came.
    Times(&'static [Part]),
}

type Part = (&'static str, fn(&Metrics) -> &Histogram);

const fn row(name: &'static str, help: &'static str, value: Value) -> Figure {
    Figure { name, help, value }
}

#[rustfmt::skip]
pub(super) const FIGURES: &[Figure] = &[
    row("switches", "Times that a processor left a green thread.", Counter(|m| m.switches)),
    row("steals", "Times that a processor took threads from another one.", Counter(|m| m.steals)),
    row("steal_attempts", "Times that a processor looked for threads at the other ones.", Counter(|m| m.steal_attempts)),
    row("preemptions", "Times that a thread was interrupted at the end of its time slice.", Counter(|m| m.preemptions)),
    row("hand_offs", "Times that a processor was taken from a thread that was blocked in the kernel.", Counter(|m| m.hand_offs)),
    row("parked_calls", "Blocking calls of libc that parked a green thread.", Counter(|m| m.parked_calls)),
    row("spawns", "Threads that were started.", Counter(|m| m.spawns)),
    row("wake_ups", "Times that a sleeping kernel thread was woken for work.", Counter(|m| m.wake_ups)),
    row("live_threads", "Threads that were started and have not ended.", Gauge(|m| m.live_threads as u64)),
    row("kernel_threads", "Kernel threads for green threads.", Gauge(|m| m.kernel_threads as u64)),
    row("parked_kernel_threads", "Kernel threads for green threads that are idle.", Gauge(|m| m.parked_kernel_threads as u64)),
    row("global_queue_len", "Ready threads in the global queue.", Gauge(|m| m.global_queue_len as u64)),
    row("processors", "Threads that can run at once.", Gauge(|m| m.processors.len() as u64)),
    row("scheduling_latency", "Time from being ready to running.", Times(&[("", |m| &m.scheduling_latency)])),
    row("queue_wait", "The same, by where the processor found the thread.", Times(&[
        ("next_slot", |m| &m.queue_wait.next_slot),
        ("queue", |m| &m.queue_wait.queue),
        ("stolen", |m| &m.queue_wait.stolen),
    ])),
    row("run_time", "Time that a thread runs at a stretch.", Times(&[("", |m| &m.run_time)])),
    row("blocked_time", "Time that a blocked thread holds a kernel thread after it has lost its processor.",
        Times(&[("", |m| &m.blocked_time)])),
];
