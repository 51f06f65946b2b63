//! [`write_prometheus`]: the figures of all runtimes as Prometheus reads them, in its text format, version 0.0.4.
//!
//! A family has one `# HELP` and one `# TYPE`, and then the samples of all runtimes. The label `runtime` is the number
//! of the runtime, in the order of the starts. A histogram has a bucket for each power of two from 2^10 to 2^34
//! nanoseconds: 25 of them, from a microsecond to 17 seconds. The narrow buckets of [`Histogram`] fit into
//! these exactly.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use super::figures::{COUNTS, Figure, STATES, TIMES, Times};
use super::measure::metrics_of;
use crate::engine::door::{BlockedPlace, Histogram, Metrics, Mode, runtimes};

/// Writes the figures of all runtimes of the process in Prometheus' text format, version 0.0.4.
///
/// A server answers a request for `/metrics` with it; the content type is `text/plain; version=0.0.4`. The
/// names begin with `greenthread_`. Each sample has the label `runtime`, the number of the runtime in the order of
/// the starts; some have `processor`, or the `call` and the place (`spawned_at`) of threads that block kernel
/// threads. Times are in the histograms only while they are measured ([`measure`](super::measure)).
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
    let runtimes: Vec<Shown> = runtimes::all()
        .into_iter()
        .map(|(number, backend)| Shown {
            number,
            mode: backend.mode(),
            metrics: metrics_of(backend),
        })
        .collect();
    // One call of `out`, which may be a socket.
    let mut page = Page {
        runtimes,
        text: Vec::with_capacity(1 << 14),
    };
    page.counts()?;
    page.states()?;
    page.blocked_calls()?;
    page.times()?;
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

impl Page {
    fn counts(&mut self) -> io::Result<()> {
        for Figure { name, help, of } in COUNTS {
            self.family(name, "counter", help, |shown| {
                vec![(String::new(), of(&shown.metrics))]
            })?;
        }
        Ok(())
    }

    fn states(&mut self) -> io::Result<()> {
        for Figure { name, help, of } in STATES {
            self.family(name, "gauge", help, |shown| {
                vec![(String::new(), of(&shown.metrics))]
            })?;
        }
        let help = "1, with the mode of the runtime as a label.";
        self.family("mode", "gauge", help, |shown| {
            let mode = if shown.mode == Mode::Green {
                "green"
            } else {
                "kernel"
            };
            vec![(format!(",mode=\"{mode}\""), 1)]
        })?;
        let help = "Ready threads that wait at a processor.";
        self.family("queue_length", "gauge", help, |shown| {
            let processors = shown.metrics.processors.iter().enumerate();
            let label = |index| format!(",processor=\"{index}\"");
            processors
                .map(|(index, processor)| (label(index), processor.queue_len))
                .collect()
        })?;
        let help =
            "Times that the processor left a green thread; those of retired ones are left out.";
        self.family("processor_switches_total", "counter", help, |shown| {
            let processors = shown.metrics.processors.iter().enumerate();
            let label = |index| format!(",processor=\"{index}\"");
            processors
                .map(|(index, processor)| (label(index), processor.switches))
                .collect()
        })
    }

    fn blocked_calls(&mut self) -> io::Result<()> {
        let help = "Times that a thread blocked in a system call has lost its processor.";
        self.family("blocked_calls_total", "counter", help, |shown| {
            let calls = shown.metrics.blocked_calls.iter();
            calls
                .map(|call| (format!(",call=\"{}\"", escaped(&call.name)), call.count))
                .collect()
        })?;
        let help = "The same, by where the threads were spawned: the most frequent places.";
        self.family("blocked_places_total", "counter", help, |shown| {
            of_places(shown, |place| place.count)
        })?;
        let help = "For how long such threads held kernel threads, while times were measured.";
        self.family("blocked_places_seconds_total", "counter", help, |shown| {
            of_places(shown, |place| place.time.as_secs_f64())
        })
    }

    fn times(&mut self) -> io::Result<()> {
        for Times { name, help, parts } in TIMES {
            self.head(name, "histogram", help)?;
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
                    histogram_lines(&mut self.text, name, &labels, of(metrics))?;
                }
            }
        }
        Ok(())
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) -> io::Result<()> {
        writeln!(self.text, "# HELP greenthread_{name} {help}")?;
        writeln!(self.text, "# TYPE greenthread_{name} {kind}")
    }

    /// Writes a family. `samples`: of one runtime, each with its labels behind the first one.
    fn family<T: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&Shown) -> Vec<(String, T)>,
    ) -> io::Result<()> {
        self.head(name, kind, help)?;
        for shown in &self.runtimes {
            for (labels, value) in samples(shown) {
                let number = shown.number;
                writeln!(
                    self.text,
                    "greenthread_{name}{{runtime=\"{number}\"{labels}}} {value}"
                )?;
            }
        }
        Ok(())
    }
}

fn of_places<T>(shown: &Shown, figure: impl Fn(&BlockedPlace) -> T) -> Vec<(String, T)> {
    let mut samples = Vec::new();
    for call in &shown.metrics.blocked_calls {
        for place in &call.places {
            let at = place.spawned_at.map_or(String::new(), |at| at.to_string());
            let labels = format!(
                ",call=\"{}\",spawned_at=\"{}\"",
                escaped(&call.name),
                escaped(&at)
            );
            samples.push((labels, figure(place)));
        }
    }
    samples
}

/// The bounds of the buckets, as powers of two of nanoseconds.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=34;

fn histogram_lines(
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
        writeln!(
            out,
            "greenthread_{name}_bucket{{{labels},le=\"{bound}\"}} {count}"
        )?;
    }
    // The count is that of the buckets, although threads run meanwhile: a histogram is a snapshot.
    let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
    writeln!(
        out,
        "greenthread_{name}_bucket{{{labels},le=\"+Inf\"}} {count}"
    )?;
    writeln!(out, "greenthread_{name}_sum{{{labels}}} {sum}")?;
    writeln!(out, "greenthread_{name}_count{{{labels}}} {count}")
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
