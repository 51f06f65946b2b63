//! `GREENTHREAD_SCHEDTRACE=ms`: a line on standard error for each runtime, every so many milliseconds, in the
//! spirit of Go's `GODEBUG=schedtrace`:
//!
//! ```text
//! SCHED 1009ms: runtime=0 processors=2 idle=1 searching=0 kernelthreads=5 spare=2 blocked=1 threads=12 globalqueue=3 [0 4]
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `1009ms` | since the first runtime was started |
//! | `runtime` | its number, in the order of the starts |
//! | `processors`, `idle`, `searching` | how many there are; those that sleep; those that look for work |
//! | `kernelthreads`, `spare`, `blocked` | how many there are for green threads; those that have nothing to do; those whose threads are blocked in the kernel, or burn CPU time, without a processor |
//! | `threads` | how many were spawned and have not ended |
//! | `globalqueue`, `[0 4]` | how many ready threads wait in the global queue, and at each processor |
//!
//! In kernel-thread mode each thread is a kernel thread, and the system has the queues; such a runtime has `mode=kernel`
//! behind its number, and of the others only `processors` and `threads`. A runtime that was shut down has no line.
//!
//! An ordinary kernel thread writes the lines, a system call each. It reads what `Runtime::metrics` reads.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::engine::door::{Backend, Mode, is_forked_child, runtimes};
use crate::engine::inspect::kernel::KernelThread;

/// Starts the kernel thread that writes the lines, once.
pub(super) fn begin(interval: Duration) -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        let begin = Instant::now();
        // It runs no handler of the program's.
        #[cfg(green)]
        let mask = crate::engine::door::signal::set_mask(!0);
        let writer = std::thread::Builder::new().name("gt-schedtrace".into());
        result = writer.spawn(move || live(begin, interval)).map(drop);
        #[cfg(green)]
        crate::engine::door::signal::set_mask(mask);
    });
    result
}

fn live(begin: Instant, interval: Duration) {
    KernelThread::begin_helper();
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
        for (number, backend) in runtimes::all() {
            // A String accepts everything.
            let _ = line(&mut lines, begin.elapsed().as_millis(), number, backend);
        }
        // Nobody may read it.
        let _ = io::stderr().write_all(lines.as_bytes());
    }
}

fn line(out: &mut String, millis: u128, number: usize, backend: Backend) -> std::fmt::Result {
    let metrics = backend.metrics();
    let (processors, threads) = (metrics.processors.len(), metrics.live_threads);
    write!(out, "SCHED {millis}ms: runtime={number}")?;
    if backend.mode() == Mode::Kernel {
        return writeln!(
            out,
            " mode=kernel processors={processors} threads={threads}"
        );
    }
    let (all, spare) = (metrics.kernel_threads, metrics.parked_kernel_threads);
    let (idle, searching) = backend.idle();
    let running = processors.saturating_sub(idle);
    let blocked = all.saturating_sub(spare + running);
    write!(
        out,
        " processors={processors} idle={idle} searching={searching} kernelthreads={all} spare={spare} \
         blocked={blocked} threads={threads} globalqueue={} [",
        metrics.global_queue_len
    )?;
    for (index, processor) in metrics.processors.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        write!(out, "{space}{}", processor.queue_len)?;
    }
    writeln!(out, "]")
}
