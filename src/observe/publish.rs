//! [`publish_metrics`]: the figures of all runtimes for the crate metrics.
//!
//! A recorder keeps histograms of its own, so each call gives it what was added since the last one.

use std::sync::{Mutex, PoisonError};

use metrics::Unit;

use super::figures::{COUNTS, Figure, STATES, TIMES, Times};
use super::measure::metrics_of;
use crate::engine::door::{Bucket, Histogram, Metrics, runtimes};

/// A histogram that was published before: the number of its runtime, its name and part, and what it was like.
type Published = ((usize, &'static str, &'static str), Histogram);

static PUBLISHED: Mutex<Vec<Published>> = Mutex::new(Vec::new());

/// Gives the figures of all runtimes to the recorder of the crate [metrics](https://docs.rs/metrics).
///
/// Call it as often as the figures shall be new, for example from a thread that sleeps in between. The names are
/// those of [`write_prometheus`](super::write_prometheus): counters such as `greenthread_switches_total`, gauges such as
/// `greenthread_threads`, histograms such as `greenthread_run_time_seconds`. Each has the label `runtime`, the number of
/// the runtime in the order of the starts; calls that have blocked kernel threads have the label `call`. Times
/// are recorded while they are measured ([`measure`](super::measure)), each as the upper bound of its bucket.
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
    for (number, backend) in runtimes::all() {
        publish(number, &metrics_of(backend), &mut published);
    }
}

fn name(name: &str) -> String {
    format!("greenthread_{name}")
}

fn describe() {
    for Figure { name: n, help, .. } in COUNTS {
        metrics::describe_counter!(name(n), Unit::Count, help);
    }
    for Figure { name: n, help, .. } in STATES {
        metrics::describe_gauge!(name(n), Unit::Count, help);
    }
    for Times { name: n, help, .. } in TIMES {
        metrics::describe_histogram!(name(n), Unit::Seconds, help);
    }
    let help = "Times that a thread blocked in a system call has lost its processor.";
    metrics::describe_counter!("greenthread_blocked_calls_total", Unit::Count, help);
}

fn publish(number: usize, figures: &Metrics, published: &mut Vec<Published>) {
    let runtime = number.to_string();
    for Figure { name: n, of, .. } in COUNTS {
        metrics::counter!(name(n), "runtime" => runtime.clone()).absolute(of(figures));
    }
    for Figure { name: n, of, .. } in STATES {
        metrics::gauge!(name(n), "runtime" => runtime.clone()).set(of(figures) as f64);
    }
    for call in &figures.blocked_calls {
        let n = "greenthread_blocked_calls_total";
        let labels = [("runtime", runtime.clone()), ("call", call.name.clone())];
        metrics::counter!(n, &labels).absolute(call.count);
    }
    for Times { name: n, parts, .. } in TIMES {
        for (part, of) in parts {
            let recorder = match *part {
                "" => metrics::histogram!(name(n), "runtime" => runtime.clone()),
                from => metrics::histogram!(name(n), "runtime" => runtime.clone(), "from" => from),
            };
            let now = of(figures);
            let key = (number, n, *part);
            let place = match published.iter().position(|(known, _)| *known == key) {
                Some(place) => place,
                None => {
                    published.push((key, Histogram::default()));
                    published.len() - 1
                }
            };
            let before = std::mem::replace(&mut published[place].1, now.clone());
            for (up_to, count) in since(&before, now) {
                recorder.record_many(up_to, count as usize);
            }
        }
    }
}

/// What was added to a histogram: seconds, and how often.
fn since(before: &Histogram, now: &Histogram) -> Vec<(f64, u64)> {
    let mut before = before.buckets().peekable();
    let difference = |bucket: Bucket| {
        let known = before.next_if(|earlier| earlier.up_to == bucket.up_to);
        let count = bucket.count - known.map_or(0, |earlier| earlier.count);
        (bucket.up_to.as_secs_f64(), count)
    };
    let differences = now.buckets().map(difference);
    differences.filter(|(_, count)| *count != 0).collect()
}
