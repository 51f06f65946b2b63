//! More threads block in the kernel than there can be kernel threads. All go on: those that wait on
//! a futex make room for those that are ready; and the shortage is said, once.
//!
//! Each case runs in a process of its own, whose calls of libc are libc's: stderr and the limits are the whole process's.

use crate::common::*;
use greenthread::runtime::{Mode, Runtime};
use std::io::{Read, Write};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Kernel threads that there may be, and green threads that block.
const LIMIT: usize = 20;
const THREADS: usize = 100;

fn limited() -> Runtime {
    Runtime::builder()
        .processors(2)
        .max_kernel_threads(LIMIT)
        .build()
        .unwrap()
}

/// Runs `case` in a process of its own, which must end well; what it said, in its parent.
fn run(name: &'static str, case: impl FnOnce()) -> Option<Output> {
    if child_case(name).is_some() {
        case();
        return None;
    }
    let _w = watchdog(name);
    let out = child_with(name, "", &[("GREENTHREAD_UNMODIFIED", "off")]);
    println!("{}", said(&out));
    assert_code(&out, 0);
    Some(out)
}

/// The report, which comes once, names `why`.
fn assert_reported(out: &Output, why: &str) {
    if green() {
        line_with(out, &["greenthread: ", why, "raises the limit", "pids.max"]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(stderr.matches("kernel threads").count(), 1, "{stderr}");
    }
}

/// Joins all, once all are there.
fn join_all<T>(threads: impl IntoIterator<Item = greenthread::JoinHandle<T>>) {
    let threads: Vec<_> = threads.into_iter().collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The last to come wakes the others: each must get that far.
fn come_to_a_barrier() {
    let (runtime, barrier) = (limited(), Arc::new(Barrier::new(THREADS)));
    let leaders = Arc::new(AtomicUsize::new(0));
    join_all((0..THREADS).map(|_| {
        let (barrier, leaders) = (barrier.clone(), leaders.clone());
        runtime.spawn(move || {
            for _ in 0..3 {
                leaders.fetch_add(usize::from(barrier.wait().is_leader()), Relaxed);
            }
        })
    }));
    assert_eq!(leaders.load(Relaxed), 3);
    runtime.shutdown();
}

#[test]
fn all_come_to_a_barrier() {
    run("thread_limit::all_come_to_a_barrier", come_to_a_barrier);
}

/// Each waits for its turn, and gives it to the next, who may be any number of threads away from a
/// kernel thread. One lost wake-up, and it hangs.
#[test]
fn no_turn_is_lost() {
    run("thread_limit::no_turn_is_lost", || {
        const ROUNDS: usize = 2;
        const TURNS: usize = 2 * LIMIT;
        let runtime = limited();
        let turn = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = Arc::new((parking_lot::Mutex::new(0), parking_lot::Condvar::new()));
        join_all((0..TURNS).map(|i| {
            let (turn, theirs) = (turn.clone(), theirs.clone());
            runtime.spawn(move || {
                for round in 0..ROUNDS {
                    let mine = round * (TURNS) + i;
                    let mut now = turn.0.lock().unwrap();
                    while *now != mine {
                        now = turn.1.wait(now).unwrap();
                    }
                    *now += 1;
                    turn.1.notify_all();
                    drop(now);
                    let mut now = theirs.0.lock();
                    while *now != mine {
                        theirs.1.wait(&mut now);
                    }
                    *now += 1;
                    theirs.1.notify_all();
                }
            })
        }));
        assert_eq!(*turn.0.lock().unwrap(), ROUNDS * TURNS);
        runtime.shutdown();
    });
}

/// Who holds what all others wait for waits in the runtime, and comes back when there is no kernel
/// thread left. Those that are locked to theirs keep it; those that wait until a deadline do so no longer.
fn holder_comes_back() {
    const LONG: Duration = Duration::from_millis(700);
    let runtime = limited();
    let held = Arc::new((Mutex::new(0), Condvar::new()));
    let holder = held.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let holder = runtime.spawn(move || {
        let mut count = holder.0.lock().unwrap();
        tell.send(()).unwrap();
        greenthread::sleep(LONG);
        *count += 1;
    });
    told.recv().unwrap();
    let start = Instant::now();
    let others: Vec<_> = (0..THREADS)
        .map(|i| {
            let held = held.clone();
            runtime.spawn(move || match i % 25 {
                0 => {
                    let locked = greenthread::lock_kernel_thread();
                    let before = gettid();
                    *held.0.lock().unwrap() += 1;
                    assert_eq!(gettid(), before);
                    drop(locked);
                }
                1 => {
                    let own = Mutex::new(());
                    let (wait, timeout) = (Condvar::new(), LONG / 10);
                    let guard = own.lock().unwrap();
                    let waited = wait.wait_timeout_while(guard, timeout, |()| true).unwrap();
                    assert!(waited.1.timed_out() && start.elapsed() >= timeout);
                    drop(waited);
                    *held.0.lock().unwrap() += 1;
                }
                _ => *held.0.lock().unwrap() += 1,
            })
        })
        .collect();
    holder.join().unwrap();
    join_all(others);
    assert_eq!(*held.0.lock().unwrap(), THREADS + 1);
    runtime.shutdown();
}

#[test]
fn the_holder_comes_back() {
    let out = run("thread_limit::the_holder_comes_back", holder_comes_back);
    if let Some(out) = out {
        assert_reported(
            &out,
            &format!("the limit of {LIMIT} kernel threads is reached"),
        );
    }
}

/// Who has a file locked waits for a timer while others wait for the file on all kernel threads.
#[test]
fn who_has_a_file_locked_comes_back() {
    run("thread_limit::who_has_a_file_locked_comes_back", || {
        let path = std::env::temp_dir().join(format!("greenthread-locked-{}", std::process::id()));
        let file = greenthread::fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let runtime = limited();
        let waiters: Vec<_> = (0..THREADS)
            .map(|i| {
                let file = greenthread::fs::File::open(&path).unwrap();
                runtime.spawn(move || {
                    match i % 2 {
                        0 => file.lock().unwrap(),
                        _ => file.lock_shared().unwrap(),
                    }
                    greenthread::yield_now();
                    file.unlock().unwrap();
                })
            })
            .collect();
        wait_until(|| runtime.metrics().kernel_threads >= LIMIT || !green());
        let sleeps = runtime.spawn(move || {
            greenthread::sleep(Duration::from_millis(1));
            file.unlock().unwrap();
        });
        join_all(waiters.into_iter().chain([sleeps]));
        std::fs::remove_file(&path).unwrap();
    });
}

fn was_skipped(out: &Output) -> bool {
    String::from_utf8_lossy(&out.stdout).contains("skipped")
}

/// Who blocks elsewhere keeps its kernel thread; when it returns, it and the others go on.
#[test]
fn who_returns_goes_on() {
    run("thread_limit::who_returns_goes_on", || {
        let runtime = limited();
        let (readers, mut writers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| std::io::pipe().unwrap()).unzip();
        let threads: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                runtime.spawn(move || {
                    let mut byte = [0];
                    reader.read_exact(&mut byte).unwrap();
                    greenthread::yield_now();
                    byte[0]
                })
            })
            .collect();
        if runtime.mode() == Mode::Green {
            wait_until(|| runtime.metrics().kernel_threads == LIMIT);
        }
        for writer in &mut writers {
            writer.write_all(&[7]).unwrap();
        }
        threads
            .into_iter()
            .for_each(|thread| assert_eq!(thread.join().unwrap(), 7));
        runtime.shutdown();
    });
}

