//! Measures what the simulation's operations cost here, prints it as `cost::MEASURED` has it, and
//! shows how well the simulation then foretells what is measured with one and two processors.
//!
//! What memory and the kernel cost is measured by two kernel threads, each on a CPU of its own. What
//! a switch and a thread cost is measured with work stealing on one processor, and what the simulated
//! policy costs there by itself is subtracted; everything else is foretold, not fitted.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use greenthread::policy as real;
use greenthread::runtime::Runtime;
use greenthread_simulator::cost::{Costs, FREE, LINES};
use greenthread_simulator::machine::simulate;
use greenthread_simulator::workload::{Chains, Workload, Yields};
use greenthread_simulator::{contenders, engine, policy};

/// Each figure is the lower quartile of so many measurements, taken while the CPUs are ours: what
/// disturbs makes longer.
const ROUNDS: usize = 20;
/// How long undisturbed ones are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_millis(1);
const CHAIN: u64 = 100_000;
const YIELDS: u64 = 20_000;
const YIELDERS: usize = 10;
const LOCKINGS: u64 = 100_000;

#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

fn main() {
    let costs = fit();
    println!("{costs:#?}");
    compare(&costs);
}

fn fit() -> Costs {
    let (round_trip, with_lines) = (ping_pong(0), ping_pong(LINES));
    let modify = typical(|| each(1_000_000, |word| _ = word.fetch_add(1, Relaxed)));
    let (transfer, keep) = lines(round_trip, modify, contended());
    let system_call = typical(|| each(100_000, |word| futex_wake(word)));
    let (call, latency) = wake();
    let mut costs = Costs {
        hit: typical(|| {
            each(1_000_000, |word| {
                word.store(word.load(Relaxed) + 1, Relaxed)
            })
        }) / 2.0,
        modify,
        fence: typical(|| each(1_000_000, |_| fence(SeqCst))),
        transfer,
        keep,
        pause: typical(|| each(1_000_000, |_| spin_loop())),
        system_call,
        wake_call: (call - system_call).max(0.0),
        wake_latency: (latency - system_call).max(0.0),
        migration: (with_lines - round_trip).max(0.0) / 2.0,
        ..FREE
    };
    let alone = |kind, costs: &Costs| simulated(kind, 0, 1, costs);
    costs.switch = measured(Kind::Yields, 0, 1) - alone(Kind::Yields, &costs);
    costs.thread = measured(Kind::Chains, 0, 1) - alone(Kind::Chains, &costs);
    costs
}

fn compare(costs: &Costs) {
    println!("| work | policy | processors | measured | simulated | simulated / measured |");
    println!("|---|---|---:|---:|---:|---:|");
    let row = |work: &str, policy: &str, count, measured: f64, simulated: f64| {
        let ratio = simulated / measured;
        println!("| {work} | {policy} | {count} | {measured:.1} | {simulated:.1} | {ratio:.2} |");
    };
    for kind in [Kind::Chains, Kind::Yields] {
        for (contender, policy) in contenders::ALL.iter().enumerate().take(REAL.len()) {
            for count in [1, 2] {
                let measured = measured(kind, contender, count);
                let simulated = simulated(kind, contender, count, costs);
                row(
                    &format!("{kind:?}"),
                    policy.name,
                    count,
                    measured,
                    simulated,
                );
            }
        }
    }
    row(
        "Modify",
        "",
        2,
        contended(),
        modified_in_virtual_time(costs),
    );
    for count in [1, 2] {
        row(
            "Lock",
            "",
            count,
            locked(count),
            locked_in_virtual_time(count, costs),
        );
    }
}

// ---- memory and the kernel ----

/// The lower quartile of what `measure` finds while the CPUs are this process's, or, if the machine is
/// too busy for that, of all.
fn typical(mut measure: impl FnMut() -> f64) -> f64 {
    let (mut all, mut undisturbed) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut were_free = are_cpus_free();
    while undisturbed.len() < ROUNDS && start.elapsed() < PATIENCE {
        let figure = measure();
        let are_free = are_cpus_free();
        all.push(figure);
        if were_free && are_free {
            undisturbed.push(figure);
        }
        were_free = are_free;
    }
    if undisturbed.len() < ROUNDS / 3 {
        let (few, of) = (undisturbed.len(), all.len());
        eprintln!("a busy machine: {few} of {of} measurements were undisturbed");
        return quartile(&mut all);
    }
    quartile(&mut undisturbed)
}

