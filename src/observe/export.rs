//! The figures of all runtimes for others: [`write_prometheus`], and `publish_metrics` for the crate metrics.
//!
//! Names and explanations are those of the table `FIGURES`. The label `runtime` is the number of the runtime, in the
//! order of the starts.
//!
//! *Prometheus* reads a text format, version 0.0.4. A family has one `# HELP` and one `# TYPE`, and then the samples of all
//! runtimes. A histogram has a bucket for each power of two from 2^10 to 2^34 nanoseconds: 25 of them, from a microsecond
//! to 17 seconds. The narrow buckets of [`Histogram`] fit into these exactly.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use super::measure::metrics_of;
use crate::engine::facade::Backend;
use crate::engine::public::{BlockedPlace, Histogram, Metrics, Mode};
use crate::observe::figures::{FIGURES, Figure, Value};

const BLOCKED_CALLS: &str = "greenthread_blocked_calls_total";
const BLOCKED_CALLS_HELP: &str =
    "Times that a thread blocked in a system call has lost its processor.";

/// The name outside of the program.
fn full_name(figure: &Figure) -> String {
    let unit = match figure.value {
        Value::Counter(_) => "_total",
        Value::Gauge(_) => "",
        Value::Times(_) => "_seconds",
    };
    format!("greenthread_{}{unit}", figure.name)
}

/// Writes the figures of all runtimes of the process in Prometheus' text format, version 0.0.4.
///
/// A server answers a request for `/metrics` with it; the content type is `text/plain; version=0.0.4`. The
/// names are those of the fields of [`Metrics`](crate::engine::public::Metrics), between `greenthread_` and the unit. Each sample has
/// the label `runtime`, the number of the runtime in the order of the starts; some have `processor`, or the `call` and the
/// place (`spawned_at`) of threads that block kernel threads. Times are in the histograms only while they are measured
/// ([`measure`](super::measure)).
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
pub fn write_prometheus(out: impl Write) -> io::Result<()> {
    let runtimes = Backend::all().into_iter();
    let shown = runtimes.map(|running| Shown {
        number: running.number,
        mode: running.backend.mode(),
        metrics: metrics_of(running.backend),
    });
    let mut page = Page {
        runtimes: shown.collect(),
        text: Vec::with_capacity(1 << 14),
    };
    for figure in FIGURES {
        page.figure(figure)?;
    }
    page.processors()?;
    page.blocked_calls()?;
    // One call of `out`, which may be a socket.
    let mut out = out;
    out.write_all(&page.text)?;
    out.flush()
}

/// One runtime's figures.
struct Shown {
    number: usize,
    mode: Mode,
    metrics: Metrics,
}

struct Page {
    runtimes: Vec<Shown>,
    text: Vec<u8>,
}

/// A sample's labels, each behind a comma, and its value.
type Sample<T> = (String, T);

impl Page {
    fn figure(&mut self, figure: &Figure) -> io::Result<()> {
        let (name, help) = (full_name(figure), figure.help);
        let (kind, of) = match figure.value {
            Value::Counter(of) => ("counter", of),
            Value::Gauge(of) => ("gauge", of),
            Value::Times(parts) => {
                self.head(&name, "histogram", help)?;
                for Shown {
                    number, metrics, ..
                } in &self.runtimes
                {
                    for (from, of) in parts {
                        let from = match *from {
                            "" => String::new(),
                            from => format!(",from=\"{from}\""),
                        };
                        let labels = format!("runtime=\"{number}\"{from}");
                        write_histogram(&mut self.text, &name, &labels, of(metrics))?;
                    }
                }
                return Ok(());
            }
        };
        self.family(&name, kind, help, |shown| {
            vec![(String::new(), of(&shown.metrics))]
        })
    }

    fn processors(&mut self) -> io::Result<()> {
        let help = "1, with the mode of the runtime as a label.";
        self.family("greenthread_mode", "gauge", help, |shown| {
            let is_green = shown.mode == Mode::Green;
            let mode = if is_green { "green" } else { "kernel" };
            vec![(format!(",mode=\"{mode}\""), 1)]
        })?;
        let label = |index| format!(",processor=\"{index}\"");
        let help = "Ready threads that wait at a processor.";
        self.family("greenthread_queue_len", "gauge", help, |shown| {
            let all = shown.metrics.processors.iter().enumerate();
            all.map(|(index, one)| (label(index), one.queue_len))
                .collect()
        })?;
        let help =
            "Times that the processor left a green thread; those of retired ones are left out.";
        let name = "greenthread_processor_switches_total";
        self.family(name, "counter", help, |shown| {
            let all = shown.metrics.processors.iter().enumerate();
            all.map(|(index, one)| (label(index), one.switches))
                .collect()
        })
    }

    fn blocked_calls(&mut self) -> io::Result<()> {
        self.family(BLOCKED_CALLS, "counter", BLOCKED_CALLS_HELP, |shown| {
            let label = |name| format!(",call=\"{}\"", escaped(name));
            let calls = shown.metrics.blocked_calls.iter();
            calls.map(|call| (label(&call.name), call.count)).collect()
        })?;
        let help = "The same, by where the threads were spawned: the most frequent places.";
        let name = "greenthread_blocked_places_total";
        self.family(name, "counter", help, |shown| {
            of_places(shown, |place| place.count)
        })?;
        let help = "For how long such threads held kernel threads, while times were measured.";
        let name = "greenthread_blocked_places_seconds_total";
        self.family(name, "counter", help, |shown| {
            of_places(shown, |place| place.time.as_secs_f64())
        })
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) -> io::Result<()> {
        writeln!(self.text, "# HELP {name} {help}")?;
        writeln!(self.text, "# TYPE {name} {kind}")
    }

