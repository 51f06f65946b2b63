//! std's locks, on green threads: right answers, and no kernel thread for a thread that waits.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::{Test, some};

/// Kernel threads while all wait, and at any time.
const BOUND: usize = 20;
const PEAK: usize = 300;

fn crowd() -> usize {
    some(1_000, 200)
}

/// 0 + 1 + … + (n - 1)
fn sum(n: usize) -> usize {
    n * (n - 1) / 2
}

/// A hundred thousand threads wait for one condition, and the count under the lock says so.
#[test]
fn a_hundred_thousand_in_one_condvar() {
    let test = Test::new("100,000 threads in a std Condvar", 120);
    let n = some(100_000, 1_000);
    let state = Arc::new((Mutex::new((0, false)), Condvar::new()));
    let threads: Vec<_> = (0..n)
        .map(|i| {
            let state = state.clone();
            greenthread::spawn(move || {
                let (state, condition) = &*state;
                let mut guard = state.lock().unwrap();
                guard.0 += 1;
                drop(condition.wait_while(guard, |state| !state.1).unwrap());
                i
            })
        })
        .collect();
    // A thread that has counted itself gives the lock back when it waits.
    test.until(|| state.0.lock().unwrap().0 == n);
    test.all_wait(BOUND);
    state.0.lock().unwrap().1 = true;
    let start = Instant::now();
    state.1.notify_all();
    let woken: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(woken, sum(n));
    eprintln!("{n} threads woken and joined in {:.1?}", start.elapsed());
    test.report();
}

#[test]
fn one_at_a_time_out_of_a_condvar() {
    let test = Test::new("std Condvar, notify_one", 60);
    let n = crowd();
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    let ours = state.clone();
    let woken = test.crowd(
        n,
        BOUND,
        move |_| {
            let (tokens, condition) = &*state;
            let mut tokens = condition
                .wait_while(tokens.lock().unwrap(), |tokens| *tokens == 0)
                .unwrap();
            *tokens -= 1;
            1
        },
        || {
            for _ in 0..n {
                *ours.0.lock().unwrap() += 1;
                ours.1.notify_one();
            }
        },
    );
    assert_eq!((woken.len(), *ours.0.lock().unwrap()), (n, 0));
    test.report();
}

/// Nobody notifies them: each call returns by itself, and not before its time.
#[test]
fn timeouts_of_a_condvar() {
    let test = Test::new("std Condvar, timeouts", 60);
    let wait = Duration::from_millis(300);
    let state = (Mutex::new(()), Condvar::new());
    test.at_once(crowd(), move |_| {
        let start = Instant::now();
        let guard = state.0.lock().unwrap();
        let (_guard, result) = state.1.wait_timeout_while(guard, wait, |()| true).unwrap();
        assert!(result.timed_out());
        assert!(start.elapsed() >= wait, "too early");
    });
    test.never_above(PEAK);
}

#[test]
fn a_mutex() {
    let test = Test::new("std Mutex", 60);
    let n = crowd();
    let mutex = Arc::new(Mutex::new(0));
    let ours = mutex.clone();
    let held = ours.lock().unwrap();
    test.crowd(
        n,
        BOUND,
        move |i| *mutex.lock().unwrap() += i,
        || drop(held),
    );
    assert_eq!(*ours.lock().unwrap(), sum(n));
    test.report();
}

/// Held again and again by green and kernel threads at once, across a switch.
#[test]
fn a_mutex_that_kernel_threads_want_too() {
    let test = Test::new("std Mutex, green and kernel threads", 60);
    let (n, rounds) = (crowd(), 20);
    let mutex = Arc::new(Mutex::new((0, false)));
    let work = move |mutex: &Mutex<(usize, bool)>, i: usize| {
        for _ in 0..rounds {
            let mut guard = mutex.lock().unwrap();
            assert!(!std::mem::replace(&mut guard.1, true), "two hold it");
            if i.is_multiple_of(64) {
                greenthread::yield_now();
            }
            guard.0 += 1;
            guard.1 = false;
        }
    };
    let kernel: Vec<_> = (0..4)
        .map(|i| {
            let mutex = mutex.clone();
            thread::spawn(move || work(&mutex, i))
        })
        .collect();
    let green: Vec<_> = (0..n)
        .map(|i| {
            let mutex = mutex.clone();
            greenthread::spawn(move || work(&mutex, i))
        })
        .collect();
    green.into_iter().for_each(|t| t.join().unwrap());
    kernel.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(mutex.lock().unwrap().0, (n + 4) * rounds);
    test.never_above(PEAK);
}

