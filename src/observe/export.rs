//! The figures of all runtimes for others: [`write_prometheus`], `publish_metrics` for the crate metrics, and
//! `GREENTHREAD_SCHEDTRACE`.
//!
//! Names and explanations are those of the table [`FIGURES`]: a figure has one name, that of its field in [`Metrics`],
//! wherever it leaves the program: here, and on the observation socket. A new figure is the counter, a field that the
//! engine's `metrics_of` fills in, and a row. Rows of [`Samples`] are for Prometheus, and the
//! blocked calls for the crate metrics too.
//!
//! The label `runtime` is the number of the runtime, in the
//! order of the starts. A runtime that was shut down is left out.
//!
//! *Prometheus* reads a text format, version 0.0.4. A family has one `# HELP` and one `# TYPE`, and then the samples of all
//! runtimes. A histogram has a bucket for each power of two from 2^10 to 2^34 nanoseconds: 25 of them, from a microsecond
//! to 17 seconds. The narrow buckets of [`Histogram`] fit into these exactly.
//!
//! *`GREENTHREAD_SCHEDTRACE=ms`* makes an ordinary kernel thread write a line on standard error for each runtime, every so
//! many milliseconds, in the spirit of Go's `GODEBUG=schedtrace`:
//!
//! ```text
//! SCHED 1009ms: runtime=0 live_threads=12 kernel_threads=5 parked_kernel_threads=2 global_queue_len=3 processors=2 idle=1 searching=0 blocked=1 [0 4]
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `1009ms` | since the first runtime was started |
//! | `runtime` | its number |
//! | `live_threads` … `processors` | the gauges of the table |
//! | `idle`, `searching` | processors that sleep; those that look for work |
//! | `blocked` | kernel threads whose threads are blocked in the kernel, or burn CPU time, without a processor |
//! | `[0 4]` | how many ready threads wait at each processor |
//!
//! In kernel-thread mode each thread is a kernel thread, and the system has the queues; such a runtime has `mode=kernel`
//! behind its number, and nothing behind the gauges.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::employ;
use super::observer::{self, MEASURE};
use crate::atomic::{AtomicBool, Ordering::Relaxed};
use crate::engine::facade::{Backend, Running, is_forked_child};
use crate::engine::public::{BlockedPlace, Histogram, Metrics, Mode, ProcessorMetrics};

use self::Value::{Counter, Counters, Gauge, Gauges, Times};

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
    #[cfg(green)]
    if on && !is_measuring() {
        super::measure::begin();
    }
    observer::listen(MEASURE, on);
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
    if let Some(cluster) = backend.green() {
        super::measure::add_times(&mut metrics, core::ptr::from_ref(cluster).addr());
    }
    metrics
}

/// Where a figure is.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// It only grows.
    Counter(fn(&Metrics) -> u64),
    /// The present state.
    Gauge(fn(&Metrics) -> u64),
    /// Histograms; several have labels, which say from where a thread came.
    Times(&'static [Part]),
    /// Several counters, each with labels of its own.
    Counters(Samples),
    /// Several gauges, each with labels of its own.
    Gauges(Samples),
}

