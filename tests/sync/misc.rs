//! `sync::{Barrier, Semaphore, WaitGroup}`.
//!
//! The idea: as in `mutex.rs`.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use greenthread::sync::{Barrier, Semaphore, WaitGroup};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn preemptive() -> Runtime {
    Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .unwrap()
}

#[test]
fn a_barrier_lets_all_go_round_by_round() {
    const ROUNDS: usize = 200;
    let _w = watchdog("misc::a_barrier_lets_all_go_round_by_round");
    let runtime = preemptive();
    for size in [1, 2, 22] {
        let shared = Arc::new((
            Barrier::new(size),
            [const { AtomicUsize::new(0) }; ROUNDS],
            AtomicUsize::new(0),
        ));
        let go_round = || {
            let shared = shared.clone();
            move || {
                for arrived in &shared.1 {
                    arrived.fetch_add(1, Relaxed);
                    let leader = shared.0.wait().is_leader();
                    assert_eq!(arrived.load(Relaxed), size);
                    shared.2.fetch_add(usize::from(leader), Relaxed);
                }
            }
        };
        let kernel = size.min(3) - 1; // two of them, where that leaves one
        let green: Vec<_> = (kernel..size).map(|_| runtime.spawn(go_round())).collect();
        let kernel: Vec<_> = (0..kernel)
            .map(|_| std::thread::spawn(go_round()))
            .collect();
        green.into_iter().for_each(|h| h.join().unwrap());
        kernel.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(shared.2.load(Relaxed), ROUNDS, "one leader a round");
    }
    both(|| {
        let nobody = Barrier::new(0);
        assert!(nobody.wait().is_leader() && nobody.wait().is_leader());
    });
}

#[test]
fn permits_are_counted() {
    let _w = watchdog("misc::permits_are_counted");
    both(|| {
        let semaphore = Semaphore::new(3);
        let one = semaphore.acquire();
        assert_eq!((one.num_permits(), semaphore.available_permits()), (1, 2));
        assert!(semaphore.try_acquire_many(3).is_none());
        let two = semaphore.try_acquire_many(2).unwrap();
        assert!(semaphore.try_acquire().is_none());
        assert!(semaphore.try_acquire_many(0).is_some());
        assert_eq!(semaphore.acquire_many(0).num_permits(), 0);
        drop(two);
        assert_eq!(semaphore.available_permits(), 2);
        one.forget();
        assert_eq!(semaphore.available_permits(), 2);
        semaphore.add_permits(5);
        drop(semaphore.acquire_many(7));
        assert_eq!(format!("{semaphore:?}"), "Semaphore { permits: 7, .. }");
        let message = catch_unwind(|| semaphore.add_permits(Semaphore::MAX_PERMITS)).unwrap_err();
        let message = message.downcast::<String>().unwrap();
        assert!(
            message.contains(" 7 ") && message.contains(&Semaphore::MAX_PERMITS.to_string()),
            "{message}"
        );
        assert_eq!(semaphore.available_permits(), 7);
        assert!(catch_unwind(|| Semaphore::new(Semaphore::MAX_PERMITS + 1)).is_err());
        let most = Semaphore::new(Semaphore::MAX_PERMITS);
        drop(most.acquire_many(Semaphore::MAX_PERMITS));
        assert_eq!(most.available_permits(), Semaphore::MAX_PERMITS);
        let owned = Arc::new(Semaphore::new(2));
        let permit = owned.clone().acquire_owned();
        assert!(owned.clone().try_acquire_many_owned(2).is_none());
        assert!(Arc::ptr_eq(permit.semaphore(), &owned));
        thread::spawn(move || drop(permit)).join().unwrap();
        owned.clone().acquire_many_owned(2).forget();
        assert_eq!(
            (owned.available_permits(), Arc::strong_count(&owned)),
            (0, 1)
        );
    });
}

