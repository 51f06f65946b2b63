//! The feature `metrics`: what a recorder gets is what the figures say, and of histograms what was added since.
#![cfg(feature = "metrics")]

use crate::common::*;
use greenthread::observe;
use greenthread::runtime::Runtime;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What each series was last set to, or for histograms how many values it got.
#[derive(Default)]
struct Kept {
    series: BTreeMap<String, (f64, f64)>,
    described: BTreeSet<String>,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    series: BTreeMap::new(),
    described: BTreeSet::new(),
});

struct Keeper;

struct Series(String);

impl Series {
    fn of(key: &Key) -> Arc<Series> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels: Vec<_> = labels.collect();
        Arc::new(Series(format!("{}[{}]", key.name(), labels.join(","))))
    }

    fn change(&self, change: impl FnOnce(&mut (f64, f64))) {
        change(
            KEPT.lock()
                .unwrap()
                .series
                .entry(self.0.clone())
                .or_default(),
        );
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.change(|(kept, _)| *kept += value as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|(kept, _)| *kept = kept.max(value as f64));
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.change(|(kept, _)| *kept += value);
    }

    fn decrement(&self, value: f64) {
        self.change(|(kept, _)| *kept -= value);
    }

    fn set(&self, value: f64) {
        self.change(|(kept, _)| *kept = value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.change(|(count, sum)| (*count, *sum) = (*count + 1.0, *sum + value));
    }
}

impl Recorder for Keeper {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        KEPT.lock().unwrap().described.insert(name.as_str().into());
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        KEPT.lock().unwrap().described.insert(name.as_str().into());
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        KEPT.lock().unwrap().described.insert(name.as_str().into());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::of(key))
    }
}

#[test]
fn a_recorder_gets_every_figure() {
    alone!();
    let _dog = watchdog("facade::a_recorder_gets_every_figure");
    // Without a recorder nothing happens, and nothing is lost of what follows.
    observe::measure(true);
    metrics::set_global_recorder(Keeper).unwrap();
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let mut before = 0.0;
    for round in 1..=3_u32 {
        let turns = || (0..100).for_each(|_| greenthread::yield_now());
        runtime.spawn(turns).join().unwrap();
        // The last switch is counted a moment after the thread's end.
        wait_until(|| {
            let metrics = runtime.metrics();
            let switches = if green() { 101 * u64::from(round) } else { 0 };
            metrics.live_threads == 0 && metrics.switches >= switches
        });
        observe::publish_metrics();
        let kept = KEPT.lock().unwrap();
        let value = |name: &str| kept.series[&format!("greenthread_{name}[runtime=0]")];
        assert_eq!(value("spawns_total").0, f64::from(round));
        assert_eq!(value("processors").0, 1.0);
        let metrics = runtime.metrics();
        if green() {
            assert_eq!(value("switches_total").0, metrics.switches as f64);
            let (count, sum) = value("run_time_seconds");
            assert_eq!(count, metrics.run_time.count() as f64);
            assert!(count >= before + 100.0);
            let exact = metrics.run_time.sum().as_secs_f64();
            assert!(
                exact <= sum * 1.000_001 && sum <= exact * 1.3 + 1e-6,
                "{exact} and {sum}"
            );
            before = count;
        }
        let named = kept.series.keys().map(|key| key.split('[').next().unwrap());
        for name in named {
            assert!(kept.described.contains(name), "{name}");
        }
    }
}