/// If nobody can be asked to leave, the monitor does not look for one all the time.
#[test]
fn a_search_in_vain_costs_little() {
    run("thread_limit::a_search_in_vain_costs_little", || {
        let runtime = limited();
        if runtime.mode() == Mode::Kernel {
            return;
        }
        let (readers, writers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| std::io::pipe().unwrap()).unzip();
        let read = |mut reader: std::io::PipeReader| {
            runtime.spawn(move || reader.read_to_end(&mut Vec::new()).unwrap())
        };
        let threads: Vec<_> = readers.into_iter().map(read).collect();
        wait_until(|| runtime.metrics().kernel_threads == LIMIT);
        let before = monitors_time();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let time = begun.elapsed();
        let used = monitors_time() - before;
        println!("{used:?} in {time:?}");
        assert!(used < time / 8);
        drop(writers);
        join_all(threads);
        runtime.shutdown();
    });
}

/// CPU time that monitors have used.
fn monitors_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let is_monitor = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "gt-monitor\n")
    };
    paths
        .filter(is_monitor)
        .map(|path| {
            let id: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: zeroes are a time, which the call fills in. The kernel's encoding of a thread's clock.
            let time = unsafe {
                let mut time: libc::timespec = std::mem::zeroed();
                assert_eq!(libc::clock_gettime(!id << 3 | 6, &mut time), 0);
                time
            };
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        })
        .sum()
}

/// The system makes no more kernel threads: the same. When it does again, it is asked again.
#[test]
fn the_system_refuses_for_a_while() {
    let out = run("thread_limit::the_system_refuses_for_a_while", || {
        become_nobody();
        let runtime = Runtime::builder().processors(2).build().unwrap();
        if runtime.mode() == Mode::Kernel {
            return;
        }
        set_limit(libc::RLIMIT_NPROC, LIMIT as u64);
        let (started, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())));
        let (readers, writers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| std::io::pipe().unwrap()).unzip();
        let closed = gate.lock().unwrap();
        let threads: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                let (started, gate) = (started.clone(), gate.clone());
                runtime.spawn(move || {
                    started.fetch_add(1, Relaxed);
                    drop(gate.lock().unwrap());
                    // Blocked where nobody is asked to leave.
                    reader.read_to_end(&mut Vec::new()).unwrap();
                    started.fetch_sub(1, Relaxed);
                })
            })
            .collect();
        wait_until(|| started.load(Relaxed) == THREADS);
        std::thread::sleep(Duration::from_millis(300));
        let made = runtime.metrics().kernel_threads;
        assert!(made <= LIMIT, "{made} kernel threads");
        drop(closed);
        set_limit(libc::RLIMIT_NPROC, u64::MAX);
        wait_until(|| runtime.metrics().kernel_threads >= THREADS);
        drop(writers);
        join_all(threads);
        assert_eq!(started.load(Relaxed), 0);
        runtime.shutdown();
    });
    if let Some(out) = out.filter(|out| !was_skipped(out)) {
        assert_reported(&out, "the system refuses");
    }
}
