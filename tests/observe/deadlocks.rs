//! `observe::deadlocks`: circles among some threads are found while others go on, and what is no circle is not.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common::{self, Rng, alone, assert_code, child_case, stress_time, watchdog};
use crate::dumps::is_like;
use greenthread::observe::{self, Deadlock, State};
use greenthread::runtime::Runtime;
use greenthread::sync::{Barrier, Mutex, Once, RwLock};
use greenthread::thread::ThreadId;
use greenthread::{Builder, JoinHandle, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> ThreadId {
    let thread: JoinHandle<()> = Builder::new().name(name.into()).spawn(body).unwrap();
    thread.thread().id()
}

/// Threads of which each holds one lock and wants the next one's; the last wants the first one's.
fn circle(count: usize) -> Vec<ThreadId> {
    let locks: Arc<Vec<_>> = Arc::new((0..count).map(|_| Mutex::new(())).collect());
    let all_hold = Arc::new(Barrier::new(count));
    let body = |i: usize| {
        let (locks, all_hold) = (locks.clone(), all_hold.clone());
        move || {
            let _own = locks[i].lock().unwrap();
            all_hold.wait();
            drop(locks[(i + 1) % count].lock());
        }
    };
    (0..count)
        .map(|i| spawn(&format!("{i} of {count}"), body(i)))
        .collect()
}

/// Asks until there are so many.
fn deadlocks(count: usize) -> Vec<Deadlock> {
    let start = Instant::now();
    loop {
        let found = observe::deadlocks();
        if found.len() == count {
            return found;
        }
        assert!(
            start.elapsed() < Duration::from_secs(50),
            "{count}: {found:#?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The same threads, in the same order around.
fn is_around(found: &Deadlock, expected: &[ThreadId]) -> bool {
    let threads = found.threads();
    (0..threads.len()).any(|i| [&threads[i..], &threads[..i]].concat() == expected)
}

/// Everything that is a circle, one after the other. The threads stay, so this is a process of its own.
#[test]
fn circles() {
    let _w = watchdog("deadlocks::circles");
    if child_case("deadlocks::circles").is_none() {
        for mode in ["green", "kernel"] {
            let out = common::child_with(
                "deadlocks::circles",
                "",
                &[("GREENTHREAD_MODE", mode), ("GREENTHREAD_DEADLOCK", "off")],
            );
            assert_code(&out, 0);
        }
        return;
    }
    // Others go on meanwhile.
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let stop = stop.clone();
        thread::spawn(move || {
            while !stop.load(Relaxed) {
                thread::yield_now()
            }
        });
    }
    assert!(observe::deadlocks().is_empty());
    let mut expected = Vec::new();
    for count in [1, 2, 3, 64] {
        expected.push(circle(count));
        let found = deadlocks(expected.len());
        let circle = expected.last().unwrap();
        let new = found.iter().find(|found| found.threads().len() == count);
        let new = new.unwrap_or_else(|| panic!("{count}: {found:#?}"));
        assert!(is_around(new, circle), "{new:?} {circle:?}");
        check_text(new, count);
    }
    // One that waits for a circle is not in it.
    let outside = Arc::new(Mutex::new(()));
    let wanted = outside.clone();
    let holds = Arc::new(AtomicBool::new(false));
    let held = holds.clone();
    spawn("self and other", move || {
        let _guard = outside.lock().unwrap();
        held.store(true, Relaxed);
        drop(outside.lock());
    });
    common::wait_until(|| holds.load(Relaxed));
    let guest = spawn("outside", move || drop(wanted.lock()));
    common::wait_until(|| {
        let dump = observe::dump();
        dump.threads()
            .any(|thread| thread.id() == Some(guest) && thread.state() == State::Parked)
    });
    let found = deadlocks(expected.len() + 1);
    assert!(
        found.iter().all(|found| !found.threads().contains(&guest)),
        "{found:#?}"
    );
    // A writer and a once: each is held by one thread.
    let (lock, once) = (Arc::new(RwLock::new(())), Arc::new(Once::new()));
    let both = Arc::new(Barrier::new(2));
    let (of_first, first_met) = ((lock.clone(), once.clone()), both.clone());
    spawn("writes", move || {
        let _guard = of_first.0.write().unwrap();
        first_met.wait();
        of_first.1.call_once(|| ());
    });
    spawn("begins", move || {
        once.call_once(|| {
            both.wait();
            drop(lock.read());
        });
    });
    let found = deadlocks(expected.len() + 2);
    let text: String = found.iter().map(ToString::to_string).collect();
    let line = |pattern: &str| text.lines().any(|line| is_like(line, pattern));
    assert!(
        line("  *\"writes\" waits for once 0x*, held by *\"begins\""),
        "{text}"
    );
    assert!(
        line("  *\"begins\" waits for read lock 0x*, held by *\"writes\""),
        "{text}"
    );
    stop.store(true, Relaxed);
    std::process::exit(0);
}

/// A line for each thread.
fn check_text(found: &Deadlock, count: usize) {
    let text = found.to_string();
    assert_eq!(text.lines().count(), count, "{text}");
    for line in text.lines() {
        let pattern = format!(
            "  *thread *\"* of {count}\" waits for mutex 0x*, held by *thread *\"* of {count}\""
        );
        assert!(is_like(line, &pattern), "{line}");
    }
}

/// A wait that ends by itself breaks the circle.
#[test]
fn deadlines() {
    alone!();
    let _w = watchdog("deadlocks::deadlines");
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock().unwrap();
    let wants = lock.clone();
    let blocked = thread::spawn(move || drop(wants.lock().unwrap()));
    // The test holds the lock and waits for the thread, but not for ever.
    let asks = std::thread::spawn(|| {
        let start = Instant::now();
        let mut asked = 0;
        while start.elapsed() < Duration::from_millis(300) {
            let found = observe::deadlocks();
            assert!(found.is_empty(), "{found:#?}");
            asked += 1;
        }
        asked
    });
    let blocked = blocked
        .join_timeout(Duration::from_millis(400))
        .unwrap_err();
    assert!(asks.join().unwrap() > 0);
    drop(guard);
    blocked.join().unwrap();
}

/// Threads that lock, unlock and join in random order, so that none waits for ever, while deadlocks are looked for
/// all the time. Each has one lock at a time, or two in their order; and it waits for a lock of a higher number
/// than it holds, or than the threads hold for whose end it waits.
#[test]
fn storm() {
    alone!();
    let _w = watchdog("deadlocks::storm");
    const THREADS: usize = 24;
    const LOCKS: usize = 6;
    let mut rng = Rng::new("deadlocks::storm");
    let runtime = Runtime::builder()
        .processors(4)
        .time_slice(Duration::from_micros(200))
        .build()
        .unwrap();
    let locks: Arc<Vec<_>> = Arc::new((0..LOCKS).map(|_| Mutex::new(0_u64)).collect());
    let (stop, acts) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (locks, stop, acts) = (locks.clone(), stop.clone(), acts.clone());
            let mut rng = rng.fork();
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    act(&locks, &mut rng);
                    acts.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let (start, mut looks) = (Instant::now(), 0);
    while start.elapsed() < stress_time() {
        let found = observe::deadlocks();
        assert!(found.is_empty(), "after {looks} looks: {found:#?}");
        looks += 1;
    }
    stop.store(true, Relaxed);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
    println!("{looks} looks, {} acts", acts.load(Relaxed));
}

fn act(locks: &Arc<Vec<Mutex<u64>>>, rng: &mut Rng) {
    let first = rng.below(locks.len());
    let mut guard = locks[first].lock().unwrap();
    *guard += 1;
    for _ in 0..rng.below(3) {
        thread::yield_now();
    }
    match rng.below(4) {
        // Given away first: the other lock may be any.
        0 => {
            drop(guard);
            *locks[rng.below(locks.len())].lock().unwrap() += 1;
        }
        // A thread that takes a higher one, and is waited for.
        1 if first + 1 < locks.len() => {
            let (others, other) = (
                locks.clone(),
                first + 1 + rng.below(locks.len() - first - 1),
            );
            thread::spawn(move || *others[other].lock().unwrap() += 1)
                .join()
                .unwrap();
        }
        2 if first + 1 < locks.len() => {
            let other = first + 1 + rng.below(locks.len() - first - 1);
            let mut second = locks[other].lock().unwrap();
            thread::yield_now();
            *second += 1;
        }
        _ => {}
    }
}
