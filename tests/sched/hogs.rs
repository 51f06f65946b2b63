//! Fairness: no thread, however badly behaved, keeps others waiting.
//!
//! Hogs run on every processor while fresh threads, timers and wake-ups ask to be served. The
//! hogs compute, live inside libc, or do nothing but yield.
//!
//! Hogs use all the CPU time that the system gives. So the CPU time of the process tells how long they have kept
//! somebody waiting, however busy the worker is with others.

use crate::support::hogs::{Hogs, compute};
use crate::support::*;
use greenthread::policy::WorkStealing;
use greenthread::runtime::{Mode, Runtime};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// The bound for a fresh thread: two slices of each processor, and some.
const FRESH: Duration = Duration::from_millis(25);
const PROCESSORS: u32 = 2;
/// "A few ms", for whoever waits beside threads that yield all the time.
const FEW: Duration = Duration::from_millis(5);
const SAMPLES: usize = 200;
const COMPUTING: &str = "computing";

/// Is a round content whose threads never rest? One in which the system gave us less than `cpus` CPUs
/// tells of the system: it makes a kernel thread that computes wait behind others', and those that
/// sleep, with which we compare, hardly ever.
fn if_given(cpus: f64, round: impl FnOnce() -> bool) -> bool {
    let (start, before) = (Instant::now(), cpu_time());
    let content = round();
    let given = (cpu_time() - before).div_duration_f64(start.elapsed());
    eprintln!("given {given:.2} CPUs; judged from {cpus}");
    content || given < cpus
}

/// Fresh threads start in time while a hog of this kind sits on each of two processors.
fn fresh_threads_beside<F: FnMut() + Send + 'static>(what: &str, make: impl Fn(usize) -> F) {
    let dog = Watchdog::new("fresh threads beside hogs");
    let mut rng = Rng::from_env();
    best_of(3, what, || {
        dog.progress();
        let (runtime, green) = runtime(2);
        let hogs = Hogs::start(&runtime, 2, &make);
        let start = |_| {
            std::thread::sleep(rng.micros_below(3_000));
            let spawned = cpu_time();
            runtime.spawn(cpu_time).join().unwrap() - spawned
        };
        let waits: Samples = (0..SAMPLES).map(start).collect();
        eprintln!("{what}: started after {waits} of CPU time");
        drop(hogs);
        let preemptions = runtime.metrics().preemptions;
        runtime.shutdown();
        // Threads that compute have no other way to give way; those in libc may have handed off.
        assert!(
            !green || preemptions > 0 || what != COMPUTING,
            "nothing was preempted"
        );
        waits.quantile(0.99) <= PROCESSORS * FRESH || !green
    });
}

#[test]
fn fresh_threads_beside_computing_hogs() {
    let _alone = alone();
    fresh_threads_beside(COMPUTING, |_| compute);
}

#[test]
fn fresh_threads_beside_pread_hogs() {
    let _alone = alone();
    let zero = Arc::new(std::fs::File::open("/dev/zero").unwrap());
    fresh_threads_beside("pread", |_| {
        let zero = zero.clone();
        move || zero.read_exact_at(&mut [0; 16], 0).unwrap()
    });
}

#[test]
fn fresh_threads_beside_malloc_hogs() {
    let _alone = alone();
    fresh_threads_beside("malloc and free", |i| {
        let mut rng = Rng::new(i as u64);
        move || {
            drop(black_box(Vec::<u8>::with_capacity(
                16 + rng.below(60_000) as usize,
            )))
        }
    });
}

#[test]
fn fresh_threads_beside_memcpy_hogs() {
    let _alone = alone();
    fresh_threads_beside("memcpy of 1 MiB", |_| {
        let (from, mut to) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
        move || {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
    });
}

#[test]
fn fresh_threads_beside_pipe_writers() {
    let _alone = alone();
    let (mut from, to) = std::io::pipe().unwrap();
    let drain = std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
    let to = Arc::new(to);
    fresh_threads_beside("writeln! to a pipe", |i| {
        let (to, mut line) = (to.clone(), 0);
        move || {
            line += 1;
            writeln!(&*to, "hog {i}, line {line}").unwrap();
        }
    });
    drop(to);
    assert!(drain.join().unwrap().unwrap() > 0);
}

/// `println!` shares one lock and one pipe among all hogs: it needs a process of its own.
#[test]
fn fresh_threads_beside_println_hogs() {
    const NAME: &str = "hogs::fresh_threads_beside_println_hogs";
    let _alone = alone();
    if is_child() {
        return fresh_threads_beside("println!", |i| {
            let mut line = 0;
            move || {
                line += 1;
                println!("hog {i}, line {line}");
            }
        });
    }
    let mut child = child(NAME).stdout(Stdio::piped()).spawn().unwrap();
    let mut from = child.stdout.take().unwrap();
    let (mut bytes, mut buffer) = (0, [0; 1 << 16]);
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        bytes += n;
    }
    assert!(child.wait().unwrap().success());
    assert!(bytes > 100_000, "the hogs printed only {bytes} bytes");
}