#[test]
fn a_semaphore_has_time_limits() {
    let _w = watchdog("misc::a_semaphore_has_time_limits");
    both(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let limit = Duration::from_millis(3);
        let start = Instant::now();
        assert!(semaphore.acquire_many_timeout(3, limit).is_none());
        assert!(start.elapsed() >= limit);
        let deadline = Instant::now() + limit;
        assert!(semaphore.acquire_many_deadline(3, deadline).is_none());
        assert!(Instant::now() >= deadline);
        assert!(semaphore.acquire_timeout(Duration::ZERO).is_some());
        assert!(semaphore.acquire_deadline(start).is_some());
        // A small request waits behind a big one; the big one gives up, and the small one is
        // served.
        let theirs = semaphore.clone();
        let big = thread::spawn(move || {
            let limit = Duration::from_millis(10);
            theirs.acquire_many_timeout(3, limit).is_none()
        });
        let mut small = Vec::new();
        while !big.is_finished() {
            small.push(semaphore.acquire_timeout(Duration::MAX).is_some());
        }
        assert!(big.join().unwrap() && small.into_iter().all(|served| served));
        assert_eq!(semaphore.try_acquire_many(2).unwrap().num_permits(), 2);
    });
}

#[test]
fn small_requests_do_not_starve_a_big_one() {
    let _w = watchdog("misc::small_requests_do_not_starve_a_big_one");
    both(|| {
        let shared = Arc::new((Semaphore::new(4), AtomicUsize::new(0)));
        let small: Vec<_> = (0..8)
            .map(|_| shared.clone())
            .map(|shared| {
                thread::spawn(move || {
                    while shared.1.load(Relaxed) == 0 {
                        let _permit = shared.0.acquire();
                        thread::yield_now(); // others take theirs: never are all four free
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            drop(shared.0.acquire_many(4));
            thread::yield_now();
        }
        shared.1.store(1, Relaxed);
        small.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(shared.0.available_permits(), 4);
    });
}

#[test]
fn kernel_and_green_threads_share_permits() {
    const PERMITS: usize = 5;
    let _w = watchdog("misc::kernel_and_green_threads_share_permits");
    let mut rng = Rng::new("misc::kernel_and_green_threads_share_permits");
    let runtime = preemptive();
    let shared = Arc::new((Semaphore::new(PERMITS), AtomicUsize::new(0)));
    let work = |mut rng: Rng| {
        let shared = shared.clone();
        move || {
            let (semaphore, taken) = &*shared;
            for _ in 0..100 {
                let n = 1 + rng.below(PERMITS);
                let limit = Duration::from_micros(rng.below(500) as u64);
                let permit = match rng.below(3) {
                    0 => semaphore.acquire_many_timeout(n, limit),
                    1 => semaphore.try_acquire_many(n),
                    _ => Some(semaphore.acquire_many(n)),
                };
                let Some(_permit) = permit else { continue };
                assert!(taken.fetch_add(n, SeqCst) + n <= PERMITS);
                (0..rng.below(200)).for_each(|_| std::hint::spin_loop());
                if n == 1 {
                    thread::yield_now();
                }
                taken.fetch_sub(n, SeqCst);
            }
        }
    };
    let green: Vec<_> = (0..200).map(|_| runtime.spawn(work(rng.fork()))).collect();
    let kernel: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(work(rng.fork())))
        .collect();
    green.into_iter().for_each(|h| h.join().unwrap());
    kernel.into_iter().for_each(|h| h.join().unwrap());
    assert!(shared.0.try_acquire_many(PERMITS).is_some());
}

#[test]
fn a_wait_group_waits_for_all() {
    let _w = watchdog("misc::a_wait_group_waits_for_all");
    both(|| {
        WaitGroup::new().wait();
        for _ in 0..50 {
            let (group, done) = (WaitGroup::new(), Arc::new(Mutex::new(0)));
            for i in 0..10 {
                let (group, done) = (group.clone(), done.clone());
                let work = move || {
                    if i % 2 == 0 {
                        thread::yield_now();
                    }
                    *done.lock().unwrap() += 1;
                    match i % 3 {
                        0 => group.wait(), // several may wait
                        1 => drop(group),
                        _ => drop((group.clone(), group)),
                    }
                };
                match i {
                    0 => drop(std::thread::spawn(work)),
                    _ => drop(thread::spawn(work)),
                }
            }
            group.wait();
            assert_eq!(*done.lock().unwrap(), 10);
        }
        let group = WaitGroup::default();
        assert_eq!(format!("{group:?}"), "WaitGroup { count: 1 }");
        let other = group.clone();
        assert_eq!(format!("{group:?}"), "WaitGroup { count: 2 }");
        let (start, limit) = (Instant::now(), Duration::from_millis(3));
        assert!(!group.wait_timeout(limit));
        assert!(start.elapsed() >= limit);
        assert!(other.wait_timeout(Duration::ZERO));
    });
}
