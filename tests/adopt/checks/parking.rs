//! Parking, sleeping, yielding.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(15);
const LONG: Duration = Duration::from_secs(10_000);

pub fn a_token_is_kept() {
    let body = || {
        for _ in 0..50 {
            thread::current().unpark();
            thread::park();
        }
    };
    thread::spawn(body).join().unwrap();
}

/// The thread waits by yielding: a channel may park, too, and take the token.
pub fn a_token_from_another_thread_is_kept() {
    let go = Arc::new(AtomicBool::new(false));
    let gone = go.clone();
    let handle = thread::spawn(move || {
        wait_until(|| gone.load(Acquire));
        thread::park();
    });
    handle.thread().unpark();
    handle.thread().unpark();
    go.store(true, Release);
    handle.join().unwrap();
}

pub fn unpark_before_the_start_is_kept() {
    for _ in 0..100 {
        let handle = thread::spawn(thread::park);
        handle.thread().unpark();
        handle.join().unwrap();
    }
}

pub fn a_thread_that_ended_can_be_unparked() {
    let handle = thread::spawn(|| ());
    let thread = handle.thread().clone();
    handle.join().unwrap();
    thread.unpark();
    thread.unpark();
}

pub fn parked_threads_take_turns() {
    const TURNS: usize = 1_000;
    let turn = Arc::new(AtomicUsize::new(0));
    let play = |turn: &AtomicUsize, mine: usize, other: &thread::Thread| {
        for i in (mine..TURNS).step_by(2) {
            while turn.load(Acquire) != i {
                thread::park();
            }
            turn.store(i + 1, Release);
            other.unpark();
        }
    };
    let (here, shared) = (thread::current(), turn.clone());
    let handle = thread::spawn(move || play(&shared, 1, &here));
    play(&turn, 0, handle.thread());
    handle.join().unwrap();
    assert_eq!(turn.load(Relaxed), TURNS);
}

/// The word is relaxed: parking orders it.
pub fn unpark_is_followed_by_what_was_written() {
    for _ in 0..200 {
        let word = Arc::new(AtomicBool::new(false));
        let read = word.clone();
        let handle = thread::spawn(move || {
            while !read.load(Relaxed) {
                thread::park();
            }
        });
        word.store(true, Relaxed);
        handle.thread().unpark();
        handle.join().unwrap();
    }
}

pub fn any_clone_unparks() {
    let done = Arc::new(AtomicUsize::new(0));
    let waits = done.clone();
    let handle = thread::spawn(move || {
        while waits.load(Acquire) < 10 {
            thread::park();
        }
    });
    let others: Vec<_> = (0..10)
        .map(|_| {
            let (done, thread) = (done.clone(), handle.thread().clone());
            thread::spawn(move || {
                done.fetch_add(1, Release);
                thread.unpark();
            })
        })
        .collect();
    handle.join().unwrap();
    for other in others {
        other.join().unwrap();
    }
}

pub fn park_timeout_ends() {
    let body = || {
        let begun = Instant::now();
        while begun.elapsed() < SHORT {
            thread::park_timeout(SHORT);
        }
    };
    thread::spawn(body).join().unwrap();
    thread::spawn(|| thread::park_timeout(SHORT))
        .join()
        .unwrap();
}

pub fn park_timeout_zero_returns() {
    let body = || (0..100).for_each(|_| thread::park_timeout(Duration::ZERO));
    thread::spawn(body).join().unwrap();
}

pub fn a_token_ends_park_timeout() {
    let handle = thread::spawn(|| thread::park_timeout(LONG));
    handle.thread().unpark();
    handle.join().unwrap();
    let handle = thread::spawn(|| thread::park_timeout(Duration::MAX));
    handle.thread().unpark();
    handle.join().unwrap();
}

pub fn many_parked_threads_wake() {
    let go = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..300)
        .map(|_| {
            let go = go.clone();
            thread::spawn(move || {
                while !go.load(Acquire) {
                    thread::park();
                }
            })
        })
        .collect();
    go.store(true, Release);
    handles.iter().for_each(|handle| handle.thread().unpark());
    for handle in handles {
        handle.join().unwrap();
    }
}

pub fn sleep_is_long_enough() {
    for nanos in [1, 1_000, 1_000_000, 15_000_000] {
        let asked = Duration::from_nanos(nanos);
        let slept = thread::spawn(move || {
            let begun = Instant::now();
            thread::sleep(asked);
            begun.elapsed()
        });
        let slept = slept.join().unwrap();
        assert!(slept >= asked, "{slept:?} of {asked:?}");
    }
}

pub fn sleeping_for_nothing_returns() {
    let body = || (0..100).for_each(|_| thread::sleep(Duration::ZERO));
    thread::spawn(body).join().unwrap();
}

/// None begins before all have come, and each sleeps long enough, whoever wakes first.
pub fn sleepers_sleep_at_once() {
    const COUNT: usize = 200;
    let meet = Barrier::new(COUNT);
    thread::scope(|threads| {
        for i in 0..COUNT {
            let meet = &meet;
            threads.spawn(move || {
                let asked = Duration::from_micros(100 * (COUNT - i) as u64);
                meet.wait();
                let begun = Instant::now();
                thread::sleep(asked);
                assert!(begun.elapsed() >= asked);
            });
        }
    });
}

pub fn yielding_lets_others_in() {
    let turn = AtomicUsize::new(0);
    thread::scope(|threads| {
        for mine in 0..4 {
            let turn = &turn;
            threads.spawn(move || {
                for i in (mine..400).step_by(4) {
                    wait_until(|| turn.load(Acquire) == i);
                    turn.store(i + 1, Release);
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), 400);
}

/// Eight threads spin until one comes that is started after them.
pub fn spinning_lets_others_in() {
    let (spinning, go) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                spinning.fetch_add(1, Relaxed);
                while !go.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        threads.spawn(|| {
            wait_until(|| spinning.load(Relaxed) == 8);
            go.store(true, Relaxed);
        });
    });
}