/// The largest share of sixteen hogs over 2 s, as a multiple of the smallest.
fn unevenness(runtime: Runtime) -> f64 {
    let hogs = Hogs::start(&runtime, 16, |_| compute);
    let before = hogs.rounds();
    std::thread::sleep(Duration::from_secs(2));
    let after = hogs.rounds();
    drop(hogs);
    runtime.shutdown();
    let shares: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    eprintln!("shares: {shares:?}");
    *shares.iter().max().unwrap() as f64 / *shares.iter().min().unwrap() as f64
}

#[test]
fn sixteen_hogs_share_two_processors() {
    let _alone = alone();
    let dog = Watchdog::new("sixteen hogs");
    let round = || {
        dog.progress();
        // Each has 50 slices.
        let builder = Runtime::builder().processors(2);
        let ours = builder
            .time_slice(Duration::from_millis(5))
            .build()
            .unwrap();
        let green = ours.mode() == Mode::Green;
        let ours = unevenness(ours);
        if ours <= 1.25 || !green {
            return true;
        }
        // Others at work on this worker are uneven to us; then they are to kernel threads too.
        let kernel = Runtime::builder().mode(Mode::Kernel).build().unwrap();
        let kernel = unevenness(kernel);
        eprintln!("uneven by {ours:.2}; kernel threads at the same time by {kernel:.2}");
        ours <= kernel
    };
    // Of what others leave, chance makes the shares: a thread has lost what they took of its slice.
    best_of(5, "shares within 25 %", || if_given(1.8, round));
}

/// A signal ends the slice of who computes: nobody declines it, so nobody loses a processor. That is excused once for
/// each 20 ms that the system gave to others, for so long may it not have run a thread.
#[test]
fn computing_threads_keep_their_processors() {
    const PREEMPTIONS: u64 = 1_000;
    let _alone = alone();
    let dog = Watchdog::new("computing threads keep their processors");
    let round = || {
        dog.progress();
        let runtime = Runtime::builder()
            .processors(2)
            .time_slice(Duration::from_millis(1))
            .build()
            .unwrap();
        if runtime.mode() == Mode::Kernel {
            return true;
        }
        let hogs = Hogs::start(&runtime, 16, |_| compute);
        let (before, begun, used) = (runtime.metrics(), Instant::now(), cpu_time());
        let counts = || {
            let now = runtime.metrics();
            let preemptions = now.preemptions - before.preemptions;
            [preemptions, now.hand_offs - before.hand_offs]
        };
        while counts()[0] < PREEMPTIONS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let [preemptions, hand_offs] = counts();
        let lost = (2 * begun.elapsed()).saturating_sub(cpu_time() - used);
        let excused = lost.as_millis() as u64 / 20;
        drop(hogs);
        runtime.shutdown();
        eprintln!(
            "{preemptions} preemptions, {hand_offs} hand-offs, of which {excused} are excused"
        );
        hand_offs <= preemptions / 100 + excused
    };
    best_of(5, "preempted, not robbed", round);
}

/// A twentieth, and the whole of it beside others that compute: any processor could run those.
#[test]
fn who_computes_before_yielding_threads_has_a_shorter_slice() {
    const SLICE: Duration = Duration::from_millis(400);
    const PREEMPTIONS: u32 = 3;
    let _alone = alone();
    let dog = Watchdog::new("a shorter slice before yielding threads");
    // How long so many preemptions of two threads that compute take.
    let preempting = |yielding: usize| {
        dog.progress();
        let runtime = Runtime::builder()
            .processors(1)
            .policy(WorkStealing::new())
            .time_slice(SLICE)
            .build()
            .unwrap();
        if runtime.mode() == Mode::Kernel {
            return None;
        }
        let beside = Hogs::start(&runtime, yielding, |_| greenthread::yield_now);
        let computing = Hogs::start(&runtime, 2, |_| compute);
        let preemptions = || runtime.metrics().preemptions;
        let (start, before) = (Instant::now(), preemptions());
        while preemptions() < before + PREEMPTIONS as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = start.elapsed();
        drop((computing, beside));
        runtime.shutdown();
        Some(took)
    };
    let round = || {
        // So many that there are always some in reach of nobody else.
        let (Some(among_yielding), Some(none_yields)) = (preempting(50), preempting(0)) else {
            return true;
        };
        eprintln!(
            "{PREEMPTIONS} preemptions: {among_yielding:.1?}; none yields: {none_yields:.1?}"
        );
        // The first slice may have been half over.
        none_yields >= SLICE * (PREEMPTIONS - 1) && among_yielding * 4 <= none_yields
    };
    let what = "a slice much shorter before yielding threads";
    best_of(5, what, || if_given(0.9, round));
}

