//! What a panic under a lock, in a condition, or in what runs once, does to whoever comes next: it
//! is told, if the dead could have left something half done.

#[path = "../common/dying.rs"]
mod dying;

use crate::common::*;
use dying::*;
use greenthread as thread;
use greenthread::channel::bounded;
use greenthread::sync::{Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn locks_report_the_death_of_their_holder() {
    let _w = watchdog("poison::locks_report_the_death_of_their_holder");
    both(|| {
        let (mutex, lock) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
        // A waiter is told as well as whoever comes later; and so is one with a time-out.
        let held = (mutex.lock().unwrap(), lock.write().unwrap());
        let waiters: Vec<_> = (0..8)
            .map(|index| {
                let (mutex, lock) = (mutex.clone(), lock.clone());
                thread::spawn(move || match index % 4 {
                    0 => mutex.lock().is_err(),
                    1 => matches!(
                        mutex.try_lock_for(Duration::MAX),
                        Err(TryLockError::Poisoned(_))
                    ),
                    2 => lock.read().is_err(),
                    _ => matches!(
                        lock.try_write_for(Duration::MAX),
                        Err(TryLockError::Poisoned(_))
                    ),
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(5));
        killed(move || {
            let _held = held;
            die();
        });
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        assert!(mutex.is_poisoned() && lock.is_poisoned());
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        // The error holds the lock.
        let error = mutex.lock().unwrap_err();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        *error.into_inner() += 1;
        *lock.write().unwrap_err().into_inner() += 1;
        mutex.clear_poison();
        lock.clear_poison();
        assert_eq!((*mutex.lock().unwrap(), *lock.read().unwrap()), (1, 1));
        // A reader has changed nothing.
        killed(|| {
            let _reader = lock.read().unwrap();
            die();
        });
        assert!(!lock.is_poisoned() && lock.try_write().is_ok());
        killed(|| {
            let _writer = lock.write().unwrap();
            die();
        });
        assert!(lock.is_poisoned());
        assert_eq!(
            Arc::into_inner(lock)
                .unwrap()
                .into_inner()
                .unwrap_err()
                .into_inner(),
            1
        );
    });
}

#[test]
fn a_condvar_reports_what_happened_to_its_mutex() {
    let _w = watchdog("poison::a_condvar_reports_what_happened_to_its_mutex");
    both(|| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let waiters: Vec<_> = (0..8)
            .map(|index| {
                let pair = pair.clone();
                thread::spawn(move || {
                    let (mutex, condvar) = &*pair;
                    let mut count = mutex.lock().unwrap();
                    *count += 1;
                    let max = Duration::MAX;
                    let value = match index % 4 {
                        0 => *condvar.wait(count).unwrap_err().into_inner(),
                        1 => *condvar.wait_timeout(count, max).unwrap_err().into_inner().0,
                        2 => {
                            let wait = condvar.wait_while(count, |count| *count < 100);
                            *wait.unwrap_err().into_inner()
                        }
                        _ => {
                            let wait = condvar.wait_timeout_while(count, max, |count| *count < 100);
                            *wait.unwrap_err().into_inner().0
                        }
                    };
                    assert!(value >= 100);
                })
            })
            .collect();
        wait_until(|| *pair.0.lock().unwrap() == 8);
        killed(|| {
            let mut count = pair.0.lock().unwrap();
            *count += 100;
            pair.1.notify_all();
            die();
        });
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap());
        // The condition itself may kill; that poisons too.
        let (mutex, condvar) = (Mutex::new(0), Condvar::new());
        killed(|| drop(condvar.wait_while(mutex.lock().unwrap(), |_| die())));
        assert!(mutex.is_poisoned());
        mutex.clear_poison();
        let wait = condvar.wait_timeout(mutex.lock().unwrap(), Duration::ZERO);
        assert!(wait.unwrap().1.timed_out());
    });
}

#[test]
fn what_runs_once_may_die() {
    let _w = watchdog("poison::what_runs_once_may_die");
    both(|| {
        let once = Arc::new(Once::new());
        // Those who wait meanwhile die of it too.
        let dying = once.clone();
        let (begun, begins) = bounded(0);
        let first = thread::spawn(move || {
            killed(|| {
                dying.call_once(|| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(5));
                    die();
                })
            })
        });
        begins.recv().unwrap();
        let others: Vec<_> = (0..4)
            .map(|index| {
                let once = once.clone();
                thread::spawn(move || match index {
                    0 => drop(catch_unwind(|| once.wait()).unwrap_err()),
                    _ => drop(catch_unwind(|| once.call_once(|| panic!("again"))).unwrap_err()),
                })
            })
            .collect();
        first.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(!once.is_completed());
        // Until somebody makes good.
        let waits = once.clone();
        let waiter = thread::spawn(move || waits.wait_force());
        killed(|| {
            once.call_once_force(|state| {
                if state.is_poisoned() {
                    die()
                }
            })
        });
        once.call_once_force(|state| assert!(state.is_poisoned()));
        waiter.join().unwrap();
        once.call_once(|| panic!("it is done"));
        once.call_once_force(|_| panic!("it is done"));
        assert!(once.is_completed());

        let cell = OnceLock::new();
        killed(|| cell.get_or_init(|| -> u32 { die() }));
        assert_eq!((cell.get(), *cell.get_or_init(|| 3)), (None, 3));

        let lazy: LazyLock<u32> = LazyLock::new(|| die());
        killed(|| *lazy);
        for _ in 0..2 {
            assert!(
                catch_unwind(AssertUnwindSafe(|| *lazy)).is_err(),
                "poisoned"
            );
        }
    });
}
