//! `Once`, `OnceLock`, `LazyLock`: std's documentation is the measure, asked from kernel threads,
//! green threads, and both at once.

use crate::common::*;
use greenthread as thread;
use greenthread::sync::{LazyLock, Once, OnceLock, OnceState};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// The message of a panic.
fn message<R>(f: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).map(|_| ()).unwrap_err();
    match payload.downcast::<String>() {
        Ok(string) => *string,
        Err(payload) => payload.downcast_ref::<&str>().unwrap().to_string(),
    }
}

/// Runs `body` on so many green threads and two kernel threads, and waits for them.
fn on_all(green: usize, body: impl Fn(usize) + Clone + Send + 'static) {
    let kernel = [0, 1].map(|i| {
        let body = body.clone();
        std::thread::spawn(move || body(i))
    });
    let green: Vec<_> = (2..green + 2)
        .map(|i| {
            let body = body.clone();
            thread::spawn(move || body(i))
        })
        .collect();
    let ended = green.into_iter().map(thread::JoinHandle::join);
    for end in ended.chain(kernel.map(std::thread::JoinHandle::join)) {
        end.unwrap_or_else(|payload| resume_unwind(payload));
    }
}

#[test]
fn traits_are_stds() {
    fn shared<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
    fn sent<T: Send + Unpin + UnwindSafe>() {}
    shared::<Once>();
    shared::<OnceLock<String>>();
    shared::<LazyLock<String>>();
    sent::<OnceState>();
    sent::<OnceLock<std::cell::Cell<u8>>>();
    // A closure that is sent, not shared.
    shared::<LazyLock<String, fn() -> String>>();
    fn sync<T: Sync>(_: &T) {}
    let cell = std::cell::Cell::new(1);
    sync(&LazyLock::new(move || cell.get()));
    static _ONCE: Once = Once::new();
    static _CELL: OnceLock<String> = OnceLock::new();
    static _LAZY: LazyLock<String> = LazyLock::new(String::new);
    assert_eq!(size_of::<Once>(), 2 * size_of::<usize>());
}

#[test]
fn once() {
    let _w = watchdog("once::once");
    both(|| {
        let once = Once::new();
        assert_eq!(format!("{once:?}"), "Once { .. }");
        assert!(!once.is_completed());
        let mut calls = 0;
        once.call_once(|| {
            assert!(!once.is_completed());
            calls += 1;
        });
        once.call_once(|| calls += 1);
        once.call_once_force(|_| calls += 1);
        assert_eq!(calls, 1);
        assert!(once.is_completed());
        once.wait();
        once.wait_force();
    });
}

#[test]
fn poisoned_once() {
    let _w = watchdog("once::poisoned_once");
    both(|| {
        let once = Once::new();
        assert_eq!(message(|| once.call_once(|| panic!("first"))), "first");
        assert!(!once.is_completed());
        let told = "Once instance has previously been poisoned";
        assert_eq!(message(|| once.call_once(|| ())), told);
        assert_eq!(message(|| once.wait()), told);
        // A second panic, of one that ignores the first, poisons as well.
        assert!(panics(|| once.call_once_force(|state| {
            assert!(state.is_poisoned());
            assert_eq!(format!("{state:?}"), "OnceState { poisoned: true }");
            panic!("second");
        })));
        assert_eq!(message(|| once.call_once(|| ())), told);
        once.call_once_force(|state| assert!(state.is_poisoned()));
        assert!(once.is_completed());
        once.call_once(|| unreachable!());
        once.wait();
        let fresh = Once::new();
        fresh.call_once_force(|state| assert!(!state.is_poisoned()));
    });
}

