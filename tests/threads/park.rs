//! Waiting: park and its token, sleep, yield, `blocking`, and staying on one kernel thread.
//!
//! The idea: as in `thread.rs`; `std::thread`'s documentation is the measure, asked from a kernel
//! thread and a green one.

use crate::common::*;
use greenthread as thread;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[test]
fn park_tokens() {
    let _w = watchdog("park::park_tokens");
    both(|| {
        thread::current().unpark(); // before park: park returns at once
        thread::park();
        thread::current().unpark();
        thread::current().unpark(); // two are one token
        thread::park();
        let before = Instant::now();
        thread::park_timeout(Duration::from_millis(2)); // no token left: it takes the time (or wakes spuriously)
        let _ = before.elapsed();
        thread::park_timeout(Duration::ZERO);
        thread::current().unpark();
        thread::park_timeout(Duration::MAX); // takes the token too
        // The token makes what came before unpark visible, and an unpark is never lost.
        let (turn, me) = (Arc::new(AtomicUsize::new(0)), thread::current());
        let theirs = turn.clone();
        let other = thread::spawn(move || {
            for i in 0..1000 {
                while theirs.load(Acquire) != 2 * i + 1 {
                    if i % 2 == 0 {
                        thread::park()
                    } else {
                        thread::park_timeout(Duration::MAX)
                    }
                }
                theirs.store(2 * i + 2, Release);
                me.unpark();
            }
        });
        for i in 0..1000 {
            turn.store(2 * i + 1, Release);
            other.thread().unpark();
            while turn.load(Acquire) != 2 * i + 2 {
                thread::park();
            }
        }
        let handle = other.thread().clone();
        other.join().unwrap();
        handle.unpark(); // of a thread that has ended: nothing
        assert_eq!(handle.name(), None);
    });
}

#[test]
fn a_timed_park_ends_by_itself() {
    let _w = watchdog("park::a_timed_park_ends_by_itself");
    both(|| {
        let (start, wait) = (Instant::now(), Duration::from_millis(5));
        while start.elapsed() < wait {
            thread::park_timeout(wait); // may wake early, must wake
        }
    });
}

#[test]
fn spawning_and_joining_leave_the_park_token_alone() {
    let _w = watchdog("park::spawning_and_joining_leave_the_park_token_alone");
    both(|| {
        for _ in 0..100 {
            let me = thread::current();
            me.unpark();
            let other = thread::spawn(|| {
                thread::current().unpark(); // its own
                thread::park();
            });
            other.join().unwrap();
            thread::park(); // the token given first is still there
            thread::spawn(move || me.unpark()).join().unwrap();
            thread::park(); // so is one that came during a join
        }
    });
}

#[test]
fn sleeping_takes_at_least_as_long() {
    let _w = watchdog("park::sleeping_takes_at_least_as_long");
    both(|| {
        let (start, pause) = (Instant::now(), Duration::from_millis(3));
        thread::sleep(Duration::ZERO);
        thread::sleep(pause);
        assert!(start.elapsed() >= pause);
        thread::sleep_until(start); // past: returns
        let later = Instant::now() + pause;
        thread::sleep_until(later);
        assert!(Instant::now() >= later);
        // Unparking a sleeper does not wake it; it keeps the token.
        thread::current().unpark();
        let start = Instant::now();
        thread::sleep(pause);
        assert!(start.elapsed() >= pause);
        thread::park();
    });
}

#[test]
fn sleeping_for_ever_does_not_overflow() {
    const NAME: &str = "park::sleeping_for_ever_does_not_overflow";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let far = Instant::now() + Duration::from_secs(1 << 33);
        let forever: [fn(Instant); 4] = [
            |_| thread::sleep(Duration::MAX),
            |_| thread::sleep(Duration::from_secs(u64::MAX)),
            |far| thread::sleep_until(far),
            |_| loop {
                thread::park_timeout(Duration::MAX) // may wake spuriously
            },
        ];
        let started = Arc::new(AtomicUsize::new(0));
        let start = |sleep: fn(Instant)| {
            let started = started.clone();
            thread::spawn(move || {
                started.fetch_add(1, SeqCst);
                sleep(far)
            })
        };
        let handles: Vec<_> = forever.into_iter().cycle().take(40).map(start).collect();
        wait_until(|| started.load(SeqCst) == handles.len());
        thread::spawn(|| thread::sleep(Duration::from_millis(20)))
            .join()
            .unwrap(); // other timers go on
        assert!(handles.iter().all(|h| !h.is_finished()));
        return;
    }
    let out = child(NAME, "");
    assert_code(&out, 0);
    assert!(!said(&out).contains("panicked"), "{}", said(&out));
}

