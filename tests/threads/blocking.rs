//! Threads that block in the kernel give their processor away; threads that are ready get one;
//! and when there is nothing to do, nothing is done.

use crate::common::alone;
use crate::support::*;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCKED: usize = 64;
const QUICK: usize = 1_000;

/// Spawns and joins a thousand threads.
fn run_quick_threads(runtime: &greenthread::runtime::Runtime) {
    let quick: Vec<_> = (0..QUICK).map(|i| runtime.spawn(move || i)).collect();
    let sum: usize = quick.into_iter().map(|quick| quick.join().unwrap()).sum();
    assert_eq!(sum, QUICK * (QUICK - 1) / 2);
}

/// Blocks 64 threads on two processors, runs the quick ones, and only then lets go of the 64:
/// whoever waits for a blocked thread's processor here waits for ever, and the watchdog barks.
fn blocked_threads_keep_no_processor<F: FnOnce() + Send + 'static>(
    what: &'static str,
    mut block: impl FnMut() -> F,
    release: impl FnOnce(),
) {
    let dog = Watchdog::new(what);
    let (runtime, green) = runtime(2);
    let (entered, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|_| {
            let (entered, left, block) = (entered.clone(), left.clone(), block());
            runtime.spawn(move || {
                entered.fetch_add(1, Relaxed);
                block();
                left.fetch_add(1, Relaxed);
            })
        })
        .collect();
    while entered.load(Relaxed) < BLOCKED {
        std::thread::sleep(Duration::from_millis(1));
    }
    dog.progress();
    run_quick_threads(&runtime);
    assert_eq!(left.load(Relaxed), 0, "{what}: a thread was not blocked");
    assert!(
        !green || runtime.metrics().hand_offs > 0,
        "{what}: who ran the quick ones?"
    );
    release();
    blocked
        .into_iter()
        .for_each(|blocked| blocked.join().unwrap());
    runtime.shutdown();
}

#[test]
fn reads_of_a_pipe() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    let (ends, mut pens): (Vec<_>, Vec<_>) = (0..BLOCKED).map(|_| std::io::pipe().unwrap()).unzip();
    let mut ends = ends.into_iter();
    blocked_threads_keep_no_processor(
        "pipe reads",
        || {
            let mut end = ends.next().unwrap();
            move || {
                let mut byte = [0];
                end.read_exact(&mut byte).unwrap();
                assert_eq!(byte, *b"x");
            }
        },
        || {
            pens.iter_mut()
                .for_each(|pen| std::io::Write::write_all(pen, b"x").unwrap())
        },
    );
}

#[test]
fn announced_reads_of_a_pipe() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    let (ends, pens): (Vec<_>, Vec<_>) = (0..BLOCKED).map(|_| std::io::pipe().unwrap()).unzip();
    let mut ends = ends.into_iter();
    blocked_threads_keep_no_processor(
        "announced pipe reads",
        || {
            let mut end = ends.next().unwrap();
            move || assert_eq!(greenthread::blocking(|| end.read(&mut [0]).unwrap()), 0)
        },
        || drop(pens),
    );
}

#[test]
fn a_contended_std_mutex() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    let mutex = Arc::new(Mutex::new(0));
    let held = mutex.lock().unwrap();
    blocked_threads_keep_no_processor(
        "std mutex",
        || {
            let mutex = mutex.clone();
            move || *mutex.lock().unwrap() += 1
        },
        || drop(held),
    );
    assert_eq!(*mutex.lock().unwrap(), BLOCKED);
}

/// 64 sleeps, which the runtime is not told of, overlap on two processors: when the first is over
/// all have begun, and the quick threads are done. Were they one after the other, no sleep would be
/// long enough for that; on a worker that is busy with other things a longer one is.
#[test]
fn sleeps_in_the_kernel() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    let dog = Watchdog::new("kernel sleeps");
    let mut sleep = Duration::from_millis(50);
    best_of(6, "64 sleeps at once, and 1,000 threads meanwhile", || {
        dog.progress();
        sleep *= 2;
        let (runtime, _) = runtime(2);
        // How many have begun, how many are over, how many had begun when the first was.
        let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let sleepers: Vec<_> = (0..BLOCKED)
            .map(|_| {
                let counts = counts.clone();
                runtime.spawn(move || {
                    let [begun, over, overlapping] = &*counts;
                    begun.fetch_add(1, Relaxed);
                    let start = Instant::now();
                    std::thread::sleep(sleep);
                    assert!(start.elapsed() >= sleep, "the sleep was cut short");
                    if over.fetch_add(1, Relaxed) == 0 {
                        overlapping.store(begun.load(Relaxed), Relaxed);
                    }
                })
            })
            .collect();
        run_quick_threads(&runtime);
        let over_before_quick = counts[1].load(Relaxed);
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        runtime.shutdown();
        let overlapping = counts[2].load(Relaxed);
        eprintln!(
            "{overlapping} sleeps of {sleep:?} at once; {over_before_quick} over before the quick threads"
        );
        over_before_quick == 0 && overlapping == BLOCKED
    });
}

/// Pure work, about twenty microseconds of it.
#[inline(never)]
fn work() {
    let mut x = 1u64;
    for _ in 0..2_000 {
        x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(1));
    }
}