/// All callers wait for the first closure, which gives way, parks and is preempted; then all see
/// what it did.
#[test]
fn all_wait_for_the_first() {
    let _w = watchdog("once::all_wait_for_the_first");
    for how in 0..4 {
        let (once, made, calls) = (Once::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new((once, made, calls));
        on_all(100, move |_| {
            let (once, made, calls) = &*shared;
            once.call_once(|| {
                calls.fetch_add(1, Relaxed);
                match how {
                    0 => {}
                    1 => thread::yield_now(),
                    2 => thread::sleep(Duration::from_millis(2)),
                    _ => {
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_millis(25) {}
                    }
                }
                made.store(7, Relaxed);
            });
            assert_eq!(made.load(Relaxed), 7);
            assert_eq!(calls.load(Relaxed), 1);
        });
    }
}

/// A panic wakes all who wait: `call_once` and `wait` panic in turn, `call_once_force` takes over,
/// `wait_force` waits on.
#[test]
fn a_panic_is_told_to_all_who_wait() {
    let _w = watchdog("once::a_panic_is_told_to_all_who_wait");
    let shared = Arc::new((Once::new(), AtomicBool::new(false), AtomicUsize::new(0)));
    let running = shared.clone();
    let first = thread::spawn(move || {
        running.0.call_once(|| {
            running.1.store(true, Relaxed);
            // As many as can be known to be on their way; some may come after the panic, and must
            // see the same.
            wait_until(|| running.2.load(Relaxed) == 62);
            panic!("on purpose");
        });
    });
    wait_until(|| shared.1.load(Relaxed));
    let waiting = shared.clone();
    let forced = Arc::new(AtomicUsize::new(0));
    let forcing = forced.clone();
    on_all(60, move |i| {
        let (once, _, here) = &*waiting;
        here.fetch_add(1, Relaxed);
        match i % 4 {
            // Those who come after one that forced find it completed.
            0 => drop(catch_unwind(AssertUnwindSafe(|| {
                once.call_once(|| unreachable!());
            }))),
            1 => drop(catch_unwind(AssertUnwindSafe(|| once.wait()))),
            2 => once.wait_force(),
            _ => once.call_once_force(|state| {
                assert!(state.is_poisoned());
                forcing.fetch_add(1, Relaxed);
            }),
        }
    });
    assert!(first.join().is_err());
    assert!(shared.0.is_completed());
    assert_eq!(forced.load(Relaxed), 1);
}

/// Nobody is left behind when some closures panic and all waits mix. Seeded.
#[test]
fn stress() {
    let _w = watchdog("once::stress");
    const ONCES: usize = 200;
    struct Place {
        once: Once,
        running: AtomicBool,
        panicked: AtomicUsize,
        completed: AtomicUsize,
    }
    let places: Arc<Vec<Place>> = Arc::new(
        (0..ONCES)
            .map(|_| Place {
                once: Once::new(),
                running: AtomicBool::new(false),
                panicked: AtomicUsize::new(0),
                completed: AtomicUsize::new(0),
            })
            .collect(),
    );
    fn run(place: &Place, poisoned: bool, kind: usize) {
        assert!(!place.running.swap(true, Relaxed), "closures overlap");
        assert_eq!(place.completed.load(Relaxed), 0, "run after completion");
        assert_eq!(place.panicked.load(Relaxed) > 0, poisoned);
        match kind {
            0 => thread::yield_now(),
            1 => thread::sleep(Duration::from_micros(50)),
            2 => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(12) {}
            }
            _ => {}
        }
        let panics = kind % 2 == 1;
        let count = if panics {
            &place.panicked
        } else {
            &place.completed
        };
        count.fetch_add(1, Relaxed);
        place.running.store(false, Relaxed);
        if panics {
            resume_unwind(Box::new("on purpose"));
        }
    }
    let seeds = std::sync::Mutex::new(Rng::new("once::stress"));
    let (visited, seeds) = (places.clone(), Arc::new(seeds));
    let last = thread::spawn(move || {
        // Behind all the others, completes what is not complete: `wait_force` ends.
        for place in places.iter() {
            thread::yield_now();
            place
                .once
                .call_once_force(|state| run(place, state.is_poisoned(), 4));
            assert_eq!(place.completed.load(Relaxed), 1);
        }
    });
    on_all(200, move |_| {
        let mut rng = seeds.lock().unwrap().fork();
        for _ in 0..ONCES {
            let place = &visited[rng.below(ONCES)];
            let kind = rng.below(40);
            let what = rng.below(5);
            let outcome = catch_unwind(AssertUnwindSafe(|| match what {
                0 => place.once.call_once(|| run(place, false, kind)),
                1 | 2 => place
                    .once
                    .call_once_force(|state| run(place, state.is_poisoned(), kind)),
                3 => place.once.wait(),
                _ => place.once.wait_force(),
            }));
            if outcome.is_ok() {
                assert!(place.once.is_completed());
                assert_eq!(place.completed.load(Relaxed), 1);
            } else {
                assert!(what < 4, "wait_force does not panic");
                assert!(place.panicked.load(Relaxed) > 0);
            }
        }
    });
    last.join().unwrap();
}

#[test]
fn once_lock() {
    let _w = watchdog("once::once_lock");
    both(|| {
        let mut cell = OnceLock::new();
        assert_eq!(format!("{cell:?}"), "OnceLock(<uninit>)");
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_mut(), None);
        assert_eq!(cell.take(), None);
        assert_eq!(cell.set(String::from("a")), Ok(()));
        assert_eq!(cell.set(String::from("b")), Err(String::from("b")));
        assert_eq!(cell.get_or_init(|| unreachable!()), "a");
        assert_eq!(cell.wait(), "a");
        cell.get_mut().unwrap().push('c');
        assert_eq!(format!("{cell:?}"), "OnceLock(\"ac\")");
        let copy = cell.clone();
        assert_eq!(copy, cell);
        assert_eq!(copy, OnceLock::from(String::from("ac")));
        assert_ne!(copy, OnceLock::default());
        assert_eq!(OnceLock::<String>::new(), OnceLock::new().clone());
        assert_eq!(cell.take().as_deref(), Some("ac"));
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_or_init(|| String::from("d")), "d");
        assert_eq!(cell.into_inner().as_deref(), Some("d"));
        assert_eq!(OnceLock::<u8>::new().into_inner(), None);
    });
}

