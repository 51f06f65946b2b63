//! `sync::Mutex`: exclusion, poisoning, time limits, and that nobody starves.
//!
//! The idea: std's documentation is the measure; asked from kernel threads and green ones, alone
//! and mixed, with a preemption every 100 µs where many threads are at it.

use crate::common::*;
use greenthread::runtime::Runtime;
use greenthread::sync::{Mutex, TryLockError};
use greenthread::{self as thread};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

fn poison(mutex: &Mutex<i32>) {
    catch_unwind(|| {
        let _guard = mutex.lock().unwrap();
        resume_unwind(Box::new(()));
    })
    .unwrap_err();
}

#[test]
fn a_panic_poisons() {
    let _w = watchdog("mutex::a_panic_poisons");
    both(|| {
        let mut mutex = Mutex::new(1);
        poison(&mutex);
        assert!(mutex.is_poisoned());
        assert_eq!(**mutex.lock().unwrap_err().get_ref(), 1);
        match mutex.try_lock() {
            Err(TryLockError::Poisoned(error)) => *error.into_inner() = 2,
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            mutex.try_lock_for(Duration::ZERO),
            Err(TryLockError::Poisoned(_))
        ));
        assert_eq!(**mutex.get_mut().unwrap_err().get_ref(), 2);
        // Held, it says so rather than that it is poisoned.
        let guard = mutex.lock().unwrap_err().into_inner();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        drop(guard);
        mutex.clear_poison();
        assert!(!mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap(), 2);
        poison(&mutex);
        assert_eq!(mutex.into_inner().unwrap_err().into_inner(), 2);
    });
}

#[test]
fn a_panic_that_began_before_does_not_poison() {
    let _w = watchdog("mutex::a_panic_that_began_before_does_not_poison");
    both(|| {
        struct Locks<'a>(&'a Mutex<i32>);
        impl Drop for Locks<'_> {
            fn drop(&mut self) {
                *self.0.lock().unwrap() += 1;
            }
        }
        let mutex = Mutex::new(0);
        catch_unwind(|| {
            let _locks = Locks(&mutex);
            resume_unwind(Box::new(()));
        })
        .unwrap_err();
        assert_eq!(*mutex.lock().unwrap(), 1);
        // Neither does one that is over when the guard goes.
        let guard = mutex.lock().unwrap();
        catch_unwind(|| resume_unwind(Box::new(()))).unwrap_err();
        drop(guard);
        assert!(!mutex.is_poisoned());
    });
}

#[test]
fn a_green_thread_that_panics_poisons() {
    let _w = watchdog("mutex::a_green_thread_that_panics_poisons");
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    let panics = thread::spawn(move || {
        let _guard = theirs.lock().unwrap();
        resume_unwind(Box::new(()));
    });
    assert!(panics.join().is_err());
    assert!(mutex.lock().is_err());
}

#[test]
fn time_limits() {
    let _w = watchdog("mutex::time_limits");
    both(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock().unwrap();
        for limit in [Duration::ZERO, Duration::from_millis(3)] {
            let start = Instant::now();
            assert!(matches!(
                mutex.try_lock_for(limit),
                Err(TryLockError::WouldBlock)
            ));
            assert!(start.elapsed() >= limit);
            let deadline = Instant::now() + limit;
            assert!(mutex.try_lock_until(deadline).is_err());
            assert!(Instant::now() >= deadline);
        }
        // One that is in time gets it, however far the limit.
        let theirs = mutex.clone();
        let far = Instant::now() + Duration::from_secs(1 << 33);
        let waits = thread::spawn(move || {
            *theirs.try_lock_for(Duration::MAX).unwrap() += 1;
            *theirs.try_lock_until(far).unwrap() += 1;
        });
        thread::sleep(Duration::from_millis(1));
        drop(guard);
        waits.join().unwrap();
        // Free, it is locked even if the time is up.
        assert_eq!(*mutex.try_lock_for(Duration::ZERO).unwrap(), 2);
        let past = Instant::now();
        assert_eq!(*mutex.try_lock_until(past).unwrap(), 2);
    });
}