/// So many pieces of work a thread has.
const PIECES: usize = 1_000;

/// Works, until `begun` has reached two or all is done. Returns how many pieces that were.
fn work_alone(begun: &AtomicUsize) -> usize {
    begun.fetch_add(1, Relaxed);
    (0..PIECES)
        .take_while(|_| begun.load(Relaxed) < 2)
        .map(|_| work())
        .count()
}

/// How many pieces of work the first of two threads does until the second one begins, when the processors were
/// asleep before. With two workers, a third thread unparks them and waits; with one, the thread that unparks it works
/// as well.
macro_rules! wake_and_work {
    ($thread:path, $workers:expr) => {{
        use $thread as thread;
        let go = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..$workers)
            .map(|_| {
                let (go, begun) = (go.clone(), begun.clone());
                thread::spawn(move || {
                    while !go.load(Acquire) {
                        thread::park();
                    }
                    work_alone(&begun)
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(3)); // time for them to park, and to fall asleep
        go.store(true, Release); // pairs with the workers' load
        workers.iter().for_each(|worker| worker.thread().unpark());
        let mine: usize = (workers.len()..2).map(|_| work_alone(&begun)).sum();
        let theirs = workers.into_iter().map(|worker| worker.join().unwrap());
        mine + theirs.sum::<usize>()
    }};
}

/// No work sits beside a sleeping processor: while one thread works, the other one begins, after about as much of the
/// first one's work as with kernel threads, of which the best rounds are compared. One after the other, it is all of the
/// first one's. How busy the worker is with others does not count: a thread that is not run does no work.
fn no_later_than_kernel_threads(what: &str, green: fn() -> usize, kernel: fn() -> usize) {
    let dog = Watchdog::new("two workers");
    best_of(5, what, || {
        dog.progress();
        let (runtime, _) = runtime(2);
        let mut best = [PIECES; 2];
        for _ in 0..15 {
            best[0] = best[0].min(runtime.spawn(green).join().unwrap());
            best[1] = best[1].min(std::thread::spawn(kernel).join().unwrap());
        }
        runtime.shutdown();
        let [green, kernel] = best;
        eprintln!("{what}: {green} pieces of work alone, with kernel threads {kernel}");
        green <= kernel + PIECES / 10
    });
}

#[test]
fn two_unparked_threads_run_at_once() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    no_later_than_kernel_threads(
        "two unparked",
        || wake_and_work!(greenthread, 2),
        || wake_and_work!(std::thread, 2),
    );
}

#[test]
fn an_unparked_thread_does_not_wait_for_its_waker() {
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    no_later_than_kernel_threads(
        "one unparked, its waker busy",
        || wake_and_work!(greenthread, 1),
        || wake_and_work!(std::thread, 1),
    );
}

/// Processor time and context switches of this process so far, its dead threads included.
fn usage() -> (Duration, libc::c_long) {
    // SAFETY: an all-zero `rusage` is a valid one, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let micros =
        |t: libc::timeval| Duration::from_micros((t.tv_sec * 1_000_000 + t.tv_usec) as u64);
    (
        micros(usage.ru_utime) + micros(usage.ru_stime),
        usage.ru_nvcsw + usage.ru_nivcsw,
    )
}

/// Which kernel threads switched how often: tells who broke the rest.
fn switches_by_thread() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lines = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("status")));
    lines
        .flat_map(|status| {
            let fields = status
                .lines()
                .filter(|line| line.starts_with("Name:") || line.contains("ctxt_switches:"));
            fields
                .map(|line| line.replace('\t', " ") + "; ")
                .chain(["\n".into()])
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A runtime that has been busy and now has only parked threads costs nothing, once it has settled.
#[test]
fn an_idle_runtime_rests() {
    const NAME: &str = "blocking::an_idle_runtime_rests";
    const TIME: Duration = Duration::from_secs(2);
    let _alone = alone();
    alone!(GREENTHREAD_UNMODIFIED = "off");
    if !is_child() {
        return assert!(child(NAME).status().unwrap().success());
    }
    let dog = Watchdog::new(NAME);
    let runtime = greenthread::runtime::Runtime::global();
    let forever: Vec<_> = (0..100)
        .map(|_| {
            runtime.spawn(|| {
                loop {
                    greenthread::park()
                }
            })
        })
        .collect();
    run_quick_threads(runtime);
    runtime
        .spawn(|| greenthread::sleep(Duration::from_millis(20)))
        .join()
        .unwrap();
    runtime
        .spawn(|| std::thread::sleep(Duration::from_millis(20)))
        .join()
        .unwrap();

    best_of(8, "rest", || {
        dog.progress();
        let before = (switches_by_thread(), usage());
        std::thread::sleep(TIME);
        let after = (usage(), switches_by_thread());
        let (cpu, switches) = (after.0.0 - before.1.0, after.0.1 - before.1.1);
        eprintln!("{TIME:?} idle: {cpu:?} of processor time, {switches} context switches");
        let rests = cpu <= TIME / 500 && switches <= 8;
        if !rests {
            eprintln!("before:\n{}after:\n{}", before.0, after.1);
        }
        rests
    });
    assert_eq!(
        forever.iter().filter(|thread| thread.is_finished()).count(),
        0
    );
}