#[test]
fn yielding_lets_others_run() {
    let _w = watchdog("park::yielding_lets_others_run");
    both(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let spinners: Vec<_> = (0..100)
            .map(|_| stop.clone())
            .map(|stop| {
                thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for i in 0..20 {
            assert_eq!(thread::spawn(move || i).join().unwrap(), i);
        }
        stop.store(true, Relaxed);
        spinners.into_iter().for_each(|s| s.join().unwrap());
    });
}

#[test]
fn blocking_gives_the_result_or_the_panic() {
    let _w = watchdog("park::blocking_gives_the_result_or_the_panic");
    both(|| {
        let text = String::from("borrowed");
        assert_eq!(thread::blocking(|| text.len()), 8);
        assert_eq!(
            thread::blocking(|| thread::blocking(|| thread::spawn(|| 3).join().unwrap())),
            3,
            "nested"
        );
        assert_eq!(
            thread::blocking(|| thread::current().id()),
            thread::current().id()
        );
        let payload =
            catch_unwind(|| thread::blocking(|| resume_unwind(Box::new(7u8)))).unwrap_err();
        assert_eq!(*payload.downcast::<u8>().unwrap(), 7);
        // More of them than processors block for good while others run; these others let them go.
        let (blocked, others) = (Arc::new(AtomicUsize::new(0)), 100);
        let (ends, waiters): (Vec<_>, Vec<_>) = (0..64)
            .map(|i| {
                let ((send, receive), blocked) = (mpsc::channel(), blocked.clone());
                let waiter = thread::spawn(move || {
                    blocked.fetch_add(1, SeqCst);
                    thread::blocking(|| receive.recv().unwrap()) + i
                });
                (send, waiter)
            })
            .unzip();
        wait_until(|| blocked.load(SeqCst) == 64);
        (0..others)
            .map(|_| thread::spawn(|| ()))
            .for_each(|h| h.join().unwrap());
        ends.iter()
            .for_each(|end: &mpsc::Sender<usize>| end.send(1000).unwrap());
        let sum: usize = waiters.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!(sum, 64_000 + 64 * 63 / 2);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_locked_thread_stays_on_its_kernel_thread() {
    fn stays(tid: i32) {
        for i in 0..200 {
            match i % 4 {
                0 => thread::sleep(Duration::from_micros(50)),
                1 => thread::park_timeout(Duration::from_micros(50)),
                2 => drop(thread::spawn(|| ()).join()),
                _ => (0..50).for_each(|_| thread::yield_now()),
            }
            assert_eq!(gettid(), tid);
        }
    }
    let _w = watchdog("park::a_locked_thread_stays_on_its_kernel_thread");
    both(|| {
        let locked = || {
            let outer = thread::lock_kernel_thread();
            let tid = gettid();
            stays(tid);
            let inner = thread::lock_kernel_thread();
            stays(tid);
            drop(inner);
            stays(tid); // still held by the outer one
            drop(outer);
            (0..100).for_each(|_| thread::yield_now()); // free again
            tid
        };
        let movers: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| (0..5000).for_each(|_| thread::yield_now())))
            .collect();
        let handles: Vec<_> = (0..8).map(|_| thread::spawn(locked)).collect();
        locked();
        handles
            .into_iter()
            .for_each(|h| assert!(h.join().unwrap() > 0));
        movers.into_iter().for_each(|h| h.join().unwrap());
        // Ending while locked is allowed.
        let ends_locked = || std::mem::forget(thread::lock_kernel_thread());
        (0..4).for_each(|_| thread::spawn(ends_locked).join().unwrap());
        assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
    });
}
