//! `std::sync` between threads.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*, fence};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, TryLockError};
use std::thread::scope;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(15);

pub fn a_mutex_excludes() {
    let count = Mutex::new(0);
    scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for i in 0..1_000 {
                    let mut guard = count.lock().unwrap();
                    let before = *guard;
                    if i % 50 == 0 {
                        thread::yield_now();
                    }
                    *guard = before + 1;
                }
            });
        }
    });
    assert_eq!(count.into_inner().unwrap(), 8_000);
}

pub fn try_lock_fails_while_it_is_held() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock().unwrap();
    scope(|threads| {
        let would_block = || matches!(mutex.try_lock(), Err(TryLockError::WouldBlock));
        assert!(threads.spawn(would_block).join().unwrap());
        drop(guard);
        assert!(!threads.spawn(would_block).join().unwrap());
    });
}

/// A lock that one thread takes and another waits for.
pub fn a_mutex_is_taken_in_turns() {
    let (mutex, waits) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    scope(|threads| {
        let mut guard = mutex.lock().unwrap();
        let other = threads.spawn(|| {
            waits.store(true, Release);
            mutex.lock().unwrap().push(2);
        });
        wait_until(|| waits.load(Acquire));
        (0..100).for_each(|_| thread::yield_now());
        assert!(!other.is_finished());
        guard.push(1);
    });
    assert_eq!(mutex.into_inner().unwrap(), [1, 2]);
}

pub fn a_condvar_wakes_one() {
    const TURNS: usize = 600;
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    scope(|threads| {
        for mine in 0..2 {
            let (turn, changed) = (&turn, &changed);
            threads.spawn(move || {
                for i in (mine..TURNS).step_by(2) {
                    let mut guard = turn.lock().unwrap();
                    while *guard != i {
                        guard = changed.wait(guard).unwrap();
                    }
                    *guard += 1;
                    changed.notify_one();
                }
            });
        }
    });
    assert_eq!(turn.into_inner().unwrap(), TURNS);
}

pub fn a_condvar_wakes_all() {
    let (state, changed) = (Mutex::new((0, false)), Condvar::new());
    scope(|threads| {
        for _ in 0..50 {
            threads.spawn(|| {
                let mut guard = state.lock().unwrap();
                guard.0 += 1;
                while !guard.1 {
                    guard = changed.wait(guard).unwrap();
                }
                guard.0 -= 1;
            });
        }
        // All have given the lock back: they wait.
        wait_until(|| state.lock().unwrap().0 == 50);
        state.lock().unwrap().1 = true;
        changed.notify_all();
    });
    assert_eq!(state.into_inner().unwrap(), (0, true));
}

pub fn wait_while_waits() {
    let (queue, changed) = (Mutex::new(Vec::new()), Condvar::new());
    scope(|threads| {
        let taker = threads.spawn(|| {
            let taken = (0..200).map(|_| {
                let guard = queue.lock().unwrap();
                let is_empty = |queue: &mut Vec<u64>| queue.is_empty();
                let mut guard = changed.wait_while(guard, is_empty).unwrap();
                guard.pop().unwrap()
            });
            taken.sum::<u64>()
        });
        for i in 0..200 {
            queue.lock().unwrap().push(i);
            changed.notify_one();
        }
        assert_eq!(taker.join().unwrap(), 19_900);
    });
}

pub fn wait_timeout_is_long_enough() {
    let body = || {
        let (mutex, never) = (Mutex::new(()), Condvar::new());
        let (begun, guard) = (Instant::now(), mutex.lock().unwrap());
        let (guard, result) = never.wait_timeout_while(guard, SHORT, |()| true).unwrap();
        assert!(result.timed_out() && begun.elapsed() >= SHORT);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        drop(guard);
        // Nothing to wait for: the time is not up.
        let guard = mutex.lock().unwrap();
        let waited = never.wait_timeout_while(guard, SHORT, |()| false);
        assert!(!waited.unwrap().1.timed_out());
    };
    thread::spawn(body).join().unwrap();
}

