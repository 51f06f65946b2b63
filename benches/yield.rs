//! What `yield_now` costs with 2, 10 and 1,000 threads ready: the last no longer fit the caches.
//! An operation is one yield, whichever thread makes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("yield");
    support::row(&mut group, "2", support::inside(|n| yields(n, 2)));
    support::row(&mut group, "10", support::inside(|n| yields(n, 10)));
    support::row(&mut group, "1000", support::inside(|n| yields(n, 1000)));
    group.finish();
    criterion.final_summary();
}

/// How long `n` yields take, made by so many threads in equal shares.
fn yields(n: u64, threads: u64) -> Duration {
    let each = n.div_ceil(threads);
    // How many have come to the start line, and the start signal. The joins order all the rest.
    let line = Arc::new((AtomicU64::new(0), AtomicBool::new(false)));
    let runner = {
        let line = line.clone();
        move || {
            line.0.fetch_add(1, Relaxed);
            while !line.1.load(Relaxed) {
                greenthread::yield_now();
            }
            (0..each).for_each(|_| greenthread::yield_now());
        }
    };
    let handles: Vec<_> = (0..threads)
        .map(|_| greenthread::spawn(runner.clone()))
        .collect();
    while line.0.load(Relaxed) < threads {
        greenthread::yield_now();
    }
    let start = Instant::now();
    line.1.store(true, Relaxed);
    for handle in handles {
        handle.join().expect("a runner panicked");
    }
    // The shares were rounded up.
    start.elapsed().mul_f64(n as f64 / (each * threads) as f64)
}
