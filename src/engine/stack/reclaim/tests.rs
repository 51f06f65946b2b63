//! Crowds of threads come and go, each test in a process of its own, whose memory is counted.

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::stack;
use crate::engine::sys::mm::page;
use crate::runtime::{Mode, Runtime};
use std::cell::{Cell, RefCell};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHILD: &str = "GREENTHREAD_TEST_CHILD";
const MILLISECOND: u64 = 1_000_000;

/// Runs `body` in a fresh process, where slots go after so many nanoseconds.
fn in_child(test: &str, interval: u64, body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        super::INTERVAL.store(interval, Ordering::Relaxed);
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("engine::stack::reclaim::tests::{test}"))
        .env(CHILD, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    eprint!("{text}");
}

fn runtime() -> Option<Runtime> {
    let runtime = Runtime::builder().processors(2).build().unwrap();
    (runtime.mode() == Mode::Green).then_some(runtime)
}

/// Bytes in memory, and of page tables.
fn memory() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse::<usize>().unwrap() << 10
    };
    (kib("VmRSS:"), kib("VmPTE:"))
}

/// How many slots there are, in use or not.
fn slots() -> usize {
    let mut count = 0;
    stack::visit(|_| count += 1);
    count
}

/// Waits until it is so; a minute at most.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Parked threads.
struct Crowd {
    wake: Arc<AtomicBool>,
    threads: Vec<crate::JoinHandle<()>>,
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(7) };
    static TEXT: RefCell<String> = RefCell::new("nothing".into());
}

impl Crowd {
    /// Each thread sees that its thread-locals are new, parks, and sees that they are its own.
    fn park(runtime: &Runtime, n: usize) -> Crowd {
        let wake = Arc::new(AtomicBool::new(false));
        let parked = Arc::new(AtomicUsize::new(0));
        let threads = (0..n).map(|i| {
            let (wake, parked) = (wake.clone(), parked.clone());
            runtime.spawn(move || {
                let (number, text) = (NUMBER.replace(i), TEXT.with_borrow(Clone::clone));
                assert_eq!((number, &*text), (7, "nothing"));
                TEXT.set(i.to_string());
                parked.fetch_add(1, Ordering::Relaxed);
                while !wake.load(Ordering::Acquire) {
                    crate::park();
                }
                assert_eq!((NUMBER.get(), TEXT.take()), (i, i.to_string()));
            })
        });
        let threads = threads.collect();
        until("all are parked", || parked.load(Ordering::Relaxed) == n);
        Crowd { wake, threads }
    }

    fn end(self) {
        self.wake.store(true, Ordering::Release); // pairs with the load in the threads
        for thread in &self.threads {
            thread.thread().unpark();
        }
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Records (256 bytes a thread) and a little of malloc's stay.
const STAYS: usize = 1024;

#[test]
fn after_a_crowd_its_memory_is_given_back() {
    const CROWD: usize = 10_000;
    in_child(
        "after_a_crowd_its_memory_is_given_back",
        20 * MILLISECOND,
        || {
            let Some(runtime) = runtime() else { return };
            Crowd::park(&runtime, 10).end();
            let before = memory();
            for _ in 0..2 {
                let crowd = Crowd::park(&runtime, CROWD);
                let full = memory();
                assert!(full.0 > before.0 + CROWD * 2 * page());
                crowd.end();
                until("the slots are given back", || {
                    let (now, tables) = memory();
                    now < before.0 + CROWD * STAYS && tables < before.1 + (full.1 - before.1) / 8
                });
                eprintln!("before {before:?}, full {full:?}, after {:?}", memory());
            }
        },
    );
}

/// How often the spawner has slept.
fn sleeps_of_recruiter() -> u64 {
    let status = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let status = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")));
        status.flatten().find(|text| text.contains("gt-spawner"))
    };
    // It gives itself its name when it first runs; and a directory that changes is not read as a whole.
    until("the spawner is there", || status().is_some());
    let status = std::iter::repeat_with(status).flatten().next().unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn then_the_recruiter_sleeps() {
    const TEST: &str = "then_the_recruiter_sleeps";
    in_child(TEST, 20 * MILLISECOND, || {
        let Some(runtime) = runtime() else { return };
        Crowd::park(&runtime, 10).end();
        until("processors are idle", || {
            // So few threads may not have needed a second kernel thread.
            let metrics = runtime.metrics();
            metrics.parked_kernel_threads == metrics.kernel_threads
        });
        let before = sleeps_of_recruiter();
        Crowd::park(&runtime, 1000).end();
        until("the slots are given back", || {
            sleeps_of_recruiter() >= before + 2 && slots() < 100
        });
        until("it sleeps for twenty intervals", || {
            let asleep = sleeps_of_recruiter();
            std::thread::sleep(Duration::from_nanos(20 * 20 * MILLISECOND));
            sleeps_of_recruiter() == asleep
        });
    });
}

#[test]
fn a_crowd_that_comes_again_keeps_its_slots() {
    const TEST: &str = "a_crowd_that_comes_again_keeps_its_slots";
    // An interval that does not end.
    in_child(TEST, 3_600_000 * MILLISECOND, || {
        let Some(runtime) = runtime() else { return };
        let mut counts = Vec::new();
        for _ in 0..5 {
            Crowd::park(&runtime, 5000).end();
            counts.push(slots());
        }
        assert!(counts[0] >= 5000, "{counts:?}");
        // A processor's cache may have some that the other one would need.
        assert!(counts[4] <= counts[0] + 2048, "{counts:?}");
    });
}

/// Crowds come and go, and between them threads that stay, while slots are given back all the time.
#[test]
fn slots_in_use_stay() {
    const TEST: &str = "slots_in_use_stay";
    in_child(TEST, MILLISECOND / 5, || {
        let Some(runtime) = runtime() else { return };
        let mut random = fastrand::Rng::with_seed(7);
        let mut crowds: Vec<Crowd> = Vec::new();
        let mut initialised = 0;
        for _ in 0..60 {
            crowds.push(Crowd::park(&runtime, random.usize(1..1500)));
            if crowds.len() > 4 {
                crowds.swap_remove(random.usize(..crowds.len())).end();
            }
            // The processors lie down, or do not.
            if random.bool() {
                std::thread::sleep(Duration::from_micros(random.u64(..2000)));
            }
            initialised = initialised.max(slots());
        }
        crowds.into_iter().for_each(Crowd::end);
        until("the slots are given back", || slots() < 200);
        assert!(initialised > 1000);
    });
}

#[test]
fn the_last_runtime_leaves_no_crowd_behind() {
    const TEST: &str = "the_last_runtime_leaves_no_crowd_behind";
    in_child(TEST, 3_600_000 * MILLISECOND, || {
        let (Some(first), Some(last)) = (runtime(), runtime()) else {
            return;
        };
        Crowd::park(&first, 3000).end();
        first.shutdown();
        let before = slots();
        last.shutdown();
        let after = slots();
        assert!(before >= 3000 && after < 100, "{before}, {after}");
    });
}