/// Whether a thread on each of two CPUs gets all of it.
fn are_cpus_free() -> bool {
    let is_free = |cpu| {
        pin(cpu);
        let start = Instant::now();
        let before = cpu_time();
        while start.elapsed() < PROBE {
            spin_loop();
        }
        cpu_time() - before > PROBE.as_nanos() as u64 * 97 / 100
    };
    thread::scope(|scope| {
        let both = [0, 1].map(|cpu| scope.spawn(move || is_free(cpu)));
        both.map(|one| one.join().unwrap()) == [true; 2]
    })
}

fn cpu_time() -> u64 {
    // SAFETY: a plain structure, which the call fills in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn quartile(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 4]
}

/// What a transfer takes, and how long a line is kept, so that the simulated machine has these two
/// figures: one way of a baton is two transfers and one keeping (a writer takes the line away from the
/// reader, who then fetches it); and who fetches a contended line modifies it as often as it fits.
fn lines(round_trip: f64, modify: f64, contended: f64) -> (f64, f64) {
    let one_way = round_trip / 2.0;
    let keep = ((one_way / 2.0 - contended) / (contended / modify - 0.5)).max(0.0);
    ((one_way - keep) / 2.0, keep)
}

/// Nanoseconds that one call takes.
fn each(count: u32, mut call: impl FnMut(&AtomicU32)) -> f64 {
    let word = Apart(AtomicU32::new(0));
    let start = Instant::now();
    for _ in 0..count {
        call(black_box(&word.0));
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// The round trip of a baton between two CPUs, with so many lines besides that each of the two
/// writes.
fn ping_pong(lines: usize) -> f64 {
    const TRIPS: u32 = 2_000;
    typical(|| {
        let baton = Apart(AtomicU32::new(0));
        let cargo: Vec<Apart<AtomicU64>> = (0..lines).map(|_| Apart::default()).collect();
        let play = |side: u32| {
            pin(side as usize);
            let start = Instant::now();
            for turn in 0..TRIPS {
                while baton.0.load(Acquire) != 2 * turn + side {
                    spin_loop();
                }
                for line in &cargo {
                    line.0.store(line.0.load(Relaxed) + 1, Relaxed);
                }
                baton.0.store(2 * turn + side + 1, Release);
            }
            start.elapsed().as_nanos() as f64 / f64::from(TRIPS)
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| play(1));
            scope.spawn(|| play(0)).join().unwrap();
            other.join().unwrap()
        })
    })
}

/// Nanoseconds between two read-modify-writes of one word by two CPUs that do nothing else.
fn contended() -> f64 {
    const TIMES: u32 = 100_000;
    typical(|| {
        let word = Apart(AtomicU32::new(0));
        let line = std::sync::Barrier::new(2);
        let play = |cpu| {
            pin(cpu);
            line.wait();
            let start = Instant::now();
            // Whoever is first goes on until the other is done: both are at it all the time.
            while word.0.load(Relaxed) < 2 * TIMES {
                for _ in 0..16 {
                    word.0.fetch_add(1, Relaxed);
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(2 * TIMES)
        };
        thread::scope(|scope| {
            let both = [0, 1].map(|cpu| scope.spawn(move || play(cpu)));
            both.map(|one| one.join().unwrap())
                .into_iter()
                .fold(0.0, f64::max)
        })
    })
}

/// What a futex call takes that wakes somebody on another CPU, and until that one runs.
fn wake() -> (f64, f64) {
    const TIMES: usize = 4_000;
    const ASLEEP: Duration = Duration::from_micros(50);
    let word = Apart(AtomicU32::new(0));
    let woken_at = Apart(AtomicU64::new(0));
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let (mut calls, mut latencies) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for turn in 1..=TIMES as u32 {
                while word.0.load(Acquire) != turn {
                    futex_wait(&word.0, turn - 1);
                }
                woken_at.0.store(now(), Release);
            }
        });
        let waker = scope.spawn(|| {
            pin(0);
            for turn in 1..=TIMES as u32 {
                let until = Instant::now() + ASLEEP;
                while Instant::now() < until {
                    spin_loop();
                }
                woken_at.0.store(0, Relaxed);
                word.0.store(turn, Release);
                let before = now();
                futex_wake(&word.0);
                calls.push((now() - before) as f64);
                while woken_at.0.load(Acquire) == 0 {
                    spin_loop();
                }
                latencies.push(woken_at.0.load(Relaxed).saturating_sub(before) as f64);
            }
        });
        waker.join().unwrap();
    });
    (quartile(&mut calls), quartile(&mut latencies))
}

