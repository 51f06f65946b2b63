//! A pipeline that is slower than it should be: one thread computes for long stretches, another blocks its kernel thread.
//! `docs/debugging.md` finds out.

use std::time::{Duration, Instant};

use greenthread::{channel, thread};

pub(crate) fn main() {
    let seconds = std::env::args()
        .nth(2)
        .map_or(2, |n| n.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (jobs, to_do) = channel::bounded(10);
    let (results, done) = channel::bounded(10);
    let named = |name: &str| thread::Builder::new().name(name.into());
    let reader = named("reader").spawn(move || {
        let mut number = 0_u64;
        while Instant::now() < end && jobs.send(read(number)).is_ok() {
            number += 1;
        }
    });
    let workers: Vec<_> = ["worker-0", "worker-1", "worker-2"]
        .map(|name| {
            let (to_do, results) = (to_do.clone(), results.clone());
            named(name).spawn(move || {
                for job in to_do {
                    results.send(compute(job)).unwrap();
                }
            })
        })
        .into_iter()
        .collect();
    drop((to_do, results));
    println!("{} jobs", done.iter().count());
    reader.unwrap().join().unwrap();
    for worker in workers {
        worker.unwrap().join().unwrap();
    }
}

/// Reads a job by a call that the crate cannot turn into a wait: a driver of a device, say. It blocks the kernel thread.
fn read(number: u64) -> u64 {
    greenthread::unhooked(|| std::thread::sleep(Duration::from_millis(12)));
    number
}

/// Most jobs are quick; one of twenty computes for longer than a time slice.
fn compute(job: u64) -> u64 {
    let rounds = if job.is_multiple_of(20) {
        40_000_000
    } else {
        40_000
    };
    (0..rounds).fold(job, |sum, i| {
        std::hint::black_box(sum).wrapping_mul(31).wrapping_add(i)
    })
}
