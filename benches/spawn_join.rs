//! What a thread costs from spawn to join, spawned inside the runtime, and as a yardstick what a
//! kernel thread costs. An operation is one thread, whichever way they are spawned.

use std::time::{Duration, Instant};

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("spawn_join");
    support::row(
        &mut group,
        "one at a time",
        support::inside(|n| batches(n, 1)),
    );
    support::row(
        &mut group,
        "1000 at a time",
        support::inside(|n| batches(n, 1000)),
    );
    support::row(&mut group, "scoped", support::inside(scoped));
    support::row(&mut group, "from a kernel thread", |runtime, n| {
        let start = Instant::now();
        for _ in 0..n {
            runtime
                .spawn(|| ())
                .join()
                .expect("an empty thread panicked");
        }
        start.elapsed()
    });
    group.bench_function("std::thread", |b| {
        b.iter(|| {
            std::thread::spawn(|| ())
                .join()
                .expect("an empty thread panicked")
        });
    });
    group.finish();
    criterion.final_summary();
}

/// `n` threads in batches: all of a batch are spawned, then all joined.
fn batches(n: u64, size: u64) -> Duration {
    let mut handles = Vec::with_capacity(size as usize);
    let start = Instant::now();
    let mut left = n;
    while left > 0 {
        let now = left.min(size);
        handles.extend((0..now).map(|_| greenthread::spawn(|| ())));
        for handle in handles.drain(..) {
            handle.join().expect("an empty thread panicked");
        }
        left -= now;
    }
    start.elapsed()
}

/// `n` threads one at a time, each in a scope of its own.
fn scoped(n: u64) -> Duration {
    let mut count = 0;
    let start = Instant::now();
    for _ in 0..n {
        greenthread::scope(|scope| {
            scope.spawn(|| count += 1);
        });
    }
    let elapsed = start.elapsed();
    assert_eq!(count, n);
    elapsed
}
