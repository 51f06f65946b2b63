//! What a mutex costs: with nobody else at it, and with 2, 100 and 1,000 threads that do nothing
//! but lock it, increment what it guards, and unlock it. The yardstick is std's between kernel
//! threads. An operation is one lock, increment and unlock, whichever thread makes it.

use std::hint::black_box;
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use support::blocking::{self, Green, Kernel};

/// How many operations a thread makes at least, so that they outweigh its end.
const SHARE: u64 = 1000;

static GREEN: greenthread::sync::Mutex<u64> = greenthread::sync::Mutex::new(0);
static KERNEL: std::sync::Mutex<u64> = std::sync::Mutex::new(0);

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("mutex");
    let green = || GREEN.lock().expect("a holder panicked");
    let kernel = || KERNEL.lock().expect("a holder panicked");

    support::row(
        &mut group,
        "alone",
        support::inside(move |n| alone(n, green)),
    );
    group.bench_function("alone/std", |b| b.iter_custom(|n| alone(n, kernel)));
    for threads in [2, 100, 1000] {
        let name = threads.to_string();
        let green = move |n| blocking::mutex::<Green, _>(threads, n, green);
        let green = move |n| at_least(threads * SHARE, n, green);
        support::row(&mut group, &name, support::inside(green));
        group.bench_function(format!("{name}/std"), |b| {
            let kernel = |n| blocking::mutex::<Kernel, _>(threads, n, kernel);
            b.iter_custom(|n| at_least(threads * SHARE, n, kernel));
        });
    }
    group.finish();
    criterion.final_summary();
}

/// How long one thread takes for `n` operations.
fn alone<G: DerefMut<Target = u64>>(n: u64, lock: impl Fn() -> G) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        *black_box(lock()) += 1;
    }
    start.elapsed()
}

/// How long `n` operations take, judged by `least` of them if that is more.
fn at_least(least: u64, n: u64, work: impl Fn(u64) -> Duration) -> Duration {
    let made = n.max(least);
    work(made).mul_f64(n as f64 / made as f64)
}
