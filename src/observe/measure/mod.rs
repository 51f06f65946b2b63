//! [`measure`]: whether times are measured. They are gathered from the scheduler's events (`gather`).

#[cfg(green)]
pub(super) mod gather;

use super::observer::{self, MEASURE};
use crate::engine::facade::Backend;
use crate::engine::public::Metrics;

/// Starts measuring times, or stops it, in all runtimes of the process.
///
/// The times are in the histograms of [`Metrics`](crate::engine::public::Metrics): the scheduling latency and its parts, the
/// runs of threads, and how long blocked threads hold kernel threads. Histograms are never cleared; the
/// difference of two snapshots tells about the time between them. `GREENTHREAD_METRICS=on` measures from the start.
///
/// Until it is asked for, measuring costs nothing but a look at one word at each switch. While it is on, a switch
/// reads the clock once and a wake-up once more, and each processor has two pages of memory for it. The first call takes a
/// millisecond, in which clocks are compared.
///
/// In [`Mode::Kernel`](crate::engine::public::Mode::Kernel) the system schedules, and no times are measured.
///
/// # Examples
///
/// ```
/// use greenthread::{observe, runtime::Runtime};
///
/// observe::measure(true);
/// greenthread::spawn(|| ()).join().unwrap();
/// let metrics = Runtime::global().metrics();
/// println!("99 of 100 threads wait for {:?} or less", metrics.scheduling_latency.quantile(0.99));
/// observe::measure(false);
/// ```
pub fn measure(on: bool) {
    if !on {
        observer::remove(MEASURE);
    } else if !is_measuring() {
        #[cfg(green)]
        gather::begin();
        observer::add(MEASURE);
    }
}

/// Returns whether times are measured; see [`measure`].
///
/// # Examples
///
/// ```
/// use greenthread::observe;
///
/// observe::measure(true);
/// assert!(observe::is_measuring());
/// observe::measure(false);
/// assert!(!observe::is_measuring());
/// ```
pub fn is_measuring() -> bool {
    observer::listens(MEASURE)
}

/// The figures of a runtime, with the times that were measured.
pub(crate) fn metrics_of(backend: Backend) -> Metrics {
    #[cfg_attr(not(green), allow(unused_mut, reason = "no times are measured"))]
    let mut metrics = backend.metrics();
    #[cfg(green)]
    if let Backend::Green(cluster) = backend {
        add_times(&mut metrics, core::ptr::from_ref(cluster).addr());
    }
    metrics
}

#[cfg(green)]
fn add_times(metrics: &mut Metrics, runtime: usize) {
    for measures in gather::of_runtime(runtime) {
        let [next_slot, queue, stolen] = &measures.waits;
        let waits = &mut metrics.queue_wait;
        waits.next_slot.add(next_slot.read());
        waits.queue.add(queue.read());
        waits.stolen.add(stolen.read());
        metrics.run_time.add(measures.runs.read());
        metrics.blocked_time.add(measures.holds.read());
    }
    let waits = &metrics.queue_wait;
    for part in [&waits.next_slot, &waits.queue, &waits.stolen] {
        metrics.scheduling_latency.merge(part);
    }
}
