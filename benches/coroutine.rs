//! What a coroutine costs: to resume it and have it yield (two switches), beside two yields between
//! two threads (two switches as well), and to create, run and end one that yields nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use greenthread::coroutine::Coroutine;

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("coroutine");
    support::row(&mut group, "resume", support::inside(resumes));
    support::row(&mut group, "two yields", support::inside(yields));
    support::row(&mut group, "life", support::inside(lives));
    group.finish();
    criterion.final_summary();
}

fn resumes(n: u64) -> Duration {
    let mut numbers = Coroutine::new(|yielder, mut number: u64| {
        loop {
            number = yielder.suspend(number + 1);
        }
    });
    let _: Option<()> = numbers.resume(0).as_return();
    let start = Instant::now();
    for number in 0..n {
        assert_eq!(numbers.resume(number).as_yield(), Some(number + 1));
    }
    start.elapsed()
}

fn yields(n: u64) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let other = {
        let stop = stop.clone();
        greenthread::spawn(move || {
            while !stop.load(Relaxed) {
                greenthread::yield_now();
            }
        })
    };
    let start = Instant::now();
    (0..n).for_each(|_| greenthread::yield_now());
    let elapsed = start.elapsed();
    stop.store(true, Relaxed);
    other.join().expect("it only yields");
    elapsed
}

fn lives(n: u64) -> Duration {
    let start = Instant::now();
    for number in 0..n {
        let mut one = Coroutine::new(|_, number: u64| number);
        let _: Option<()> = one.resume(number).as_yield();
    }
    start.elapsed()
}