fn futex_wait(word: &AtomicU32, expected: u32) {
    // SAFETY: a futex call on a living word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            0,
        )
    };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// The caller stays on one CPU.
fn pin(cpu: usize) {
    // SAFETY: the set is a plain bit set, and the calling thread's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

// ---- the lock by itself ----

/// Nanoseconds between two lockings by so many kernel threads that do nothing else.
fn locked(threads: usize) -> f64 {
    typical(|| {
        let lock = Apart(real::Lock::new(0_u64));
        let line = std::sync::Barrier::new(threads);
        let play = |cpu| {
            pin(cpu);
            line.wait();
            let start = Instant::now();
            for _ in 0..LOCKINGS {
                *lock.0.lock() += 1;
            }
            start.elapsed().as_nanos() as f64
        };
        let longest = thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|cpu| scope.spawn(move || play(cpu)))
                .collect();
            all.into_iter()
                .map(|one| one.join().unwrap())
                .fold(0.0, f64::max)
        });
        longest / (LOCKINGS * threads as u64) as f64
    })
}

fn modified_in_virtual_time(costs: &Costs) -> f64 {
    let word = Apart(0_u64);
    let end = std::cell::Cell::new(0.0_f64);
    engine::run(2, costs, |_| {
        for _ in 0..LOCKINGS {
            engine::modify(&raw const word.0);
        }
        end.set(end.get().max(engine::now()));
    });
    end.get() / (2 * LOCKINGS) as f64
}

fn locked_in_virtual_time(processors: usize, costs: &Costs) -> f64 {
    let lock = Apart(policy::Lock::new(0_u64));
    let end = std::cell::Cell::new(0.0_f64);
    engine::run(processors, costs, |_| {
        for _ in 0..LOCKINGS {
            *lock.0.lock() += 1;
        }
        end.set(end.get().max(engine::now()));
    });
    end.get() / (LOCKINGS * processors as u64) as f64
}

// ---- the runtime ----

#[derive(Clone, Copy, Debug)]
enum Kind {
    Chains,
    Yields,
}

/// The real ones, in the contenders' order.
const REAL: &[fn(greenthread::runtime::Builder) -> greenthread::runtime::Builder] = &[
    |builder| builder.policy(real::WorkStealing::new()),
    |builder| builder.policy(real::GlobalQueue::new()),
];

/// Processor time per operation, in nanoseconds.
fn simulated(kind: Kind, contender: usize, processors: usize, costs: &Costs) -> f64 {
    let work: &dyn Workload = match kind {
        Kind::Chains => &Chains {
            length: CHAIN,
            work: 0.0,
        },
        Kind::Yields => &Yields {
            threads: YIELDERS,
            each: YIELDS,
        },
    };
    let policy = (contenders::ALL[contender].make)();
    simulate(&*policy, processors, costs, work, 1).per_operation(processors)
}

/// The same on this machine.
fn measured(kind: Kind, contender: usize, processors: usize) -> f64 {
    let runtime = REAL[contender](Runtime::builder().processors(processors));
    let runtime = runtime.build().expect("no runtime");
    typical(|| {
        let (parts, operations) = match kind {
            Kind::Chains => (processors, CHAIN),
            Kind::Yields => (processors * YIELDERS, YIELDS * YIELDERS as u64),
        };
        let end = Arc::new(End {
            left: AtomicUsize::new(parts),
            main: thread::current(),
        });
        let done = end.clone();
        let start = Instant::now();
        runtime
            .spawn(move || {
                let first = if matches!(kind, Kind::Yields) {
                    parts
                } else {
                    processors
                };
                for _ in 0..first {
                    let end = end.clone();
                    greenthread::spawn(move || match kind {
                        Kind::Chains => chain(CHAIN - 1, end),
                        Kind::Yields => yields(end),
                    });
                }
            })
            .join()
            .expect("it does not panic");
        while done.left.load(Acquire) != 0 {
            thread::park();
        }
        start.elapsed().as_nanos() as f64 / operations as f64
    })
}

/// Wakes the main thread when all has ended.
struct End {
    left: AtomicUsize,
    main: Thread,
}

impl End {
    fn one_less(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.main.unpark();
        }
    }
}

fn chain(left: u64, end: Arc<End>) {
    match left {
        0 => end.one_less(),
        _ => drop(greenthread::spawn(move || chain(left - 1, end))),
    }
}

fn yields(end: Arc<End>) {
    (0..YIELDS).for_each(|_| greenthread::yield_now());
    end.one_less();
}
