//! What a schedule point costs, and how many runs a second `greenthread::sim` makes beside shuttle, in one run:
//!
//! ```sh
//! RUSTFLAGS="--cfg greenthread_points -C passes=tsan -C llvm-args=-tsan-instrument-func-entry-exit=0" \
//!     cargo run --release --target x86_64-unknown-linux-gnu -p sim
//! ```
//!
//! shuttle runs on one kernel thread; `sim` has a process for each CPU. So both are also given for one CPU: the rows of `sim` say how
//! much CPU time a run takes. std's `Mutex` is compiled, and spins a hundred times before it waits: with many switches
//! that is most of the time of contended runs. shuttle's own `Mutex` does not spin.
//!
//! Last come two examples, `bank` and the store of `redis`, beside a run on a runtime of one processor. That is to be of an ordinary
//! build: `cargo run --release -p sim -- ordinary` runs nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use greenthread::sim::{Builder, Isolation, Strategy, Summary};

const RANDOM: Strategy = Strategy::Random;
const PCT: Strategy = Strategy::Pct { depth: 3 };

fn builder(strategy: Strategy) -> Builder {
    let builder = Builder::new().isolation(Isolation::Batch);
    builder.strategy(strategy).stalls(0).spurious(0)
}

/// The CPU time that ended children have used.
fn children() -> Duration {
    // SAFETY: zeroes are valid, and the call fills them in.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Runs a check. Returns what it amounts to, and the time and the CPU time that it takes.
fn ours(
    seeds: u64,
    strategy: Strategy,
    body: impl Fn() + Send + Sync + 'static,
) -> (Summary, Duration, Duration) {
    let (start, before) = (Instant::now(), children());
    let summary = builder(strategy).seeds(seeds).run(body);
    let summary = summary.unwrap_or_else(|failure| panic!("{failure}"));
    (summary, start.elapsed(), children() - before)
}

/// Nanoseconds of CPU time for a point, in runs with `threads` threads that make `count` changes each.
fn point(strategy: Strategy, threads: usize) -> f64 {
    let body = |count: u64| {
        move || {
            let word = Arc::new(AtomicU64::new(0));
            let change = move || (0..count).for_each(|_| _ = word.fetch_add(1, Relaxed));
            let started: Vec<_> = (1..threads)
                .map(|_| greenthread::spawn(change.clone()))
                .collect();
            change();
            started
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
    };
    const COUNT: u64 = 500_000;
    let (with, _, long) = ours(10, strategy, body(COUNT));
    let (without, _, short) = ours(10, strategy, body(0));
    // Of runs there are more than seeds: those that warm processes up. They come to as many points each.
    let runs = 10 + 3 + 1;
    let points = (with.points - without.points) / 10 * runs;
    (long - short).as_nanos() as f64 / points as f64
}

/// A program: its name, how many seeds it runs under, and its body for shuttle and for `sim`.
type Program = (&'static str, u64, fn(), fn());

const PROGRAMS: [Program; 4] = [
    (
        "yield, 2 threads, 1,000 each",
        4_000,
        shuttles::yields,
        native::yields,
    ),
    (
        "Mutex, 2 x 50",
        40_000,
        shuttles::locks::<2, 50>,
        native::locks::<2, 50>,
    ),
    (
        "Mutex, 4 x 1,000",
        800,
        shuttles::locks::<4, 1000>,
        native::locks::<4, 1000>,
    ),
    (
        "Mutex, 2 x 3",
        100_000,
        shuttles::locks::<2, 3>,
        native::locks::<2, 3>,
    ),
];

mod native {
    use super::*;

    pub(super) fn yields() {
        let work = || (0..1000).for_each(|_| greenthread::yield_now());
        let threads = [greenthread::spawn(work), greenthread::spawn(work)];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    pub(super) fn locks<const THREADS: usize, const EACH: usize>() {
        let sum = Arc::new(Mutex::new(0));
        let add = move || (0..EACH).for_each(|_| *sum.lock().unwrap() += 1);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| greenthread::spawn(add.clone()))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

mod shuttles {
    use shuttle::sync::{Arc, Mutex};
    use shuttle::thread;

    pub(super) fn yields() {
        let work = || (0..1000).for_each(|_| thread::yield_now());
        let threads = [thread::spawn(work), thread::spawn(work)];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    pub(super) fn locks<const THREADS: usize, const EACH: usize>() {
        let sum = Arc::new(Mutex::new(0));
        let add = move || (0..EACH).for_each(|_| *sum.lock().unwrap() += 1);
        let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(add.clone())).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

// ==== the examples ====

#[path = "../../../examples/bank.rs"]
mod bank;

mod redis;

/// Prints what runs of the examples take.
fn examples(is_ordinary: bool) {
    const RUNS: u64 = 20;
    let each: [(&str, fn()); 2] = [("bank", bank::main), ("redis", redis::main)];
    for (name, main) in each {
        let time = if is_ordinary {
            let runtime = greenthread::runtime::Runtime::builder().processors(1);
            let runtime = runtime.build().unwrap();
            let run = || {
                let start = Instant::now();
                runtime.spawn(main).join().unwrap();
                start.elapsed()
            };
            (0..RUNS).map(|_| run()).min().unwrap().as_secs_f64()
        } else {
            // Those that warm processes up count, too: three, and one for each process.
            let (summary, _, cpu) = ours(RUNS, RANDOM, main);
            println!("{name}: {} points a run", summary.points / RUNS);
            cpu.as_secs_f64() / (RUNS + 3 + 1) as f64
        };
        println!("{name}: {:.1} ms", time * 1e3);
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("ordinary") {
        return examples(true);
    }
    let stays = point(PCT, 1);
    let switches = point(Strategy::RoundRobin, 2);
    let run =
        |(_, seeds, _, body): Program| [RANDOM, PCT].map(|strategy| ours(seeds, strategy, body));
    let all = PROGRAMS.map(run);
    examples(false);
    // What comes before a check runs again in the process that is made for it: so shuttle comes last.
    println!("a point: {stays:.1} ns if the thread stays, {switches:.1} ns if it switches");
    for ((name, seeds, theirs, _), ours) in PROGRAMS.into_iter().zip(all) {
        let start = Instant::now();
        let count = seeds / 4;
        shuttle::check_random(theirs, count as usize);
        let theirs = start.elapsed().as_secs_f64() / count as f64;
        println!("{name}: shuttle {:.0}/s", 1.0 / theirs);
        for ((summary, time, cpu), strategy) in ours.into_iter().zip([RANDOM, PCT]) {
            let [time, cpu] = [time, cpu].map(|time| time.as_secs_f64() / seeds as f64);
            println!(
                "    {strategy:?}: {:.0}/s, {:.2} times shuttle's; on one CPU {:.2} times; {} points and {} switches a run",
                1.0 / time,
                theirs / time,
                theirs / cpu,
                summary.points / seeds,
                summary.switches / seeds
            );
        }
    }
}