/// Threads that wait at the same condition do not run between each other's steps.
pub fn a_wait_holds_the_lock_again() {
    let (state, changed) = (Mutex::new((0, 0)), Condvar::new());
    scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| {
                let mut guard = state.lock().unwrap();
                guard.0 += 1;
                changed.notify_all();
                let mut guard = changed.wait_while(guard, |state| state.0 < 20).unwrap();
                let before = guard.1;
                thread::yield_now();
                guard.1 = before + 1;
            });
        }
    });
    assert_eq!(state.into_inner().unwrap(), (20, 20));
}

pub fn readers_read_at_once() {
    let (lock, meet) = (RwLock::new(5), Barrier::new(20));
    scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| {
                let guard = lock.read().unwrap();
                meet.wait();
                assert_eq!(*guard, 5);
            });
        }
    });
}

pub fn a_writer_excludes() {
    let lock = RwLock::new([0; 2]);
    scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for i in 0..300 {
                    let mut guard = lock.write().unwrap();
                    guard[0] += 1;
                    if i % 30 == 0 {
                        thread::yield_now();
                    }
                    guard[1] += 1;
                }
            });
            threads.spawn(|| {
                for _ in 0..300 {
                    let guard = lock.read().unwrap();
                    assert_eq!(guard[0], guard[1]);
                }
            });
        }
    });
    assert_eq!(lock.into_inner().unwrap(), [1_200; 2]);
}

pub fn try_read_and_try_write_fail() {
    let lock = RwLock::new(());
    let tries = || {
        let reads = lock.try_read().is_ok();
        (reads, lock.try_write().is_ok())
    };
    scope(|threads| {
        let elsewhere = || threads.spawn(tries).join().unwrap();
        let guard = lock.read().unwrap();
        assert_eq!(elsewhere(), (true, false));
        drop(guard);
        let guard = lock.write().unwrap();
        assert_eq!(elsewhere(), (false, false));
        drop(guard);
        assert_eq!(elsewhere(), (true, true));
    });
}

pub fn a_barrier_has_one_leader() {
    const COUNT: usize = 15;
    let (meet, leaders) = (Barrier::new(COUNT), AtomicUsize::new(0));
    scope(|threads| {
        for _ in 0..COUNT {
            threads.spawn(|| {
                for turn in 1..=40 {
                    if meet.wait().is_leader() {
                        leaders.fetch_add(1, Relaxed);
                    }
                    meet.wait();
                    // Of this turn and all before; the leaders of the pauses do not count.
                    assert_eq!(leaders.load(Relaxed), turn);
                    meet.wait();
                }
            });
        }
    });
}

pub fn a_barrier_waits_for_all() {
    const COUNT: usize = 15;
    let (meet, came) = (Barrier::new(COUNT), AtomicUsize::new(0));
    scope(|threads| {
        for _ in 0..COUNT {
            threads.spawn(|| {
                for turn in 1..=40 {
                    came.fetch_add(1, Relaxed);
                    meet.wait();
                    assert_eq!(came.load(Relaxed), turn * COUNT);
                    meet.wait();
                }
            });
        }
    });
}

pub fn once_runs_once() {
    let (once, runs, meet) = (Once::new(), AtomicUsize::new(0), Barrier::new(50));
    scope(|threads| {
        for _ in 0..50 {
            threads.spawn(|| {
                meet.wait();
                once.call_once(|| {
                    thread::yield_now();
                    runs.fetch_add(1, Relaxed);
                });
                assert!(once.is_completed());
                assert_eq!(runs.load(Relaxed), 1);
            });
        }
    });
}

