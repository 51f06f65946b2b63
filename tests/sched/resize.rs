//! Several runtimes, and runtimes whose number of processors changes under load.
//!
//! Nothing may be lost: every kind of thread counts what it has done, and the counts must come out.
//! A hang is found by a watchdog, which prints where everybody stands.

use crate::common::alone;
use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::load::Load;
use crate::support::storm::burn;
use crate::support::*;
use greenthread::runtime::{Mode, Runtime};
use greenthread::sync::mpsc;

/// Aborts, with the runtime's figures, when `steps` stand still for a minute.
fn watch(test: &'static str, runtime: &Arc<Runtime>, steps: &Arc<AtomicU64>) -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let (stop, runtime, steps) = (over.clone(), runtime.clone(), steps.clone());
    std::thread::spawn(move || {
        let (mut last, mut since) = (u64::MAX, Instant::now());
        while !stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            let now = steps.load(Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(60) {
                let figures = runtime.metrics();
                let text = format!("{test}: no progress after {now} steps\n{figures:?}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        }
    });
    over
}

/// Waits until those processors that are too many have gone.
fn settle(runtime: &Runtime) {
    while runtime.metrics().processors.len() != runtime.processors() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ten thousand random numbers of processors, or a thousand in debug builds, from a kernel thread and from the runtime's
/// own threads, while all kinds of threads are at work.
#[test]
fn ten_thousand_resizes() {
    const TIMES: u64 = if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    };
    let _alone = alone();
    alone!();
    let mut rng = Rng::from_env();
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_millis(1))
        .build();
    let runtime = Arc::new(runtime.unwrap());
    let load = Arc::new(Load::default());
    let steps = load.steps.clone();
    let over = watch("resize::ten_thousand_resizes", &runtime, &steps);
    let handles = load.start(&runtime, &mut rng);
    let count = handles.len() as u64;

    let resize = |runtime: Arc<Runtime>, mut rng: Rng, times: u64| {
        move || {
            for _ in 0..times {
                runtime.set_processors(1 + rng.below(8) as usize).unwrap();
                match rng.below(8) {
                    0 => greenthread::sleep(rng.micros_below(500)),
                    1..4 => greenthread::yield_now(),
                    _ => {}
                }
            }
        }
    };
    let inside: Vec<_> = (0..2)
        .map(|_| runtime.spawn(resize(runtime.clone(), Rng::new(rng.next()), TIMES / 4)))
        .collect();
    resize(runtime.clone(), Rng::new(rng.next()), TIMES / 2)();
    for resizer in inside {
        resizer.join().unwrap();
    }
    // All go on at the last number.
    runtime.set_processors(1).unwrap();
    let before = steps.load(Relaxed);
    while steps.load(Relaxed) < before + 1_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    load.stop.store(true, Relaxed);
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(load.started.load(Relaxed), count);
    assert_eq!(load.ended.load(Relaxed), count);
    // Who was joined is about to be buried.
    while runtime.metrics().live_threads != 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("{} steps; {:?}", steps.load(Relaxed), runtime.metrics());
    over.store(true, Relaxed);
    shut_down(runtime);
}

/// The watchdog's thread lets go of it soon.
fn shut_down(mut runtime: Arc<Runtime>) {
    loop {
        match Arc::try_unwrap(runtime) {
            Ok(runtime) => return runtime.shutdown(),
            Err(shared) => runtime = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many run at once: none more than were asked for, once the others have stepped down.
#[test]
fn as_many_run_as_were_asked_for() {
    let _alone = alone();
    alone!();
    let (runtime, green) = runtime(1);
    let runtime = Arc::new(runtime);
    let steps = Arc::new(AtomicU64::new(0));
    let over = watch("resize::as_many_run_as_were_asked_for", &runtime, &steps);
    let stop = Arc::new(AtomicBool::new(false));
    // Which kernel threads the hogs run on, since the set was cleared.
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let hogs: Vec<_> = (0..16)
        .map(|_| {
            let (stop, seen, steps) = (stop.clone(), seen.clone(), steps.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    burn(Duration::from_micros(100));
                    steps.fetch_add(1, Relaxed);
                    // SAFETY: gettid takes nothing and cannot fail.
                    let kernel_thread = unsafe { libc::gettid() };
                    let _ = seen.try_lock().map(|mut seen| seen.insert(kernel_thread));
                    greenthread::yield_now();
                }
            })
        })
        .collect();
    for count in [4, 1, 6, 2, 3, 1, 8, 1] {
        runtime.set_processors(count).unwrap();
        assert_eq!(runtime.processors(), count);
        settle(&runtime);
        // Each hog has been where it is not any more.
        let mark = steps.load(Relaxed);
        while steps.load(Relaxed) < mark + 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.lock().unwrap().clear();
        // Every processor runs hogs. (In kernel-thread mode each hog is a kernel thread.)
        while green && seen.lock().unwrap().len() < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ran = seen.lock().unwrap().len();
        eprintln!("{count} processors: {ran} kernel threads");
    }
    stop.store(true, Relaxed);
    for hog in hogs {
        hog.join().unwrap();
    }
    over.store(true, Relaxed);
    shut_down(runtime);
}

/// Hogs that never give way, and threads that block in the kernel, let go of processors that are
/// too many, though nothing else waits for these.
#[test]
fn hogs_and_blocked_threads_let_go() {
    let _alone = alone();
    alone!();
    let (runtime, _) = runtime(4);
    let runtime = Arc::new(runtime);
    let steps = Arc::new(AtomicU64::new(0));
    let over = watch("resize::hogs_and_blocked_threads_let_go", &runtime, &steps);
    let stop = Arc::new(AtomicBool::new(false));
    let busy = Arc::new(AtomicUsize::new(0));
    let (reader, writer) = std::io::pipe().unwrap();
    let mut handles = Vec::new();
    for _ in 0..2 {
        let (stop, hog) = (stop.clone(), busy.clone());
        handles.push(runtime.spawn(move || {
            hog.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        }));
        let (busy, mut reader) = (busy.clone(), reader.try_clone().unwrap());
        handles.push(runtime.spawn(move || {
            busy.fetch_add(1, Relaxed);
            assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 1);
        }));
    }
    while busy.load(Relaxed) != 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    runtime.set_processors(1).unwrap();
    settle(&runtime);
    assert_eq!(runtime.processors(), 1);
    // And they end.
    stop.store(true, Relaxed);
    (&writer).write_all(&[0; 2]).unwrap();
    for handle in handles {
        handle.join().unwrap();
    }
    over.store(true, Relaxed);
    shut_down(runtime);
}

/// A timer that was armed on a processor that is gone fires: with the others busy, and with all
/// asleep.
#[test]
fn timers_outlive_their_processor() {
    let _alone = alone();
    alone!();
    let (runtime, _) = runtime(8);
    let runtime = Arc::new(runtime);
    let steps = Arc::new(AtomicU64::new(0));
    let over = watch("resize::timers_outlive_their_processor", &runtime, &steps);
    for busy in [true, false] {
        runtime.set_processors(8).unwrap();
        let sleepers: Vec<_> = (0..400)
            .map(|i| {
                let steps = steps.clone();
                runtime.spawn(move || {
                    burn(Duration::from_micros(20));
                    let start = Instant::now();
                    let time = Duration::from_millis(20 + i % 40);
                    greenthread::sleep(time);
                    assert!(start.elapsed() >= time);
                    steps.fetch_add(1, Relaxed);
                })
            })
            .collect();
        let stop = Arc::new(AtomicBool::new(!busy));
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(move || {
                    while !stop.load(Relaxed) {
                        greenthread::yield_now();
                    }
                })
            })
            .collect();
        runtime.set_processors(1).unwrap();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        stop.store(true, Relaxed);
        for hog in hogs {
            hog.join().unwrap();
        }
    }
    over.store(true, Relaxed);
    shut_down(runtime);
}

