//! `sync::Condvar`: waits, notifications, time limits, and that no notification is lost between
//! them.
//!
//! The idea: as in `mutex.rs`. A waiter counts itself under the mutex, which it gives away
//! only when it is in the queue; so the count is how many a notification can find.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use greenthread::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

#[test]
fn one_notification_wakes_one_in_order() {
    let _w = watchdog("condvar::one_notification_wakes_one_in_order");
    both(|| {
        // Who waits, and who was woken, in order.
        let shared = Arc::new((Mutex::new((0, Vec::new())), Condvar::new()));
        shared.1.notify_one(); // nobody: forgotten
        shared.1.notify_all();
        let waiters: Vec<_> = (0..10)
            .map(|i| {
                let theirs = shared.clone();
                let wait = move || {
                    let mut guard = theirs.0.lock().unwrap();
                    guard.0 += 1;
                    let mut guard = theirs.1.wait(guard).unwrap();
                    guard.1.push(i);
                };
                let waiter = thread::spawn(wait);
                wait_until(|| shared.0.lock().unwrap().0 == i + 1);
                waiter
            })
            .collect();
        for i in 0..5 {
            shared.1.notify_one();
            wait_until(|| shared.0.lock().unwrap().1.len() == i + 1);
        }
        assert_eq!(shared.0.lock().unwrap().1, [0, 1, 2, 3, 4]);
        shared.1.notify_all();
        waiters.into_iter().for_each(|w| w.join().unwrap());
        let mut woken = shared.0.lock().unwrap().1.clone();
        woken.sort();
        assert_eq!(woken, Vec::from_iter(0..10));
    });
}

#[test]
fn wait_while_waits_while() {
    let _w = watchdog("condvar::wait_while_waits_while");
    both(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = shared.clone();
        let counts = thread::spawn(move || {
            for _ in 0..100 {
                *theirs.0.lock().unwrap() += 1;
                theirs.1.notify_all();
                thread::yield_now();
            }
        });
        let (mutex, changed) = &*shared;
        let mut guard = changed
            .wait_while(mutex.lock().unwrap(), |n| *n < 100)
            .unwrap();
        assert_eq!(*guard, 100);
        guard = changed.wait_while(guard, |_| false).unwrap();
        let long = Duration::MAX;
        let (guard, result) = changed
            .wait_timeout_while(guard, long, |n| *n < 100)
            .unwrap();
        assert!(!result.timed_out());
        let start = Instant::now();
        let short = Duration::from_millis(3);
        let (guard, result) = changed
            .wait_timeout_while(guard, short, |n| *n == 100)
            .unwrap();
        assert!(result.timed_out() && start.elapsed() >= short);
        let none = Duration::ZERO;
        let (guard, result) = changed.wait_timeout_while(guard, none, |_| true).unwrap();
        assert!(result.timed_out());
        let (_guard, result) = changed.wait_timeout_while(guard, none, |_| false).unwrap();
        assert!(!result.timed_out());
        counts.join().unwrap();
    });
}

#[test]
#[allow(deprecated)]
fn time_limits() {
    let _w = watchdog("condvar::time_limits");
    both(|| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let (mutex, changed) = &*shared;
        for limit in [Duration::ZERO, Duration::from_millis(3)] {
            let start = Instant::now();
            let (guard, result) = changed.wait_timeout(mutex.lock().unwrap(), limit).unwrap();
            assert!(result.timed_out() && start.elapsed() >= limit);
            assert!(mutex.try_lock().is_err(), "locked again");
            drop(guard);
        }
        let (guard, in_time) = changed.wait_timeout_ms(mutex.lock().unwrap(), 1).unwrap();
        assert!(!in_time);
        drop(guard);
        // In time, however far the limit.
        for ms in [Some(u32::MAX), None] {
            let guard = mutex.lock().unwrap();
            let theirs = shared.clone();
            let notifies = thread::spawn(move || {
                drop(theirs.0.lock().unwrap()); // it waits
                theirs.1.notify_one();
            });
            match ms {
                Some(ms) => assert!(changed.wait_timeout_ms(guard, ms).unwrap().1),
                None => {
                    let (_guard, result) = changed.wait_timeout(guard, Duration::MAX).unwrap();
                    assert!(!result.timed_out());
                }
            }
            notifies.join().unwrap();
        }
    });
}

#[test]
fn poison_is_seen_when_the_mutex_is_locked_again() {
    let _w = watchdog("condvar::poison_is_seen_when_the_mutex_is_locked_again");
    both(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let (mutex, changed) = &*shared;
        let guard = mutex.lock().unwrap();
        let theirs = shared.clone();
        let panics = thread::spawn(move || {
            let mut guard = theirs.0.lock().unwrap();
            *guard = 1;
            theirs.1.notify_all();
            resume_unwind(Box::new(()));
        });
        let guard = changed.wait(guard).unwrap_err().into_inner();
        assert_eq!(*guard, 1);
        assert!(panics.join().is_err());
        let none = Duration::ZERO;
        let (guard, result) = changed.wait_timeout(guard, none).unwrap_err().into_inner();
        assert!(result.timed_out());
        let error = changed.wait_timeout_while(guard, Duration::from_millis(1), |_| true);
        drop(error.unwrap_err());
        assert!(
            changed
                .wait_while(mutex.lock().unwrap_err().into_inner(), |_| false)
                .is_ok()
        );
    });
}