#[test]
fn those_that_give_up_leave_nothing_behind() {
    let _w = watchdog("mutex::those_that_give_up_leave_nothing_behind");
    both(|| {
        // Their time ends in the same moments in which the mutex is unlocked.
        let mutex = Arc::new(Mutex::new(0));
        let mut rng = Rng::new("mutex::those_that_give_up_leave_nothing_behind");
        for _ in 0..30 {
            let guard = mutex.lock().unwrap();
            let waiters: Vec<_> = (0..20)
                .map(|_| (mutex.clone(), Duration::from_micros(rng.below(2000) as u64)))
                .map(|(mutex, limit)| {
                    thread::spawn(move || {
                        mutex.try_lock_for(limit).is_ok_and(|mut g| {
                            *g += 1;
                            true
                        })
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(rng.below(2000) as u64));
            drop(guard);
            let got = waiters
                .into_iter()
                .filter_map(|w| w.join().unwrap().then_some(()))
                .count();
            let mut guard = mutex.try_lock().expect("nobody holds it");
            assert_eq!(std::mem::take(&mut *guard), got);
        }
    });
}

#[test]
fn kernel_and_green_threads_exclude_each_other() {
    const TURNS: usize = 300;
    let _w = watchdog("mutex::kernel_and_green_threads_exclude_each_other");
    let mut rng = Rng::new("mutex::kernel_and_green_threads_exclude_each_other");
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .unwrap();
    // Two numbers that are equal whenever nobody writes, and how often somebody wrote.
    let mutex = Arc::new(Mutex::new((0usize, 0usize)));
    let gave_up = Arc::new(AtomicUsize::new(0));
    let work = |mut rng: Rng| {
        let (mutex, gave_up) = (mutex.clone(), gave_up.clone());
        move || {
            for _ in 0..TURNS {
                let guard = match rng.below(4) {
                    0 => mutex
                        .try_lock_for(Duration::from_micros(rng.below(300) as u64))
                        .ok(),
                    1 => mutex.try_lock().ok(),
                    _ => mutex.lock().ok(),
                };
                let Some(mut guard) = guard else {
                    gave_up.fetch_add(1, Relaxed);
                    continue;
                };
                assert_eq!(guard.0, guard.1);
                guard.0 += 1;
                (0..rng.below(200)).for_each(|_| std::hint::spin_loop());
                if rng.below(64) == 0 {
                    thread::yield_now();
                }
                guard.1 += 1;
            }
        }
    };
    let green: Vec<_> = (0..200).map(|_| runtime.spawn(work(rng.fork()))).collect();
    let kernel: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(work(rng.fork())))
        .collect();
    green.into_iter().for_each(|h| h.join().unwrap());
    kernel.into_iter().for_each(|h| h.join().unwrap());
    let (one, other) = *mutex.lock().unwrap();
    assert_eq!(one, other);
    assert_eq!(one + gave_up.load(Relaxed), 202 * TURNS);
}

/// A thread locks the mutex again the moment after it has unlocked it. Another gets it all the
/// same, after some dozens of the first one's turns of 50 µs (a millisecond is 20).
#[test]
fn nobody_starves() {
    let _w = watchdog("mutex::nobody_starves");
    fn hog(mutex: &Mutex<()>, turns: &AtomicUsize, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            let _guard = mutex.lock().unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            }
            turns.fetch_add(1, Relaxed);
        }
    }
    both(|| {
        let shared = Arc::new((Mutex::new(()), AtomicUsize::new(0), AtomicBool::new(false)));
        let theirs = shared.clone();
        let green = thread::spawn(move || hog(&theirs.0, &theirs.1, &theirs.2));
        let theirs = shared.clone();
        let kernel = std::thread::spawn(move || hog(&theirs.0, &theirs.1, &theirs.2));
        let (mutex, turns, stop) = &*shared;
        wait_until(|| turns.load(Relaxed) > 50);
        let mut waited: Vec<usize> = (0..20)
            .map(|_| {
                let before = turns.load(Relaxed);
                wait_until(|| turns.load(Relaxed) > before); // they are at it again
                let before = turns.load(Relaxed);
                drop(mutex.lock().unwrap());
                turns.load(Relaxed) - before
            })
            .collect();
        stop.store(true, Relaxed);
        green.join().unwrap();
        kernel.join().unwrap();
        waited.sort();
        println!("turns of others before one's own: {waited:?}");
        assert!(waited[10] < 400, "{waited:?}");
    });
}

#[test]
fn a_guard_can_be_leaked_and_a_mutex_dropped() {
    let mutex = Mutex::new(String::from("data"));
    std::mem::forget(mutex.lock());
    assert!(mutex.try_lock().is_err());
    assert_eq!(mutex.into_inner().unwrap(), "data");
    let unwound = AssertUnwindSafe(&Mutex::new(0));
    assert!(catch_unwind(|| *unwound.lock().unwrap()).is_ok());
}
