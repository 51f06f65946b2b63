//! Dumps of programs that are at work: nothing is lost, and nobody waits for a dump.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common::alone;
use crate::common::{Rng, assert_code, child_case, child_with, green, wait_until, watchdog};
use crate::dumps;
use greenthread::channel;
use greenthread::observe::{self, State};
use greenthread::sync::Mutex;
use greenthread::thread::ThreadId;
use greenthread::{Builder, JoinHandle, thread};
use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// What threads under load share.
struct Load {
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    counted: AtomicU64,
    total: Mutex<u64>,
    ended: AtomicUsize,
}

/// Pairs that pass messages on, threads that lock, threads that give way, and threads that sleep.
fn load(count: usize) -> (Arc<Load>, Vec<JoinHandle<()>>) {
    let load = Arc::new(Load {
        stop: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        total: Mutex::new(0),
        ended: AtomicUsize::new(0),
    });
    let mut threads = Vec::new();
    let mut spawn = |body: Box<dyn FnOnce(&Load) + Send>| {
        let load = load.clone();
        threads.push(thread::spawn(move || {
            body(&load);
            load.ended.fetch_add(1, Relaxed);
        }));
    };
    for i in 0..count / 4 {
        let (to, from) = channel::bounded::<u64>(i % 3);
        spawn(Box::new(move |load| {
            while !load.stop.load(Relaxed) {
                to.send(1).unwrap();
                load.sent.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        }));
        spawn(Box::new(move |load| {
            for one in &from {
                load.received.fetch_add(one, Relaxed);
            }
        }));
        spawn(Box::new(|load| {
            while !load.stop.load(Relaxed) {
                *load.total.lock().unwrap() += 1;
                load.counted.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(30));
            }
        }));
        spawn(Box::new(|load| {
            while !load.stop.load(Relaxed) {
                (0..3).for_each(|_| thread::yield_now());
                thread::sleep(Duration::from_millis(40));
            }
        }));
    }
    (load, threads)
}