/// Two, then a hundred threads that only yield: everybody else is still served.
#[test]
fn yielding_hogs_starve_nobody() {
    let _alone = alone();
    let mut rng = Rng::from_env();
    for n in [2, 100] {
        let dog = Watchdog::new("yielding hogs");
        let mut round = || {
            let (runtime, green) = runtime(2);
            let hogs = Hogs::start(&runtime, n, |_| greenthread::yield_now);
            let fine = [
                timers(&runtime).within(&format!("{n} yielding, timers"), FEW),
                start_lateness(&runtime, SAMPLES, &mut rng)
                    .within(&format!("{n} yielding, outside spawns"), FEW),
                wake_ups(&runtime, &mut rng).within(&format!("{n} yielding, wake-ups"), FEW),
                computes_steadily(&runtime, &hogs),
            ];
            dog.progress();
            drop(hogs);
            runtime.shutdown();
            fine.iter().all(|&fine| fine) || !green
        };
        best_of(5, "served beside yielding hogs", || {
            if_given(1.8, &mut round)
        });
    }
}

/// By how much sleeps of a millisecond are too long.
fn timers(runtime: &Runtime) -> Lateness {
    const NAP: Duration = Duration::from_millis(1);
    fn naps(sleep: fn(Duration)) -> Samples {
        let nap = |_| {
            let start = Instant::now();
            sleep(NAP);
            start.elapsed().checked_sub(NAP).expect("woke too early")
        };
        (0..SAMPLES).map(nap).collect()
    }
    let kernel = std::thread::spawn(|| naps(std::thread::sleep));
    let green = runtime.spawn(|| naps(greenthread::sleep));
    Lateness {
        green: green.join().unwrap(),
        kernel: kernel.join().unwrap(),
    }
}

/// How long an unparked thread takes to run. (Both kinds, woken by this kernel thread.)
fn wake_ups(runtime: &Runtime, rng: &mut Rng) -> Lateness {
    let mut late = Lateness::default();
    let ready = Arc::new(AtomicBool::new(false));
    let wait = |ready: Arc<AtomicBool>, park: fn()| {
        let (woke, report) = std::sync::mpsc::channel();
        let body = move || {
            for _ in 0..SAMPLES {
                while !ready.swap(false, Acquire) {
                    park();
                }
                woke.send(Instant::now()).unwrap();
            }
        };
        (body, report)
    };
    let (body, report) = wait(ready.clone(), greenthread::park);
    let sleeper = runtime.spawn(body);
    for _ in 0..SAMPLES {
        std::thread::sleep(rng.micros_below(2_000));
        let start = Instant::now();
        ready.store(true, Release);
        sleeper.thread().unpark();
        late.green.add(report.recv().unwrap() - start);
    }
    sleeper.join().unwrap();
    let (body, report) = wait(ready.clone(), std::thread::park);
    let sleeper = std::thread::spawn(body);
    for _ in 0..SAMPLES {
        std::thread::sleep(rng.micros_below(2_000));
        let start = Instant::now();
        ready.store(true, Release);
        sleeper.thread().unpark();
        late.kernel.add(report.recv().unwrap() - start);
    }
    sleeper.join().unwrap();
    late
}

/// A thread that computes gets on in nearly every 25 ms, as far as the system lets any of ours run:
/// when the hogs beside it stand still, so may it.
fn computes_steadily(runtime: &Runtime, beside: &Hogs) -> bool {
    let worker = Hogs::start(runtime, 1, |_| compute);
    let look = || [worker.rounds()[0], beside.rounds().iter().sum()];
    let mut last = look();
    let steps = (0..40).map(|_| {
        std::thread::sleep(Duration::from_millis(25));
        let now = look();
        let before = std::mem::replace(&mut last, now);
        [now[0] - before[0], now[1] - before[1]]
    });
    let steps: Vec<[u64; 2]> = steps.collect();
    eprintln!("a computing thread's steps in 25 ms, and the yielding ones': {steps:?}");
    let mut yields: Vec<u64> = steps.iter().map(|step| step[1]).collect();
    yields.sort_unstable();
    let usual = yields[yields.len() / 2];
    let starved = |step: &&[u64; 2]| step[0] == 0 && step[1] > usual / 4;
    steps.iter().filter(starved).count() <= 2
}