/// Threads of several runtimes wake each other and are resized, and stay in their own.
#[test]
fn threads_stay_in_their_runtime() {
    let _alone = alone();
    alone!();
    let mut rng = Rng::from_env();
    const RUNTIMES: usize = 4;
    const ROUNDS: u64 = 2_000;
    let runtimes: Vec<_> = (0..RUNTIMES).map(|i| Arc::new(runtime(1 + i).0)).collect();
    let green = runtimes[0].mode() == Mode::Green;
    let steps = Arc::new(AtomicU64::new(0));
    let over = watch(
        "resize::threads_stay_in_their_runtime",
        &runtimes[0],
        &steps,
    );
    // Which kernel threads were seen in which runtime.
    let homes: Arc<[Mutex<HashSet<i32>>; RUNTIMES]> = Arc::default();
    let here = move |homes: &[Mutex<HashSet<i32>>; RUNTIMES], home: usize| {
        // SAFETY: gettid takes nothing and cannot fail.
        homes[home]
            .lock()
            .unwrap()
            .insert(unsafe { libc::gettid() });
    };
    // A ring through all runtimes: each message visits each once a round.
    let mut handles = Vec::new();
    for _ in 0..8 {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..RUNTIMES).map(|_| mpsc::channel::<u64>()).unzip();
        senders[0].send(0).unwrap();
        for (i, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(i + 1) % RUNTIMES].clone();
            let (homes, steps) = (homes.clone(), steps.clone());
            handles.push(runtimes[i].spawn(move || {
                for round in 0..ROUNDS {
                    let number = receiver.recv().unwrap();
                    assert_eq!(number, round * RUNTIMES as u64 + i as u64);
                    here(&homes, i);
                    steps.fetch_add(1, Relaxed);
                    if round % 100 == 0 {
                        let homes = homes.clone();
                        // A child is its parent's neighbour.
                        let child = greenthread::spawn(move || {
                            greenthread::yield_now();
                            here(&homes, i);
                        });
                        child.join().unwrap();
                    }
                    // The last one of all finds nobody to pass it on to.
                    let _ = next.send(number + 1);
                }
            }));
        }
    }
    while handles.iter().any(|handle| !handle.is_finished()) {
        let runtime = &runtimes[rng.below(RUNTIMES as u64) as usize];
        runtime.set_processors(1 + rng.below(4) as usize).unwrap();
        std::thread::sleep(rng.micros_below(1_000));
    }
    for handle in handles {
        handle.join().unwrap();
    }
    if green {
        let mut all = HashSet::new();
        for home in homes.iter() {
            for &kernel_thread in home.lock().unwrap().iter() {
                assert!(
                    all.insert(kernel_thread),
                    "{kernel_thread} is of two runtimes"
                );
            }
        }
    }
    over.store(true, Relaxed);
    for runtime in runtimes {
        shut_down(runtime);
    }
}

