//! The figures of a runtime, with the names and the explanations under which they leave the program. Counts grow,
//! states do not, and times are histograms.

use crate::engine::door::{Histogram, Metrics};

/// A figure: its name, what it means, and where it is.
pub(super) struct Figure<T: 'static> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) of: fn(&Metrics) -> T,
}

const fn count(name: &'static str, help: &'static str, of: fn(&Metrics) -> u64) -> Figure<u64> {
    Figure { name, help, of }
}

const fn state(name: &'static str, help: &'static str, of: fn(&Metrics) -> usize) -> Figure<usize> {
    Figure { name, help, of }
}

pub(super) const COUNTS: [Figure<u64>; 8] = [
    count(
        "switches_total",
        "Times that a processor left a green thread.",
        |m| m.switches,
    ),
    count(
        "steals_total",
        "Times that a processor took threads from another one.",
        |m| m.steals,
    ),
    count(
        "steal_attempts_total",
        "Times that a processor looked for threads at the other ones.",
        |m| m.steal_attempts,
    ),
    count(
        "preemptions_total",
        "Times that a thread was interrupted at the end of its time slice.",
        |m| m.preemptions,
    ),
    count(
        "hand_offs_total",
        "Times that a processor was taken from a thread that was blocked in the kernel.",
        |m| m.hand_offs,
    ),
    count(
        "parked_calls_total",
        "Blocking calls of libc that parked a green thread.",
        |m| m.parked_calls,
    ),
    count("spawns_total", "Threads that were started.", |m| m.spawns),
    count(
        "wake_ups_total",
        "Times that a sleeping kernel thread was woken for work.",
        |m| m.wake_ups,
    ),
];

pub(super) const STATES: [Figure<usize>; 5] = [
    state(
        "threads",
        "Threads that were started and have not ended.",
        |m| m.live_threads,
    ),
    state("processors", "Threads that can run at once.", |m| {
        m.processors.len()
    }),
    state("kernel_threads", "Kernel threads for green threads.", |m| {
        m.kernel_threads
    }),
    state(
        "idle_kernel_threads",
        "Kernel threads for green threads that are idle.",
        |m| m.parked_kernel_threads,
    ),
    state(
        "global_queue_length",
        "Ready threads in the global queue.",
        |m| m.global_queue_len,
    ),
];

/// A histogram, and the label of its part.
type Part = (&'static str, fn(&Metrics) -> &Histogram);

/// Histograms, with the label that tells those with the same name apart.
pub(super) struct Times {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) parts: &'static [Part],
}

pub(super) const TIMES: [Times; 4] = [
    Times {
        name: "scheduling_latency_seconds",
        help: "Time from being ready to running.",
        parts: &[("", |m| &m.scheduling_latency)],
    },
    Times {
        name: "queue_wait_seconds",
        help: "The same, by where the processor found the thread.",
        parts: &[
            ("next_slot", |m| &m.queue_wait.next_slot),
            ("queue", |m| &m.queue_wait.queue),
            ("stolen", |m| &m.queue_wait.stolen),
        ],
    },
    Times {
        name: "run_time_seconds",
        help: "Time that a thread runs at a stretch.",
        parts: &[("", |m| &m.run_time)],
    },
    Times {
        name: "blocked_time_seconds",
        help: "Time that a blocked thread holds a kernel thread after it has lost its processor.",
        parts: &[("", |m| &m.blocked_time)],
    },
];