    /// Writes a family with the samples of each runtime.
    fn family<T: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&Shown) -> Vec<Sample<T>>,
    ) -> io::Result<()> {
        self.head(name, kind, help)?;
        for shown in &self.runtimes {
            let number = shown.number;
            for (labels, value) in samples(shown) {
                writeln!(self.text, "{name}{{runtime=\"{number}\"{labels}}} {value}")?;
            }
        }
        Ok(())
    }
}

fn of_places<T>(shown: &Shown, figure: impl Fn(&BlockedPlace) -> T) -> Vec<Sample<T>> {
    let mut samples = Vec::new();
    for call in &shown.metrics.blocked_calls {
        for place in &call.places {
            let at = place.spawned_at.map_or(String::new(), |at| at.to_string());
            let (call, at) = (escaped(&call.name), escaped(&at));
            let labels = format!(",call=\"{call}\",spawned_at=\"{at}\"");
            samples.push((labels, figure(place)));
        }
    }
    samples
}

/// The bounds of the buckets, as powers of two of nanoseconds.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=34;

fn write_histogram(
    out: &mut impl Write,
    name: &str,
    labels: &str,
    histogram: &Histogram,
) -> io::Result<()> {
    let buckets: Vec<_> = histogram.buckets().collect();
    for exponent in BOUNDS {
        let bound = Duration::from_nanos(1 << exponent);
        let within = buckets.iter().filter(|bucket| bucket.up_to <= bound);
        let count: u64 = within.map(|bucket| bucket.count).sum();
        let bound = bound.as_secs_f64();
        writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}")?;
    }
    // The count is that of the buckets, although threads run meanwhile: a histogram is a snapshot.
    let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(out, "{name}_sum{{{labels}}} {sum}")?;
    writeln!(out, "{name}_count{{{labels}}} {count}")
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(feature = "metrics")]
pub use self::publish::publish_metrics;

/// The crate metrics. A recorder keeps histograms of its own, so each call gives it what was added since the last one.
#[cfg(feature = "metrics")]
mod publish {
    use std::sync::{Mutex, PoisonError};

    use metrics::Unit;

    use super::{BLOCKED_CALLS, BLOCKED_CALLS_HELP, full_name, metrics_of};
    use crate::engine::facade::{Backend, Running};
    use crate::engine::public::{Bucket, Histogram, Metrics};
    use crate::observe::figures::{FIGURES, Value};

    /// A histogram that was published before: the number of its runtime, its name and part, and what it was like.
    type Published = ((usize, &'static str, &'static str), Histogram);

    static PUBLISHED: Mutex<Vec<Published>> = Mutex::new(Vec::new());

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
        let mut published = PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner);
        describe();
        for Running {
            number, backend, ..
        } in Backend::all()
        {
            publish(number, &metrics_of(backend), &mut published);
        }
    }

    fn describe() {
        for figure in FIGURES {
            let (name, help) = (full_name(figure), figure.help);
            match figure.value {
                Value::Counter(_) => metrics::describe_counter!(name, Unit::Count, help),
                Value::Gauge(_) => metrics::describe_gauge!(name, Unit::Count, help),
                Value::Times(_) => metrics::describe_histogram!(name, Unit::Seconds, help),
            }
        }
        metrics::describe_counter!(BLOCKED_CALLS, Unit::Count, BLOCKED_CALLS_HELP);
    }

    fn publish(number: usize, figures: &Metrics, published: &mut Vec<Published>) {
        let runtime = [("runtime", number.to_string())];
        for figure in FIGURES {
            let name = full_name(figure);
            match figure.value {
                Value::Counter(of) => metrics::counter!(name, &runtime).absolute(of(figures)),
                Value::Gauge(of) => metrics::gauge!(name, &runtime).set(of(figures) as f64),
                Value::Times(parts) => {
                    for (part, of) in parts {
                        let mut labels = runtime.to_vec();
                        if !part.is_empty() {
                            labels.push(("from", (*part).into()));
                        }
                        let recorder = metrics::histogram!(name.clone(), &labels);
                        let key = (number, figure.name, *part);
                        for (up_to, count) in added(published, key, of(figures)) {
                            recorder.record_many(up_to, count as usize);
                        }
                    }
                }
            }
        }
        for call in &figures.blocked_calls {
            let labels = [runtime[0].clone(), ("call", call.name.clone())];
            metrics::counter!(BLOCKED_CALLS, &labels).absolute(call.count);
        }
    }

    /// What was added to a histogram since it was last published: seconds, and how often.
    fn added(
        published: &mut Vec<Published>,
        key: (usize, &'static str, &'static str),
        now: &Histogram,
    ) -> Vec<(f64, u64)> {
        let known = published.iter().position(|(known, _)| *known == key);
        let place = known.unwrap_or_else(|| {
            published.push((key, Histogram::default()));
            published.len() - 1
        });
        let before = std::mem::replace(&mut published[place].1, now.clone());
        let mut before = before.buckets().peekable();
        let difference = |bucket: Bucket| {
            let known = before.next_if(|earlier| earlier.up_to == bucket.up_to);
            let count = bucket.count - known.map_or(0, |earlier| earlier.count);
            (bucket.up_to.as_secs_f64(), count)
        };
        let differences = now.buckets().map(difference);
        differences.filter(|(_, count)| *count != 0).collect()
    }
}