pub fn once_waits() {
    let (once, waits) = (Once::new(), AtomicUsize::new(0));
    scope(|threads| {
        for _ in 0..5 {
            threads.spawn(|| {
                waits.fetch_add(1, Relaxed);
                once.wait();
                assert!(once.is_completed());
            });
        }
        wait_until(|| waits.load(Relaxed) == 5);
        assert!(!once.is_completed());
        once.call_once(|| ());
    });
}

pub fn a_once_lock_has_one_value() {
    let (lock, meet) = (OnceLock::new(), Barrier::new(30));
    let places: Vec<usize> = scope(|threads| {
        let handles: Vec<_> = (0..30)
            .map(|i| {
                let (lock, meet) = (&lock, &meet);
                threads.spawn(move || {
                    meet.wait();
                    let value = lock.get_or_init(|| Box::new(i));
                    assert!(lock.set(Box::new(100)).is_err());
                    &raw const **value as usize
                })
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join().unwrap());
        joined.collect()
    });
    assert!(places.iter().all(|place| *place == places[0]));
    assert!(**lock.get().unwrap() < 30);
}

pub fn a_once_lock_is_waited_for() {
    let lock = OnceLock::new();
    scope(|threads| {
        let waiters: Vec<_> = (0..5).map(|_| threads.spawn(|| *lock.wait())).collect();
        lock.set(9).unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), 9);
        }
    });
}

pub fn a_lazy_lock_runs_once() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let before = RUNS.load(Relaxed);
    let lazy = LazyLock::new(|| {
        thread::yield_now();
        RUNS.fetch_add(1, Relaxed);
        "value"
    });
    scope(|threads| {
        for _ in 0..30 {
            threads.spawn(|| assert_eq!(*lazy, "value"));
        }
    });
    assert_eq!(RUNS.load(Relaxed), before + 1);
}

pub fn the_last_owner_drops() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    for _ in 0..20 {
        let drops = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(Counts(drops.clone()));
        let handles: Vec<_> = (0..10)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || drop(shared))
            })
            .collect();
        drop(shared);
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!(drops.load(Relaxed), 1);
    }
}

pub fn a_weak_one_sees_the_end() {
    let shared = Arc::new(5);
    let weak = Arc::downgrade(&shared);
    let (go, gone) = channel::<()>();
    let owner = thread::spawn(move || {
        let _ = gone.recv();
        drop(shared);
    });
    assert_eq!(weak.upgrade().as_deref(), Some(&5));
    drop(go);
    owner.join().unwrap();
    assert!(weak.upgrade().is_none());
}

pub fn release_and_acquire() {
    let (data, ready) = (AtomicUsize::new(0), AtomicUsize::new(0));
    scope(|threads| {
        threads.spawn(|| {
            for i in 1..=2_000 {
                data.store(i, Relaxed);
                ready.store(i, Release);
            }
        });
        threads.spawn(|| {
            let mut last = 0;
            while last < 2_000 {
                last = ready.load(Acquire);
                assert!(data.load(Relaxed) >= last);
            }
        });
    });
}

/// Of two threads that write and then read what the other writes, one sees it.
pub fn stores_are_in_one_order() {
    for round in 0..200 {
        let words = [const { AtomicBool::new(false) }; 2];
        let meet = Barrier::new(2);
        let saw = scope(|threads| {
            let other = threads.spawn(|| {
                meet.wait();
                words[0].store(true, Relaxed);
                fence(SeqCst);
                words[1].load(Relaxed)
            });
            meet.wait();
            words[1].store(true, SeqCst);
            fence(SeqCst);
            let saw = words[0].load(SeqCst);
            saw || other.join().unwrap()
        });
        assert!(saw, "{round}");
    }
}

pub fn counters_count() {
    let count = AtomicUsize::new(0);
    scope(|threads| {
        for _ in 0..100 {
            threads.spawn(|| (0..500).for_each(|_| _ = count.fetch_add(1, Relaxed)));
        }
    });
    assert_eq!(count.into_inner(), 50_000);
}