type Part = (&'static str, fn(&Metrics) -> &Histogram);

/// Each figure's name, what it means, and where it is.
#[rustfmt::skip]
pub(super) const FIGURES: &[(&str, &str, Value)] = &[
    ("switches", "Times that a processor left a green thread.", Counter(|m| m.switches)),
    ("steals", "Times that a processor took threads from another one.", Counter(|m| m.steals)),
    ("steal_attempts", "Times that a processor looked for threads at the other ones.", Counter(|m| m.steal_attempts)),
    ("preemptions", "Times that a thread was interrupted at the end of its time slice.", Counter(|m| m.preemptions)),
    ("hand_offs", "Times that a processor was taken from a thread that was blocked in the kernel.", Counter(|m| m.hand_offs)),
    ("parked_calls", "Blocking calls of libc that parked a green thread.", Counter(|m| m.parked_calls)),
    ("refused_waits", "Waits that ended, or did not begin, because a frame had ended.", Counter(|m| m.refused_waits)),
    ("spawns", "Threads that were started.", Counter(|m| m.spawns)),
    ("wake_ups", "Times that a sleeping kernel thread was woken for work.", Counter(|m| m.wake_ups)),
    ("live_threads", "Threads that were started and have not ended.", Gauge(|m| m.live_threads as u64)),
    ("kernel_threads", "Kernel threads for green threads.", Gauge(|m| m.kernel_threads as u64)),
    ("parked_kernel_threads", "Kernel threads for green threads that are idle.", Gauge(|m| m.parked_kernel_threads as u64)),
    ("global_queue_len", "Ready threads in the global queue.", Gauge(|m| m.global_queue_len as u64)),
    ("processors", "Threads that can run at once.", Gauge(|m| m.processors.len() as u64)),
    ("scheduling_latency", "Time from being ready to running.", Times(&[("", |m| &m.scheduling_latency)])),
    ("queue_wait", "The same, by where the processor found the thread.", Times(&[
        ("next_slot", |m| &m.queue_wait.next_slot),
        ("queue", |m| &m.queue_wait.queue),
        ("stolen", |m| &m.queue_wait.stolen),
    ])),
    ("run_time", "Time that a thread runs at a stretch.", Times(&[("", |m| &m.run_time)])),
    ("blocked_time", "Time that a blocked thread holds a kernel thread after it has lost its processor.",
        Times(&[("", |m| &m.blocked_time)])),
    ("mode", "1, with the mode of the runtime as a label.", Gauges(mode)),
    ("queue_len", "Ready threads that wait at a processor.",
        Gauges(|_, m, add| of_processors(m, add, |one| one.queue_len as u64))),
    ("processor_switches", "Times that the processor left a green thread; those of retired ones are left out.",
        Counters(|_, m, add| of_processors(m, add, |one| one.switches))),
    (BLOCKED_CALLS, "Times that a thread blocked in a system call has lost its processor.", Counters(of_calls)),
    ("blocked_places", "The same, by where the threads were spawned: the most frequent places.",
        Counters(|_, m, add| of_places(m, add, |place| place.count))),
    ("blocked_places_seconds", "For how long such threads held kernel threads, while times were measured.",
        Counters(|_, m, add| of_places(m, add, |place| place.time.as_secs_f64()))),
];

const BLOCKED_CALLS: &str = "blocked_calls";

/// The name outside of the program, and the kind of a figure there.
fn family_of(name: &str, value: Value) -> (String, &'static str) {
    let (unit, kind) = match value {
        Counter(_) | Counters(_) => ("_total", "counter"),
        Gauge(_) | Gauges(_) => ("", "gauge"),
        Times(_) => ("_seconds", "histogram"),
    };
    (format!("greenthread_{name}{unit}"), kind)
}

/// Writes the figures of all runtimes of the process in Prometheus' text format, version 0.0.4.
///
/// A server answers a request for `/metrics` with it; the content type is `text/plain; version=0.0.4`. The
/// names are those of the fields of [`Metrics`](crate::engine::public::Metrics), between `greenthread_` and the unit. Each sample has
/// the label `runtime`, the number of the runtime in the order of the starts; some have `processor`, or the `call` and the
/// place (`spawned_at`) of threads that block kernel threads. Times are in the histograms only while they are measured
/// ([`measure`]).
///
/// # Errors
///
/// Returns the first error that writing to `out` returns.
///
/// # Examples
///
/// ```
/// greenthread::spawn(|| ()).join().unwrap();
/// let mut text = Vec::new();
/// greenthread::observe::write_prometheus(&mut text)?;
/// let text = String::from_utf8(text).unwrap();
/// assert!(text.contains("# TYPE greenthread_spawns_total counter\n"));
/// assert!(text.contains("greenthread_spawns_total{runtime=\"0\"} "));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_prometheus(mut out: impl Write) -> io::Result<()> {
    let measured = |runtime: Running| (runtime, metrics_of(runtime.backend));
    let runtimes: Vec<_> = Backend::all().into_iter().map(measured).collect();
    let mut text = String::new();
    for &(name, help, value) in FIGURES {
        let (name, kind) = family_of(name, value);
        text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (runtime, metrics) in &runtimes {
            let number = runtime.number;
            let add: Add<'_> = &mut |end, labels, value| {
                text += &format!("{name}{end}{{runtime=\"{number}\"{labels}}} {value}\n");
            };
            match value {
                Counter(of) | Gauge(of) => add("", "", &of(metrics)),
                Counters(of) | Gauges(of) => of(runtime, metrics, add),
                Times(parts) => {
                    for (from, of) in parts {
                        histogram(from, of(metrics), add);
                    }
                }
            }
        }
    }
    // All goes out by one call, since `out` may be a socket.
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a sample: what follows the family's name, labels behind a comma each, and the value.
type Add<'a> = &'a mut dyn FnMut(&str, &str, &dyn Display);
type Samples = fn(&Running, &Metrics, Add<'_>);

fn mode(runtime: &Running, _: &Metrics, add: Add<'_>) {
    let is_green = runtime.backend.mode() == Mode::Green;
    let mode = if is_green { "green" } else { "kernel" };
    add("", &format!(",mode=\"{mode}\""), &1);
}

fn of_processors(metrics: &Metrics, add: Add<'_>, figure: fn(&ProcessorMetrics) -> u64) {
    for (index, one) in metrics.processors.iter().enumerate() {
        add("", &format!(",processor=\"{index}\""), &figure(one));
    }
}

fn of_calls(_: &Running, metrics: &Metrics, add: Add<'_>) {
    for call in &metrics.blocked_calls {
        let name = escaped(&call.name);
        add("", &format!(",call=\"{name}\""), &call.count);
    }
}

fn of_places<T: Display>(metrics: &Metrics, add: Add<'_>, figure: fn(&BlockedPlace) -> T) {
    for call in &metrics.blocked_calls {
        for place in &call.places {
            let at = place.spawned_at.map_or(String::new(), |at| at.to_string());
            let (call, at) = (escaped(&call.name), escaped(&at));
            let labels = format!(",call=\"{call}\",spawned_at=\"{at}\"");
            add("", &labels, &figure(place));
        }
    }
}

/// The samples of a histogram, of threads that came `from` there, if that is known.
fn histogram(from: &str, histogram: &Histogram, add: Add<'_>) {
    let from = match from {
        "" => String::new(),
        from => format!(",from=\"{from}\""),
    };
    // The bounds of the buckets, as powers of two of nanoseconds.
    for exponent in 10..=34 {
        let bound = Duration::from_nanos(1 << exponent);
        let within = histogram.buckets().filter(|bucket| bucket.up_to <= bound);
        let count: u64 = within.map(|bucket| bucket.count).sum();
        let bound = bound.as_secs_f64();
        add("_bucket", &format!("{from},le=\"{bound}\""), &count);
    }
    // The count is that of the buckets, although threads run meanwhile: a histogram is a snapshot.
    let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
    add("_bucket", &format!("{from},le=\"+Inf\""), &count);
    add("_sum", &from, &sum);
    add("_count", &from, &count);
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Starts the kernel thread that writes the lines of `GREENTHREAD_SCHEDTRACE`, once.
pub(super) fn begin_schedtrace(interval: Duration) -> io::Result<()> {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.swap(true, Relaxed) {
        return Ok(());
    }
    let begin = Instant::now();
    let mut at = begin;
    let live = move || loop {
        // If this thread is late, the lines of the missed moments are left out.
        let now = Instant::now();
        while at <= now {
            at += interval;
        }
        std::thread::sleep(at - now);
        if is_forked_child() {
            return;
        }
        let millis = begin.elapsed().as_millis();
        let all = Backend::all().into_iter();
        let lines = all.map(|runtime| schedtrace_line(millis, runtime));
        // An error is ignored: perhaps nobody reads the lines.
        let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
    };
    employ("gt-schedtrace", live).map(drop)
}

fn schedtrace_line(millis: u128, runtime: Running) -> String {
    let (number, backend) = (runtime.number, runtime.backend);
    let metrics = backend.metrics();
    let is_green = backend.mode() == Mode::Green;
    let mode = if is_green { "" } else { " mode=kernel" };
    let mut line = format!("SCHED {millis}ms: runtime={number}{mode}");
    for &(name, _, value) in FIGURES {
        if let Value::Gauge(of) = value {
            line += &format!(" {name}={}", of(&metrics));
        }
    }
    if is_green {
        let (idle, searching) = backend.idle();
        let running = metrics.processors.len().saturating_sub(idle);
        let free = metrics.parked_kernel_threads + running;
        let blocked = metrics.kernel_threads.saturating_sub(free);
        let queues = metrics.processors.iter().map(|p| p.queue_len.to_string());
        let queues = queues.collect::<Vec<_>>().join(" ");
        line += &format!(" idle={idle} searching={searching} blocked={blocked} [{queues}]");
    }
    line + "\n"
}

/// The crate metrics. A recorder keeps histograms of its own, so each call gives it what was added since the last one.
#[cfg(feature = "metrics")]
pub(super) mod publish {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use metrics::Unit;

    use super::{BLOCKED_CALLS, FIGURES, Value, family_of, metrics_of};
    use crate::engine::facade::Backend;
    use crate::engine::public::{Bucket, Histogram};
    use crate::observe::lock;

    /// What histograms were like when they were published: by the number of the runtime, the name and the part.
    type Published = BTreeMap<(usize, &'static str, &'static str), Histogram>;

    static PUBLISHED: Mutex<Published> = Mutex::new(BTreeMap::new());

    /// Gives the figures of all runtimes to the recorder of the crate [metrics](https://docs.rs/metrics).
    ///
    /// Call it as often as the figures shall be new, for example from a thread that sleeps in between. The names are
    /// those of [`write_prometheus`](super::write_prometheus): counters such as `greenthread_switches_total`, gauges such as
    /// `greenthread_live_threads`, histograms such as `greenthread_run_time_seconds`. Each has the label `runtime`, the number of
    /// the runtime in the order of the starts; calls that have blocked kernel threads have the label `call`. Times
    /// are recorded while they are measured ([`measure`](crate::observe::measure)), each as the upper bound of its bucket.
    ///
    /// Nothing is recorded without a recorder, and nothing between two calls.
    ///
    /// This needs the feature `metrics`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::observe;
    /// use std::time::Duration;
    ///
    /// observe::measure(true);
    /// greenthread::spawn(|| {
    ///     loop {
    ///         observe::publish_metrics();
    ///         greenthread::sleep(Duration::from_secs(10));
    ///     }
    /// });
    /// # observe::publish_metrics();
    /// ```
    pub fn publish_metrics() {
        // Two callers must not publish the same difference.
        let mut published = lock(&PUBLISHED);
        for runtime in Backend::all() {
            let (number, figures) = (runtime.number, metrics_of(runtime.backend));
            let runtime = [("runtime", number.to_string())];
            for &(figure, help, value) in FIGURES {
                let (name, _) = family_of(figure, value);
                match value {
                    Value::Counter(of) => {
                        metrics::describe_counter!(name.clone(), Unit::Count, help);
                        metrics::counter!(name, &runtime).absolute(of(&figures));
                    }
                    Value::Gauge(of) => {
                        metrics::describe_gauge!(name.clone(), Unit::Count, help);
                        metrics::gauge!(name, &runtime).set(of(&figures) as f64);
                    }
                    Value::Times(parts) => {
                        metrics::describe_histogram!(name.clone(), Unit::Seconds, help);
                        for (part, of) in parts {
                            let mut labels = runtime.to_vec();
                            if !part.is_empty() {
                                labels.push(("from", (*part).into()));
                            }
                            let recorder = metrics::histogram!(name.clone(), &labels);
                            let (key, now) = ((number, figure, *part), of(&figures));
                            let before = published.insert(key, now.clone()).unwrap_or_default();
                            for (up_to, count) in added(&before, now) {
                                recorder.record_many(up_to, count as usize);
                            }
                        }
                    }
                    Value::Counters(_) if figure == BLOCKED_CALLS => {
                        metrics::describe_counter!(name.clone(), Unit::Count, help);
                        for call in &figures.blocked_calls {
                            let labels = [runtime[0].clone(), ("call", call.name.clone())];
                            metrics::counter!(name.clone(), &labels).absolute(call.count);
                        }
                    }
                    Value::Counters(_) | Value::Gauges(_) => {}
                }
            }
        }
    }

    /// What was added to a histogram since it was as `before`: seconds, and how often.
    fn added(before: &Histogram, now: &Histogram) -> impl Iterator<Item = (f64, u64)> {
        let mut before = before.buckets().peekable();
        let difference = move |bucket: Bucket| {
            let known = before.next_if(|earlier| earlier.up_to == bucket.up_to);
            let count = bucket.count - known.map_or(0, |earlier| earlier.count);
            (bucket.up_to.as_secs_f64(), count)
        };
        let added = now.buckets().map(difference);
        added.filter(|(_, count)| *count != 0)
    }
}
