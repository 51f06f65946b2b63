//! What the benches share: the two runtimes each of them measures, and how.

pub mod blocking;

use std::sync::LazyLock;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use greenthread::runtime::{Mode, Runtime};

/// Short measurements: there are many rows, and longer ones only see more of the machine's noise.
pub fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30)
        .configure_from_args()
}

/// The runtime with a single processor: no stealing, no other processor to wake.
pub fn one() -> &'static Runtime {
    static ONE: LazyLock<Runtime> = LazyLock::new(|| {
        let runtime = Runtime::builder().processors(1).build().expect("a runtime");
        assert_eq!(
            runtime.mode(),
            Mode::Green,
            "kernel threads would be measured"
        );
        runtime
    });
    &ONE
}

/// Adds the row `name` for the default runtime and for one processor: `work(runtime, n)` tells how
/// long `n` operations took.
pub fn row(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    work: impl Fn(&'static Runtime, u64) -> Duration,
) {
    for (which, runtime) in [("default", Runtime::global as fn() -> _), ("one", one)] {
        group.bench_function(format!("{name}/{which}"), |b| {
            b.iter_custom(|n| work(runtime(), n));
        });
    }
}

/// Runs `work` on a green thread of `runtime`, as [`row`] wants it.
pub fn inside(
    work: impl Fn(u64) -> Duration + Copy + Send + 'static,
) -> impl Fn(&'static Runtime, u64) -> Duration {
    move |runtime, n| {
        runtime
            .spawn(move || work(n))
            .join()
            .expect("the work panicked")
    }
}