#[test]
fn a_rwlock() {
    let test = Test::new("std RwLock", 60);
    let n = crowd();
    let lock = Arc::new(RwLock::new(0));
    let ours = lock.clone();
    let held = ours.write().unwrap();
    let read = test.crowd(
        n,
        BOUND,
        move |i| {
            if i.is_multiple_of(2) {
                *lock.write().unwrap() += 1;
                0
            } else {
                *lock.read().unwrap()
            }
        },
        || drop(held),
    );
    assert_eq!(*ours.read().unwrap(), n / 2);
    assert!(read.iter().all(|seen| *seen <= n / 2));
    test.report();
}

#[test]
fn a_barrier() {
    let test = Test::new("std Barrier", 60);
    let n = crowd();
    let barrier = Arc::new(Barrier::new(n + 1));
    let ours = barrier.clone();
    let mut leaders = 0;
    let led = test.crowd(
        n,
        BOUND,
        move |_| usize::from(barrier.wait().is_leader()),
        || leaders += usize::from(ours.wait().is_leader()),
    );
    assert_eq!(leaders + led.iter().sum::<usize>(), 1);
    test.report();
}

/// The first one is in the closure, and waits there; the others wait for it.
#[test]
fn once() {
    let test = Test::new("std Once, OnceLock, LazyLock", 60);
    static ONCE: Once = Once::new();
    static CELL: OnceLock<usize> = OnceLock::new();
    static GATE: Mutex<()> = Mutex::new(());
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn initialise() -> usize {
        drop(GATE.lock().unwrap());
        CALLS.fetch_add(1, Relaxed) + 1
    }
    static LAZY: LazyLock<usize> = LazyLock::new(initialise);

    let held = GATE.lock().unwrap();
    let n = crowd();
    test.crowd(
        n,
        BOUND,
        |i| match i % 3 {
            0 => ONCE.call_once(|| assert!(initialise() > 0)),
            1 => assert!((1..=3).contains(CELL.get_or_init(initialise))),
            _ => assert!((1..=3).contains(&*LAZY)),
        },
        || drop(held),
    );
    assert_eq!(CALLS.load(Relaxed), 3);
    test.report();
}

#[test]
fn mpsc_receivers() {
    let test = Test::new("std mpsc, receivers", 60);
    let n = crowd();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..n).map(|_| mpsc::channel()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    let got = test.crowd(
        n,
        BOUND,
        move |i| receivers[i].lock().unwrap().recv().unwrap(),
        || (0..n).for_each(|i| senders[i].send(i).unwrap()),
    );
    assert!(got.into_iter().eq(0..n));
    test.report();
}

#[test]
fn mpsc_senders() {
    let test = Test::new("std mpsc, senders at a full channel", 60);
    let n = crowd();
    let (sender, receiver) = mpsc::sync_channel(0);
    let mut got = 0;
    test.crowd(
        n,
        BOUND,
        move |i| sender.send(i).unwrap(),
        || got = (0..n).map(|_| receiver.recv().unwrap()).sum(),
    );
    assert_eq!(got, sum(n));
    test.report();
}

#[test]
fn parked_threads() {
    let test = Test::new("std::thread::park", 60);
    let n = crowd();
    let slots: Arc<Vec<OnceLock<thread::Thread>>> =
        Arc::new((0..n).map(|_| OnceLock::new()).collect());
    let go = Arc::new(AtomicUsize::new(0));
    let (ours, set) = (slots.clone(), go.clone());
    test.crowd(
        n,
        BOUND,
        move |i| {
            slots[i].set(thread::current()).unwrap();
            while go.load(Relaxed) == 0 {
                thread::park();
            }
        },
        || {
            set.store(1, Relaxed);
            ours.iter().for_each(|slot| slot.get().unwrap().unpark());
        },
    );
    test.report();
}

#[test]
fn sleeping_threads() {
    let test = Test::new("std::thread::sleep and park_timeout", 60);
    let sleep = Duration::from_millis(300);
    test.at_once(crowd(), move |i| {
        let start = Instant::now();
        if i.is_multiple_of(2) {
            thread::sleep(sleep);
            assert!(start.elapsed() >= sleep, "too early");
        }
        // Such a park may end at any time.
        while start.elapsed() < sleep {
            thread::park_timeout(sleep - start.elapsed());
        }
    });
    test.never_above(PEAK);
}
