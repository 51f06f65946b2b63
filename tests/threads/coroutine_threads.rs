//! Coroutines are threads: what is their own, what they may do, and who may resume them.
//!
//! `coroutine.rs` has the turns and the ends, `stress/coroutine.rs` the storm.

use crate::common::*;
use greenthread as thread;
use greenthread::coroutine::{
    Coroutine,
    CoroutineResult::{self, Yield},
    Yielder,
};
use greenthread::runtime::Runtime;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

/// 0, 1, 2, …, practically for ever.
fn numbers() -> Coroutine<(), u64, ()> {
    Coroutine::new(|yielder, ()| (0..1 << 40).for_each(|n| yielder.suspend(n)))
}

#[test]
fn it_is_a_thread_of_its_own() {
    let _w = watchdog("coroutine_threads::it_is_a_thread_of_its_own");
    both(|| {
        struct Local(Cell<u32>);
        static DESTROYED: AtomicUsize = AtomicUsize::new(0);
        impl Drop for Local {
            fn drop(&mut self) {
                DESTROYED.fetch_add(1, Relaxed);
            }
        }
        thread_local!(static LOCAL: Local = const { Local(Cell::new(0)) });
        let body = |yielder: &Yielder<(), _>, ()| {
            for _ in 0..3 {
                LOCAL.with(|local| local.0.set(local.0.get() + 1));
                yielder.suspend((thread::current().id(), LOCAL.with(|local| local.0.get())));
            }
        };
        let (mut one, mut two) = (Coroutine::new(body), Coroutine::new(body));
        LOCAL.with(|local| local.0.set(100));
        let before = DESTROYED.load(Relaxed);
        let (id, _) = one.next().unwrap();
        for n in 1..3 {
            assert_eq!(two.next().unwrap().1, n);
            assert_eq!(one.next(), Some((id, n + 1)));
        }
        assert!(one.next().is_none() && DESTROYED.load(Relaxed) == before + 1);
        LOCAL.with(|local| assert_eq!(local.0.get(), 100));
        assert_ne!(id, thread::current().id());
    });
}

#[test]
fn it_may_block() {
    let _w = watchdog("coroutine_threads::it_may_block");
    both(|| {
        let (gate, pass) = greenthread::channel::bounded::<u64>(0);
        let sum = Arc::new(greenthread::sync::Mutex::new(0));
        let theirs = sum.clone();
        let mut one = Coroutine::new(move |yielder, ()| {
            for number in pass {
                thread::sleep(Duration::from_micros(100));
                thread::park_timeout(Duration::from_micros(100));
                let mut sum = theirs.lock().unwrap();
                *sum += thread::spawn(move || number).join().unwrap();
                yielder.suspend(*sum); // with the lock
            }
        });
        let sender = thread::spawn(move || (1..=3).for_each(|n| gate.send(n).unwrap()));
        for expected in [1, 3, 6] {
            assert_eq!(one.next(), Some(expected));
            assert!(sum.try_lock().is_err());
        }
        assert_eq!(one.next(), None);
        sender.join().unwrap();
        assert_eq!(*sum.lock().unwrap(), 6);
    });
}

#[test]
fn any_thread_may_resume_and_drop_it() {
    let _w = watchdog("coroutine_threads::any_thread_may_resume_and_drop_it");
    both(|| {
        let other = Runtime::builder().processors(1).build().unwrap();
        /// Counts when it is dropped.
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let counted = Counted(dropped.clone());
        let mut numbers = Coroutine::new(move |yielder, ()| {
            let _counted = counted;
            (0..1 << 40).for_each(|n: u64| yielder.suspend(n));
        });
        fn some(numbers: &mut Coroutine<(), u64, ()>, mut from: u64) -> u64 {
            for _ in 0..100 {
                assert_eq!(numbers.resume(()), Yield(from));
                from += 1;
            }
            from
        }
        let mut next = some(&mut numbers, 0);
        for round in 0..30 {
            let body = move || (some(&mut numbers, next), numbers);
            (next, numbers) = match round % 3 {
                0 => thread::spawn(body).join().unwrap(),
                1 => std::thread::spawn(body).join().unwrap(),
                _ => other.spawn(body).join().unwrap(),
            };
            next = some(&mut numbers, next);
        }
        other.spawn(|| drop(numbers)).join().unwrap();
        assert_eq!(dropped.load(Relaxed), 1);
        other.shutdown();
    });
}

#[test]
fn either_may_be_locked_to_its_kernel_thread() {
    let _w = watchdog("coroutine_threads::either_may_be_locked_to_its_kernel_thread");
    both(|| {
        let resumed = |lock_it: bool| {
            let numbers = Coroutine::new(move |yielder, ()| {
                let _lock = lock_it.then(thread::lock_kernel_thread);
                let here = gettid();
                for n in 0..20 {
                    yielder.suspend(n);
                    assert!(!lock_it || gettid() == here);
                }
            });
            assert_eq!(numbers.sum::<i32>(), 190);
        };
        resumed(true);
        let _lock = thread::lock_kernel_thread();
        let here = gettid();
        resumed(false);
        resumed(true);
        assert_eq!(gettid(), here);
    });
}

#[test]
fn nobody_comes_between() {
    let _w = watchdog("coroutine_threads::nobody_comes_between");
    let runtime = Runtime::builder()
        .processors(1)
        .time_slice(Duration::from_secs(3600));
    let runtime = runtime.build().unwrap();
    let body = || {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let turns = Arc::new(AtomicUsize::new(0));
        let counts = turns.clone();
        let other = thread::spawn(move || {
            while !theirs.load(Relaxed) {
                counts.fetch_add(1, Relaxed);
                thread::yield_now();
            }
        });
        let mut numbers = numbers();
        let first = numbers.next();
        let before = turns.load(Relaxed);
        assert!(numbers.by_ref().take(10_000).eq(first.unwrap() + 1..10_001));
        let between = turns.load(Relaxed) - before;
        stop.store(true, Relaxed);
        other.join().unwrap();
        between
    };
    let between = runtime.spawn(body).join().unwrap();
    if green() {
        assert_eq!(between, 0, "another thread ran meanwhile");
    }
}

#[test]
fn two_that_resume_for_ever_leave_room_for_others() {
    let _w = watchdog("coroutine_threads::two_that_resume_for_ever_leave_room_for_others");
    let runtime = Runtime::builder()
        .processors(1)
        .time_slice(Duration::from_micros(100));
    let runtime = runtime.build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = stop.clone();
    let hog = runtime.spawn(move || {
        let numbers = numbers().take_while(|_| !theirs.load(Relaxed));
        numbers.count()
    });
    let others = || (0..50).for_each(|_| thread::yield_now());
    runtime.spawn(others).join().unwrap();
    stop.store(true, Relaxed);
    hog.join().unwrap_or_else(|payload| resume_unwind(payload));
    runtime.shutdown(); // every coroutine has ended with its handle
}

#[test]
fn what_may_be_shared() {
    fn send_and_sync<T: Send + Sync>(_: &T) {}
    send_and_sync(&Coroutine::new(|_: &Yielder<Cell<u8>, Cell<u8>>, _| {
        Cell::new(0)
    }));
    let result: CoroutineResult<u8, u8> = Yield(1);
    assert!(result.as_return().is_none());
}