/// Numbers that cannot be.
#[test]
fn bad_numbers_are_refused() {
    let _alone = alone();
    alone!();
    let runtime = Runtime::builder()
        .processors(2)
        .max_kernel_threads(5)
        .build()
        .unwrap();
    let green = runtime.mode() == Mode::Green;
    for (count, accepted) in [
        (0, "1 to"),
        (5, "1 to 4"),
        (4097, "1 to"),
        (usize::MAX, "1 to"),
    ] {
        if count == 5 && !green {
            continue;
        }
        let error = runtime.set_processors(count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(
            text.contains(&count.to_string()) && text.contains(accepted),
            "{text}"
        );
    }
    assert_eq!(runtime.processors(), 2);
    runtime.set_processors(4).unwrap();
    assert_eq!(runtime.processors(), 4);
    let inside = runtime.spawn(|| greenthread::available_parallelism().unwrap().get());
    let inside = inside.join().unwrap();
    assert!(!green || inside == 4, "{inside}");
    runtime.shutdown();
}

/// Idle, it stays idle, whatever its number of processors.
#[test]
fn an_idle_runtime_can_be_resized() {
    let _alone = alone();
    alone!();
    let (runtime, green) = runtime(1);
    for count in [4096, 1, 3, 64, 2] {
        runtime.set_processors(count).unwrap();
        let handles: Vec<_> = (0..100).map(|i| runtime.spawn(move || i)).collect();
        let sum: u64 = handles.into_iter().map(|h| h.join().unwrap()).sum();
        assert_eq!(sum, 4950);
        settle(&runtime);
    }
    assert!(!green || runtime.metrics().kernel_threads < 4096);
    runtime.shutdown();
}
