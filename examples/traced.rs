//! A small program whose schedule is worth looking at: workers behind a channel, a lock that they
//! share, a thread that only computes, one that sleeps and one that blocks in the kernel.
//!
//!     cargo run --release --example traced trace.html
//!
//! With `--large` behind the file's name: threads that give way to each other a million times, in all.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use greenthread::sync::Mutex;
use greenthread::{Builder, channel, observe};

const JOBS: u64 = 400;
const WORKERS: u64 = 4;

fn compute(micros: u64) {
    let end = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < end {
        black_box(());
    }
}

fn named<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> greenthread::JoinHandle<T> {
    let builder = Builder::new().name(name.into());
    builder.spawn(work).expect("a thread")
}

fn work() -> u64 {
    let (jobs, to_do) = channel::bounded::<u64>(8);
    let (done, results) = channel::unbounded::<u64>();
    let ledger = Arc::new(Mutex::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|i| {
            let (to_do, done, ledger) = (to_do.clone(), done.clone(), ledger.clone());
            named(format!("worker-{i}"), move || {
                for job in to_do {
                    compute(20 + job % 7 * 15);
                    *ledger.lock().unwrap() += job;
                    done.send(job).unwrap();
                }
            })
        })
        .collect();
    drop((to_do, done));
    let producer = named("producer", move || {
        for job in 0..JOBS {
            if job % 100 == 99 {
                greenthread::sleep(Duration::from_millis(2));
            }
            jobs.send(job).unwrap();
        }
    });
    let ticker = named("ticker", || {
        for _ in 0..12 {
            greenthread::sleep(Duration::from_millis(3));
            compute(30);
        }
    });
    let cruncher = named("cruncher", || compute(30_000));
    let sleeper = named("blocked", || {
        // It blocks its kernel thread: the library does not know of this call.
        // SAFETY: the system reads a valid time.
        #[cfg(target_os = "linux")]
        unsafe {
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 12_000_000,
            };
            libc::syscall(libc::SYS_nanosleep, &raw const time, 0);
        }
    });
    let collector = named("collector", move || results.into_iter().sum::<u64>());
    for thread in workers {
        thread.join().unwrap();
    }
    for thread in [producer, ticker, cruncher, sleeper] {
        thread.join().unwrap();
    }
    let (ledger, collected) = (*ledger.lock().unwrap(), collector.join().unwrap());
    assert_eq!(ledger, collected);
    collected
}

/// Threads give way to each other, a million times in all, more slowly than a trace is collected.
fn give_way() {
    let yielders = (0..10).map(|i| {
        named(format!("yielder-{i}"), || {
            for i in 0..100_000_u64 {
                black_box((0..i % 64).fold(i, |sum, i| black_box(sum + i)));
                greenthread::yield_now();
            }
        })
    });
    let yielders: Vec<_> = yielders.collect();
    for yielder in yielders {
        yielder.join().unwrap();
    }
}

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1);
    let is_large = std::env::args()
        .nth(2)
        .is_some_and(|size| size == "--large");
    // The runtime starts before the trace does.
    greenthread::spawn(|| ()).join().unwrap();
    let (sum, trace) = observe::trace(|| {
        if is_large {
            give_way();
        }
        work()
    })?;
    println!("the sum is {sum}, after {:?}", trace.duration());
    assert_eq!(sum, JOBS * (JOBS - 1) / 2);
    match path {
        Some(path) => trace.save(path),
        None => trace.write_html(std::io::sink()),
    }
}