#[test]
fn two_mutexes_one_condvar() {
    let _w = watchdog("condvar::two_mutexes_one_condvar");
    both(|| {
        let shared = Arc::new((Mutex::new(false), Mutex::new(false), Condvar::new()));
        let wait = |second: bool| {
            let theirs = shared.clone();
            thread::spawn(move || {
                let mutex = if second { &theirs.1 } else { &theirs.0 };
                let mut guard = mutex.lock().unwrap();
                *guard = true;
                drop(theirs.2.wait(guard).unwrap());
            })
        };
        let waiters = [wait(false), wait(true)];
        wait_until(|| *shared.0.lock().unwrap() && *shared.1.lock().unwrap());
        shared.2.notify_all();
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// The first in the queue gives up at about the moment of a notification. Either it was notified,
/// or the next one was.
#[test]
fn a_waiter_that_gives_up_swallows_no_notification() {
    let _w = watchdog("condvar::a_waiter_that_gives_up_swallows_no_notification");
    fn rounds(rng: &mut Rng, spawn: &dyn Fn(Box<dyn FnOnce() + Send>)) {
        let (mut first, mut second) = (0, 0);
        for _ in 0..200 {
            // How many have come; who was notified; how many have gone.
            let shared = Arc::new((Mutex::new((0, [false; 2], 0)), Condvar::new()));
            for i in 0..2 {
                let theirs = shared.clone();
                let limit = Duration::from_micros(200 + rng.below(50) as u64);
                spawn(Box::new(move || {
                    let mut guard = theirs.0.lock().unwrap();
                    guard.0 += 1;
                    let (mut guard, timed_out) = match i {
                        0 => theirs.1.wait_timeout(guard, limit).unwrap(),
                        _ => {
                            let long = Duration::from_secs(3600);
                            theirs.1.wait_timeout(guard, long).unwrap()
                        }
                    };
                    guard.1[i] = !timed_out.timed_out();
                    guard.2 += 1;
                }));
                wait_until_now(|| shared.0.lock().unwrap().0 == i + 1);
            }
            let end = Instant::now() + Duration::from_micros(rng.below(200) as u64);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            shared.1.notify_one();
            wait_until_now(|| shared.0.lock().unwrap().1.contains(&true));
            if shared.0.lock().unwrap().1[0] {
                first += 1;
                shared.1.notify_one();
            } else {
                second += 1;
            }
            wait_until_now(|| shared.0.lock().unwrap().2 == 2);
        }
        println!("notified: the one that gives up {first} times, the other {second} times");
    }
    fn wait_until_now(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }
    let mut rng = Rng::new("condvar::a_waiter_that_gives_up_swallows_no_notification");
    rounds(&mut rng, &|wait| drop(thread::spawn(wait)));
    rounds(&mut rng, &|wait| drop(std::thread::spawn(wait)));
}

/// A bounded queue: kernel and green threads put and take, some with time limits, under preemption.
#[test]
fn kernel_and_green_threads_share_a_bounded_queue() {
    const EACH: usize = 200;
    const PAIRS: usize = 101;
    struct Queue {
        items: Mutex<VecDeque<usize>>,
        not_empty: Condvar,
        not_full: Condvar,
    }
    let _w = watchdog("condvar::kernel_and_green_threads_share_a_bounded_queue");
    let mut rng = Rng::new("condvar::kernel_and_green_threads_share_a_bounded_queue");
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .unwrap();
    let queue = Arc::new(Queue {
        items: Mutex::new(VecDeque::with_capacity(4)),
        not_empty: Condvar::new(),
        not_full: Condvar::new(),
    });
    let sum = Arc::new(AtomicUsize::new(0));
    let put = |mut rng: Rng| {
        let queue = queue.clone();
        move || {
            for item in 1..=EACH {
                let mut items = queue.items.lock().unwrap();
                while items.len() == 4 {
                    let limit = Duration::from_micros(rng.below(500) as u64);
                    items = match rng.below(2) {
                        0 => queue.not_full.wait(items).unwrap(),
                        _ => queue.not_full.wait_timeout(items, limit).unwrap().0,
                    };
                }
                items.push_back(item);
                drop(items);
                queue.not_empty.notify_one();
            }
        }
    };
    let take = |mut rng: Rng| {
        let (queue, sum) = (queue.clone(), sum.clone());
        move || {
            for _ in 0..EACH {
                let mut items = queue.items.lock().unwrap();
                let item = loop {
                    if let Some(item) = items.pop_front() {
                        break item;
                    }
                    let limit = Duration::from_micros(rng.below(500) as u64);
                    items = match rng.below(2) {
                        0 => queue.not_empty.wait(items).unwrap(),
                        _ => queue.not_empty.wait_timeout(items, limit).unwrap().0,
                    };
                };
                queue.not_full.notify_one();
                drop(items);
                sum.fetch_add(item, Relaxed);
            }
        }
    };
    let kernel = [
        std::thread::spawn(put(rng.fork())),
        std::thread::spawn(take(rng.fork())),
    ];
    let green: Vec<_> = (1..PAIRS)
        .flat_map(|_| {
            [
                runtime.spawn(put(rng.fork())),
                runtime.spawn(take(rng.fork())),
            ]
        })
        .collect();
    kernel.into_iter().for_each(|h| h.join().unwrap());
    green.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(sum.load(Relaxed), PAIRS * EACH * (EACH + 1) / 2);
}
