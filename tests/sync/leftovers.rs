//! What a waiter leaves behind, and what may come between: small cases, each made to happen.
//!
//! The idea: whoever gives up leaves the queue as if it had never stood there, and those behind it
//! get what they can have without it; nobody but the primitive itself wakes its waiters; and
//! everything works at the edges of a thread's life, of time, and of a runtime.
//!
//! "It waits now" cannot be seen from outside. [`let_wait`] gives it time to; where it has not come
//! that far, the test proves less but does not fail.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use greenthread::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);

fn let_wait() {
    thread::sleep(SHORT / 4);
}

/// Starts `n` threads, green and kernel ones by turns, and joins them.
fn crowd(n: usize, body: impl Fn(usize) + Send + Sync + 'static) -> impl FnOnce() {
    let body = Arc::new(body);
    let (mut green, mut kernel) = (Vec::new(), Vec::new());
    for index in 0..n {
        let body = body.clone();
        if index % 2 == 0 {
            green.push(thread::spawn(move || body(index)));
        } else {
            kernel.push(std::thread::spawn(move || body(index)));
        }
    }
    move || {
        green.into_iter().for_each(|handle| handle.join().unwrap());
        kernel.into_iter().for_each(|handle| handle.join().unwrap());
    }
}

#[test]
fn one_that_asks_for_many_permits_and_gives_up_lets_others_have_them() {
    let _w =
        watchdog("leftovers::one_that_asks_for_many_permits_and_gives_up_lets_others_have_them");
    both(|| {
        let semaphore = Arc::new(Semaphore::new(1));
        let greedy = semaphore.clone();
        let greedy =
            thread::spawn(move || assert!(greedy.acquire_many_timeout(2, SHORT).is_none()));
        let_wait();
        let humble = semaphore.clone();
        let join = crowd(4, move |_| drop(humble.acquire()));
        join(); // nobody ever gives a permit back but they
        greedy.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
        assert!(semaphore.try_acquire().is_some());
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    let _w = watchdog("leftovers::a_writer_that_gives_up_lets_readers_in");
    both(|| {
        let lock = Arc::new(RwLock::new(0));
        let reader = lock.read().unwrap();
        let writers = lock.clone();
        let writers = crowd(3, move |_| assert!(writers.try_write_for(SHORT).is_err()));
        let_wait();
        let readers = lock.clone();
        crowd(4, move |_| drop(readers.read().unwrap()))();
        writers();
        assert!(lock.try_read().is_ok() && lock.try_write().is_err());
        drop(reader);
        assert!(lock.try_write().is_ok());
    });
}

#[test]
fn readers_and_writers_that_give_up_leave_a_lock_that_is_free() {
    let _w = watchdog("leftovers::readers_and_writers_that_give_up_leave_a_lock_that_is_free");
    both(|| {
        let (lock, mutex) = (Arc::new(RwLock::new(0)), Arc::new(Mutex::new(0)));
        for _ in 0..5 {
            let held = (lock.write().unwrap(), mutex.lock().unwrap());
            let (lock, mutex) = (lock.clone(), mutex.clone());
            let quitters = crowd(9, move |index| match index % 3 {
                0 => assert!(lock.try_read_for(SHORT / 4).is_err()),
                1 => assert!(lock.try_write_for(SHORT / 4).is_err()),
                _ => assert!(mutex.try_lock_for(SHORT / 4).is_err()),
            });
            quitters();
            drop(held);
        }
        assert!(lock.try_write().is_ok() && lock.try_read().is_ok());
        assert!(mutex.try_lock().is_ok());
        *lock.write().unwrap() += 1;
        *mutex.lock().unwrap() += 1;
    });
}

#[test]
fn what_came_before_the_wait_is_not_waited_for() {
    let _w = watchdog("leftovers::what_came_before_the_wait_is_not_waited_for");
    both(|| {
        let semaphore = Semaphore::new(0);
        semaphore.add_permits(1);
        drop(semaphore.acquire());
        let once = Once::new();
        once.call_once(|| ());
        once.wait();
        let cell = OnceLock::new();
        cell.set(1).unwrap();
        assert_eq!(*cell.wait(), 1);
        let group = WaitGroup::new();
        drop(group.clone());
        group.wait();
        thread::current().unpark();
        thread::park();
    });
}

/// A thread's park token is its own: waiting for something else neither uses it up nor is ended by
/// it.
#[test]
fn the_token_of_park_outlives_waits() {
    let _w = watchdog("leftovers::the_token_of_park_outlives_waits");
    both(|| {
        let me = thread::current();
        let mutex = Arc::new(Mutex::new(false));
        let told = Arc::new(Condvar::new());
        let held = mutex.lock().unwrap();
        let (their_mutex, their_told) = (mutex.clone(), told.clone());
        let other = thread::spawn(move || {
            *their_mutex.lock().unwrap() = true;
            their_told.notify_all();
        });
        me.unpark();
        drop(told.wait_while(held, |done| !*done).unwrap());
        other.join().unwrap();
        let start = Instant::now();
        while told
            .wait_timeout(mutex.lock().unwrap(), SHORT)
            .map(|(_, result)| !result.timed_out())
            .unwrap()
        {}
        assert!(start.elapsed() >= SHORT);
        thread::park(); // the token is still there
    });
}

#[test]
fn time_that_has_passed_and_time_without_end() {
    let _w = watchdog("leftovers::time_that_has_passed_and_time_without_end");
    both(|| {
        let past = Instant::now() - Duration::from_secs(1);
        let mutex = Arc::new(Mutex::new(0));
        let lock = Arc::new(RwLock::new(0));
        let semaphore = Arc::new(Semaphore::new(1));
        // What is there is had, in no time.
        assert!(mutex.try_lock_until(past).is_ok() && mutex.try_lock_for(Duration::ZERO).is_ok());
        assert!(lock.try_read_until(past).is_ok() && lock.try_write_until(past).is_ok());
        assert!(semaphore.acquire_deadline(past).is_some());
        assert!(semaphore.acquire_timeout(Duration::ZERO).is_some());
        assert!(WaitGroup::new().wait_timeout(Duration::ZERO));
        let group = WaitGroup::new();
        let held = (
            mutex.lock().unwrap(),
            lock.write().unwrap(),
            semaphore.acquire(),
            group.clone(),
        );
        assert!(mutex.try_lock_until(past).is_err());
        assert!(lock.try_read_until(past).is_err() && lock.try_write_until(past).is_err());
        assert!(semaphore.acquire_deadline(past).is_none());
        assert!(!group.clone().wait_timeout(Duration::ZERO));
        let (condvar, forever) = (Arc::new(Condvar::new()), Duration::MAX);
        let far = Instant::now() + Duration::from_secs(1 << 33);
        let waiters = {
            let (mutex, lock, semaphore, condvar) = (
                mutex.clone(),
                lock.clone(),
                semaphore.clone(),
                condvar.clone(),
            );
            crowd(16, move |index| match index / 2 {
                0 => *mutex.try_lock_for(forever).unwrap() += 1,
                1 => *mutex.try_lock_until(far).unwrap() += 1,
                2 => *lock.try_write_for(forever).unwrap() += 1,
                3 => *lock.try_write_until(far).unwrap() += 1,
                4 => assert!(*lock.try_read_for(forever).unwrap() <= 4),
                5 => drop(semaphore.acquire_timeout(forever).unwrap()),
                6 => drop(semaphore.acquire_many_timeout(1, forever).unwrap()),
                _ => {
                    let guard = mutex.lock().unwrap();
                    let wait = condvar.wait_timeout_while(guard, forever, |entered| *entered < 100);
                    let (guard, result) = wait.unwrap();
                    assert!(!result.timed_out() && *guard >= 100);
                }
            })
        };
        let last = thread::spawn(move || assert!(group.wait_timeout(forever)));
        let_wait();
        drop(held);
        last.join().unwrap();
        wait_until(|| *mutex.lock().unwrap() == 4);
        *mutex.lock().unwrap() = 100;
        condvar.notify_all();
        waiters();
        assert_eq!(*lock.read().unwrap(), 4);
    });
}

/// A destructor of a thread-local may wait: on a kernel thread, and on a green one.
#[test]
fn waiting_in_destructors_of_thread_locals() {
    struct Last(
        Arc<(Mutex<usize>, Condvar, RwLock<usize>, Semaphore)>,
        usize,
    );
    impl Drop for Last {
        fn drop(&mut self) {
            let (mutex, condvar, lock, semaphore) = &*self.0;
            let permit = semaphore.acquire();
            *lock.write().unwrap() += 1;
            thread::yield_now();
            assert!(*lock.read().unwrap() >= 1);
            drop(permit);
            let mut dead = mutex.lock().unwrap();
            *dead += 1;
            condvar.notify_all();
            // All of them die together.
            drop(condvar.wait_while(dead, |dead| *dead < self.1).unwrap());
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let _w = watchdog("leftovers::waiting_in_destructors_of_thread_locals");
    both(|| {
        let shared = Arc::new((
            Mutex::new(0),
            Condvar::new(),
            RwLock::new(0),
            Semaphore::new(1),
        ));
        let theirs = shared.clone();
        crowd(20, move |_| LAST.set(Some(Last(theirs.clone(), 20))))();
        assert_eq!(*shared.0.lock().unwrap(), 20);
        assert_eq!(shared.2.try_read().map(|n| *n).unwrap(), 20);
        assert_eq!(Arc::strong_count(&shared), 1);
    });
}

/// What a destructor takes while its thread unwinds works, and is not poisoned by it: the panic
/// did not begin under the lock.
#[test]
fn waiting_while_unwinding() {
    struct Waits(Arc<(Mutex<usize>, RwLock<usize>, Barrier)>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(thread::panicking() && std::thread::panicking());
            let (mutex, lock, barrier) = &*self.0;
            barrier.wait();
            let mut entered = mutex.lock().unwrap();
            thread::yield_now();
            *entered += 1;
            drop(entered);
            *lock.write().unwrap() += 1;
            assert!(thread::panicking());
        }
    }
    let _w = watchdog("leftovers::waiting_while_unwinding");
    both(|| {
        let shared = Arc::new((Mutex::new(0), RwLock::new(0), Barrier::new(10)));
        let theirs = shared.clone();
        let join = crowd(10, move |_| {
            let waits = Waits(theirs.clone());
            let died = catch_unwind(AssertUnwindSafe(|| {
                let _waits = waits;
                resume_unwind(Box::new(7));
            }));
            assert_eq!(*died.unwrap_err().downcast::<i32>().unwrap(), 7);
            assert!(!thread::panicking());
        });
        join();
        assert!(!shared.0.is_poisoned() && !shared.1.is_poisoned());
        assert_eq!(*shared.0.lock().unwrap(), 10);
        assert_eq!(*shared.1.read().unwrap(), 10);
    });
}

/// A turn goes round between threads of two runtimes and a kernel thread; one runtime ends early.
#[test]
fn between_two_runtimes() {
    let _w = watchdog("leftovers::between_two_runtimes");
    let turn = Arc::new((Mutex::new(0usize), Condvar::new()));
    let runtimes = [(); 2].map(|()| Runtime::builder().processors(1).build().unwrap());
    let body = |me: usize, rounds: usize| {
        let turn = turn.clone();
        move || {
            let (mutex, condvar) = &*turn;
            for _ in 0..rounds {
                let mut now = mutex.lock().unwrap();
                while *now % 3 != me {
                    now = condvar.wait(now).unwrap();
                }
                *now += 1;
                condvar.notify_all();
            }
        }
    };
    let rounds = 2_000;
    let green = [
        runtimes[0].spawn(body(0, rounds)),
        runtimes[1].spawn(body(1, rounds)),
    ];
    body(2, rounds)();
    green.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(*turn.0.lock().unwrap(), 3 * rounds);

    // A waiter of one runtime is woken from the other, while the waker's runtime ends.
    let [first, second] = runtimes;
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waiting = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let (gate, waiting) = (gate.clone(), waiting.clone());
            first.spawn(move || {
                let open = gate.0.lock().unwrap();
                waiting.fetch_add(1, Relaxed);
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
            })
        })
        .collect();
    wait_until(|| waiting.load(Relaxed) == 50);
    let opens = gate.clone();
    second.spawn(move || {
        *opens.0.lock().unwrap() = true;
        opens.1.notify_all();
    });
    second.shutdown();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
    first.shutdown();
}

/// A lock that many take all the time is still had by one that asks for it once.
#[test]
fn nobody_is_kept_out_for_good() {
    let _w = watchdog("leftovers::nobody_is_kept_out_for_good");
    both(|| {
        let (mutex, lock) = (Arc::new(Mutex::new(0u64)), Arc::new(RwLock::new(0u64)));
        let stop = Arc::new(AtomicBool::new(false));
        let hogs = {
            let (mutex, lock, stop) = (mutex.clone(), lock.clone(), stop.clone());
            crowd(4, move |_| {
                while !stop.load(Relaxed) {
                    *mutex.lock().unwrap() += 1;
                    let held = lock.read().unwrap();
                    std::hint::black_box(&*held);
                }
            })
        };
        for _ in 0..10 {
            drop(mutex.lock().unwrap());
            *lock.write().unwrap() += 1;
        }
        stop.store(true, Relaxed);
        hogs();
        assert_eq!(*lock.read().unwrap(), 10);
    });
}
