//! `GREENTHREAD_SCHEDTRACE=ms`: a line on standard error for each runtime, every so many milliseconds, in the
//! spirit of Go's `GODEBUG=schedtrace`:
//!
//! ```text
//! SCHED 1009ms: runtime=0 live_threads=12 kernel_threads=5 parked_kernel_threads=2 global_queue_len=3 processors=2 idle=1 searching=0 blocked=1 [0 4]
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `1009ms` | since the first runtime was started |
//! | `runtime` | its number, in the order of the starts |
//! | `live_threads` … `processors` | the gauges of the table (`metrics`) |
//! | `idle`, `searching` | processors that sleep; those that look for work |
//! | `blocked` | kernel threads whose threads are blocked in the kernel, or burn CPU time, without a processor |
//! | `[0 4]` | how many ready threads wait at each processor |
//!
//! In kernel-thread mode each thread is a kernel thread, and the system has the queues; such a runtime has `mode=kernel`
//! behind its number, and nothing behind the gauges. A runtime that was shut down has no line.
//!
//! An ordinary kernel thread writes the lines, a system call each. It reads what `Runtime::metrics` reads.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::engine::facade::{Backend, Running, is_forked_child, spawn_helper};
use crate::engine::public::Mode;
use crate::observe::figures::{FIGURES, Value};

/// Starts the kernel thread that writes the lines, once.
pub(super) fn begin(interval: Duration) -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        let begin = Instant::now();
        let live = move || live(begin, interval);
        result = spawn_helper("gt-schedtrace", Box::new(live));
    });
    result
}

fn live(begin: Instant, interval: Duration) {
    let mut at = begin;
    loop {
        // If it is late, it leaves lines out.
        let now = Instant::now();
        while at <= now {
            at += interval;
        }
        std::thread::sleep(at - now);
        if is_forked_child() {
            return;
        }
        let mut lines = String::new();
        for Running {
            number, backend, ..
        } in Backend::all()
        {
            // A String accepts everything.
            let _ = line(&mut lines, begin.elapsed().as_millis(), number, backend);
        }
        // Nobody may read it.
        let _ = io::stderr().write_all(lines.as_bytes());
    }
}

fn line(out: &mut String, millis: u128, number: usize, backend: Backend) -> std::fmt::Result {
    let metrics = backend.metrics();
    let is_green = backend.mode() == Mode::Green;
    let mode = if is_green { "" } else { " mode=kernel" };
    write!(out, "SCHED {millis}ms: runtime={number}{mode}")?;
    for figure in FIGURES {
        if let Value::Gauge(of) = figure.value {
            write!(out, " {}={}", figure.name, of(&metrics))?;
        }
    }
    if is_green {
        let (idle, searching) = backend.idle();
        let running = metrics.processors.len().saturating_sub(idle);
        let free = metrics.parked_kernel_threads + running;
        let blocked = metrics.kernel_threads.saturating_sub(free);
        let queues = metrics.processors.iter().map(|p| p.queue_len.to_string());
        let queues = queues.collect::<Vec<_>>().join(" ");
        write!(
            out,
            " idle={idle} searching={searching} blocked={blocked} [{queues}]"
        )?;
    }
    writeln!(out)
}