impl Load {
    /// Ends all threads, and looks whether all that went in has come out.
    fn end(&self, threads: Vec<JoinHandle<()>>) {
        let count = threads.len();
        self.stop.store(true, Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(self.ended.load(Relaxed), count);
        assert_eq!(self.sent.load(Relaxed), self.received.load(Relaxed));
        assert_eq!(self.counted.load(Relaxed), *self.total.lock().unwrap());
        assert!(self.sent.load(Relaxed) > 0 && self.counted.load(Relaxed) > 0);
    }
}

/// Measures how late a sleeper wakes.
struct Probe {
    worst: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Probe {
    fn start() -> Probe {
        let (worst, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (late, is_over) = (worst.clone(), stop.clone());
        let body = move || {
            const NAP: Duration = Duration::from_millis(1);
            while !is_over.load(Relaxed) {
                let start = Instant::now();
                thread::sleep(NAP);
                late.fetch_max((start.elapsed() - NAP).as_micros() as u64, Relaxed);
            }
        };
        let thread = Builder::new().name("probe".into()).spawn(body).unwrap();
        Probe {
            worst,
            stop,
            thread,
        }
    }

    /// The longest delay since it was last asked.
    fn worst(&self) -> Duration {
        Duration::from_micros(self.worst.swap(0, Relaxed))
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

/// Each of the threads is there once.
#[track_caller]
fn has_all(dump: &observe::Dump, threads: &[ThreadId]) {
    let mut seen: HashMap<ThreadId, usize> = HashMap::new();
    for thread in dump.threads() {
        if let Some(id) = thread.id() {
            *seen.entry(id).or_default() += 1;
        }
    }
    let times = |id: &ThreadId| seen.get(id).copied().unwrap_or(0);
    let not_once: Vec<_> = threads.iter().filter(|id| times(id) != 1).collect();
    let some = not_once.first().map(|id| (id, times(id)));
    assert!(
        not_once.is_empty(),
        "{} are not there once: {some:?}\n{dump}",
        not_once.len()
    );
}

/// Ten thousand threads at work, ten dumps: nothing is lost, and nobody waits for a dump.
#[test]
fn ten_thousand() {
    alone!();
    let _w = watchdog("load::ten_thousand");
    const DUMPS: usize = 10;
    let (load, threads) = load(if green() { 10_000 } else { 400 });
    let ids: Vec<_> = threads.iter().map(|thread| thread.thread().id()).collect();
    let probe = Probe::start();
    wait_until(|| {
        load.sent.load(Relaxed) > ids.len() as u64 && load.counted.load(Relaxed) > ids.len() as u64
    });
    // A kernel thread is in a dump once it has begun.
    dumps::dump_until("all at work", |dump| {
        let seen: HashSet<_> = dump.threads().filter_map(|thread| thread.id()).collect();
        ids.iter().all(|id| seen.contains(id))
    });
    let (mut with, mut without, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..DUMPS {
        probe.worst();
        let start = Instant::now();
        let dump = observe::dump();
        times.push(start.elapsed());
        with.push(probe.worst());
        has_all(&dump, &ids);
        let parked = dump
            .threads()
            .filter(|thread| thread.state() == State::Parked);
        assert!(parked.count() * 10 > ids.len(), "many sleep");
        drop(dump);
        // As long without a dump, but with as much work for a kernel thread beside the runtime.
        probe.worst();
        let start = Instant::now();
        let time = *times.last().unwrap();
        std::thread::spawn(move || {
            while start.elapsed() < time {
                black_box(())
            }
        })
        .join()
        .unwrap();
        without.push(probe.worst());
    }
    probe.end();
    load.end(threads);
    with.sort();
    without.sort();
    println!("dumps took {times:?}\nlate with {with:?}\nwithout {without:?}");
    // The worker's own hiccups strike both; a dump that holds threads up would do so each time.
    let (with, without) = (with[DUMPS / 2], without[DUMPS / 2]);
    assert!(
        with <= without * 2 + Duration::from_millis(20),
        "{with:?} with a dump, {without:?} without"
    );
}

/// What of a name comes after its number.
fn tail(number: usize) -> String {
    format!("{number:x}-").repeat(1 + number % 7)
}

fn name(number: usize) -> String {
    format!("churn {number} {}", tail(number))
}

/// Whether a name is one of ours, whole.
fn is_whole(name: &str) -> bool {
    let mut words = name.split(' ');
    let number = words.nth(1).and_then(|number| number.parse().ok());
    number.is_some_and(|number| words.next() == Some(&tail(number)))
}

/// Threads that end and begin while dumps are taken, by several threads at once: no name is torn, and no thread
/// that stays is missing. All of it with one arena, so that a lock of the allocator's held at the wrong moment hangs.
#[test]
fn churn() {
    let _w = watchdog("load::churn");
    if child_case("load::churn").is_none() {
        for mode in ["green", "kernel"] {
            let out = child_with(
                "load::churn",
                "",
                &[("GREENTHREAD_MODE", mode), ("MALLOC_ARENA_MAX", "1")],
            );
            assert_code(&out, 0);
            print!("{mode}: {}", String::from_utf8_lossy(&out.stdout));
        }
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let spawned = Arc::new(AtomicUsize::new(0));
    let mut stay = Vec::new();
    let mut rng = Rng::new("load::churn");
    for _ in 0..4 {
        let (stop, spawned, mut rng) = (stop.clone(), spawned.clone(), rng.fork());
        stay.push(thread::spawn(move || {
            while !stop.load(Relaxed) {
                let some: Vec<_> = (0..1 + rng.below(8))
                    .map(|_| {
                        let number = spawned.fetch_add(1, Relaxed);
                        let naps = rng.below(3);
                        let body = move || (0..naps).for_each(|_| thread::yield_now());
                        Builder::new().name(name(number)).spawn(body).unwrap()
                    })
                    .collect();
                some.into_iter().for_each(|thread| thread.join().unwrap());
            }
        }));
    }
    stay.extend((0..100).map(|_| thread::spawn(thread::park)));
    let ids: Arc<Vec<_>> = Arc::new(stay.iter().map(|thread| thread.thread().id()).collect());
    // A kernel thread is there once it has begun.
    dumps::dump_until("all that stay", |dump| {
        ids.iter()
            .all(|&id| dump.threads().any(|thread| thread.id() == Some(id)))
    });
    let (dumps, names) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let look = || {
        let (stop, ids, dumps, names) = (stop.clone(), ids.clone(), dumps.clone(), names.clone());
        move || {
            while !stop.load(Relaxed) {
                let dump = observe::dump();
                // They have stayed until now.
                if !stop.load(Relaxed) {
                    has_all(&dump, &ids);
                }
                for name in dump.threads().filter_map(|thread| thread.name()) {
                    if name.starts_with("churn ") {
                        // As a kernel thread ends, its name may be the system's, of 15 bytes.
                        let is_cut = !green() && name.len() == 15;
                        assert!(is_whole(name) || is_cut, "{name:?}");
                        names.fetch_add(1, Relaxed);
                    }
                }
                if dumps.fetch_add(1, Relaxed).is_multiple_of(8) {
                    assert!(dump.to_string().len() > 100);
                }
            }
        }
    };
    let kernel = [std::thread::spawn(look()), std::thread::spawn(look())];
    let small = Builder::new().stack_size(16 << 10).spawn(look()).unwrap();
    const DUMPS: usize = 6;
    wait_until(|| dumps.load(Relaxed) >= DUMPS && names.load(Relaxed) > 0);
    stop.store(true, Relaxed);
    kernel.into_iter().for_each(|thread| thread.join().unwrap());
    small.join().unwrap();
    stay.iter().for_each(|thread| thread.thread().unpark());
    stay.into_iter().for_each(|thread| thread.join().unwrap());
    println!(
        "{} threads, {} dumps, {} names",
        spawned.load(Relaxed),
        dumps.load(Relaxed),
        names.load(Relaxed)
    );
}

/// In a forked child the other threads are the parent's: only what the child has is shown. Neither a dump nor the look
/// for deadlocks hangs.
#[test]
fn forked_child() {
    let _w = watchdog("load::forked_child");
    if child_case("load::forked_child").is_none() {
        for mode in ["green", "kernel"] {
            let out = child_with("load::forked_child", "", &[("GREENTHREAD_MODE", mode)]);
            assert_code(&out, 0);
            print!("{mode}: {}", String::from_utf8_lossy(&out.stdout));
        }
        return;
    }
    let waits = Builder::new().name("of the parent".into());
    drop(
        waits
            .spawn(|| {
                loop {
                    thread::park()
                }
            })
            .unwrap(),
    );
    dumps::until_parked("of the parent");
    let at_work = Arc::new(AtomicBool::new(true));
    let works = at_work.clone();
    // Dumps are taken in the parent at the same time.
    let dumps = std::thread::spawn(move || {
        while works.load(Relaxed) {
            drop(observe::dump())
        }
    });
    let in_child = || {
        // SAFETY: plain call: it dies rather than hang.
        unsafe { libc::alarm(50) };
        assert!(observe::deadlocks().is_empty());
        let dump = observe::dump();
        let count = dump.threads().count();
        let text = dump.to_string();
        assert!(!text.contains("of the parent"), "{text}");
        // It goes on to have threads of its own.
        assert_eq!(thread::spawn(|| 6 * 7).join().unwrap(), 42);
        println!("a dump in the child shows {count}:\n{text}");
    };
    for _ in 0..5 {
        // SAFETY: the child does what a forked child may do with this crate, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let ended = std::panic::catch_unwind(in_child);
            // SAFETY: plain call.
            unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the place outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child's status");
    }
    at_work.store(false, Relaxed);
    dumps.join().unwrap();
}
