//! What a switch costs: corosensei's alone, and the runtime's with all that it adds (the thread
//! pointer, the choice of the next thread), also while a trace is recorded. An operation is a pair of switches, there
//! and back.

use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult};
use greenthread::observe;

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("switch_pair");

    group.bench_function("corosensei", |b| {
        let mut coroutine = Coroutine::new(|yielder, ()| -> () {
            loop {
                yielder.suspend(());
            }
        });
        b.iter(|| matches!(coroutine.resume(()), CoroutineResult::Yield(())));
    });

    // One processor only: on two, each thread could have its own and no switch would happen.
    group.bench_function("green threads", |b| {
        b.iter_custom(|n| {
            support::one()
                .spawn(move || pair(n))
                .join()
                .expect("the work panicked")
        });
    });

    // The same while a trace is recorded.
    group.bench_function("green threads, traced", |b| {
        b.iter_custom(|n| {
            let work = move || support::one().spawn(move || pair(n)).join();
            let (time, _trace) = observe::trace(work).expect("a trace");
            time.expect("the work panicked")
        });
    });

    group.finish();
    criterion.final_summary();
}

/// This thread and another yield to each other `n` times.
fn pair(n: u64) -> Duration {
    let yields = move || (0..n).for_each(|_| greenthread::yield_now());
    let other = greenthread::spawn(yields);
    let start = Instant::now();
    yields();
    let elapsed = start.elapsed();
    other.join().expect("the other thread panicked");
    elapsed
}
