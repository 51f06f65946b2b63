//! [`measure`]: whether times are measured.

use crate::engine::door;

/// Starts measuring times, or stops it, in all runtimes of the process.
///
/// The times are in the histograms of [`Metrics`](crate::runtime::Metrics): the scheduling latency and its parts, the
/// runs of threads, and how long blocked threads hold kernel threads. Histograms are never cleared; the
/// difference of two snapshots tells about the time between them. `GREENTHREAD_METRICS=on` measures from the start.
///
/// Until it is asked for, measuring costs nothing but a look at one word at each switch. While it is on, a switch
/// reads the clock once and a wake-up once more, and each processor has two pages of memory for it. The first call takes a
/// millisecond, in which clocks are compared.
///
/// In [`Mode::Kernel`](crate::runtime::Mode::Kernel) the system schedules, and no times are measured.
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
    door::measure::switch(on);
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
    door::measure::is_on()
}