/// A closure that panics leaves no value and no poison; the next one runs.
#[test]
fn once_lock_is_not_poisoned() {
    let _w = watchdog("once::once_lock_is_not_poisoned");
    both(|| {
        let mut cell = OnceLock::new();
        assert!(panics(|| cell.get_or_init(|| panic!("on purpose"))));
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_mut(), None);
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.wait(), &1);
    });
    // `wait` goes on waiting meanwhile.
    let cell = OnceLock::new();
    thread::scope(|s| {
        let waiters = [(); 10].map(|()| s.spawn(|| *cell.wait()));
        for _ in 0..3 {
            assert!(panics(|| cell.get_or_init(|| {
                thread::sleep(Duration::from_millis(1));
                panic!("on purpose")
            })));
        }
        cell.set(5).unwrap();
        assert!(waiters.into_iter().all(|w| w.join().unwrap() == 5));
    });
}

/// Everybody gets the one value; the losers' values and closures are dropped, and in the end it.
#[test]
fn once_lock_holds_one_value() {
    let _w = watchdog("once::once_lock_holds_one_value");
    struct Counted(Arc<AtomicUsize>);
    impl Counted {
        fn new(alive: &Arc<AtomicUsize>) -> Counted {
            alive.fetch_add(1, Relaxed);
            Counted(alive.clone())
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let cell = Arc::new(OnceLock::new());
        let first = Arc::new(AtomicUsize::new(0));
        let (shared, counter) = (cell.clone(), alive.clone());
        on_all(30, move |i| {
            let value = Counted::new(&counter);
            let there = if i % 2 == 0 {
                shared.get_or_init(|| value)
            } else {
                let _ = shared.set(value);
                shared.get().unwrap()
            };
            let address = std::ptr::from_ref(there).addr();
            let before = first.swap(address, Relaxed);
            assert!(before == 0 || before == address);
        });
        assert_eq!(alive.load(Relaxed), 1);
        drop(cell);
        assert_eq!(alive.load(Relaxed), 0);
    }
}

/// As with std's, a cell may hold a reference to what is dropped before it.
#[test]
fn once_lock_outlives_what_it_refers_to() {
    let cell = OnceLock::new();
    {
        let string = String::from("shorter");
        cell.set(&string).unwrap();
    }
}

#[test]
fn lazy_lock() {
    static LAZY: LazyLock<Vec<u32>> = LazyLock::new(|| {
        CALLS.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_millis(1));
        vec![1, 2, 3]
    });
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let _w = watchdog("once::lazy_lock");
    assert_eq!(LazyLock::get(&LAZY), None);
    assert_eq!(format!("{LAZY:?}"), "LazyLock(<uninit>)");
    on_all(50, |_| assert_eq!(LAZY.iter().sum::<u32>(), 6));
    assert_eq!(CALLS.load(Relaxed), 1);
    assert_eq!(format!("{LAZY:?}"), "LazyLock([1, 2, 3])");

    both(|| {
        let text = String::from("moved in");
        let mut lazy = LazyLock::new(|| text);
        assert_eq!(LazyLock::get_mut(&mut lazy), None);
        LazyLock::force_mut(&mut lazy).push('!');
        lazy.push('!'); // DerefMut
        assert_eq!(LazyLock::get_mut(&mut lazy).unwrap(), "moved in!!");
        assert_eq!(LazyLock::force(&lazy), "moved in!!");
        assert_eq!(LazyLock::get(&lazy).unwrap(), "moved in!!");
        assert_eq!(*LazyLock::<u32>::default(), 0);
        // Not asked for: the closure is dropped.
        let dropped = Arc::new(());
        let kept = dropped.clone();
        drop(LazyLock::new(move || Arc::strong_count(&kept)));
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

#[test]
fn poisoned_lazy_lock() {
    let _w = watchdog("once::poisoned_lazy_lock");
    both(|| {
        let mut lazy: LazyLock<u32> = LazyLock::new(|| panic!("first"));
        let told = "LazyLock instance has previously been poisoned";
        assert_eq!(message(|| LazyLock::force_mut(&mut lazy)), "first");
        assert_eq!(message(|| *lazy), told);
        assert_eq!(message(|| *LazyLock::force(&lazy)), told);
        assert_eq!(message(|| *lazy += 1), told);
        assert_eq!(LazyLock::get(&lazy), None);
        assert_eq!(LazyLock::get_mut(&mut lazy), None);
        assert_eq!(format!("{lazy:?}"), "LazyLock(<uninit>)");
    });
}

/// A closure may use other locks of its kind, and wait for threads that do.
#[test]
fn lazy_locks_in_lazy_locks() {
    static INNER: LazyLock<u32> = LazyLock::new(|| 20);
    static OUTER: LazyLock<u32> = LazyLock::new(|| {
        let other = thread::spawn(|| *INNER + 1);
        *INNER + other.join().unwrap() + 1
    });
    let _w = watchdog("once::lazy_locks_in_lazy_locks");
    on_all(20, |_| assert_eq!(*OUTER, 42));
}
