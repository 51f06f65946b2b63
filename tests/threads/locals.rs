//! Thread-locals belong to the green thread.
//!
//! The idea: everything a program reaches through its thread pointer (`thread_local!`, errno,
//! pthread keys, std's and other crates' per-thread state) is its own, stays at its place however
//! often the thread moves between kernel threads, and is torn down once, on that thread, before
//! `join` returns.
//!
//! `crowd` runs a body on many threads of a runtime with more processors than this worker is
//! likely to have, and the bodies wake one another at random (`Shuffle`), which moves them.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{Mode, Runtime};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::time::Duration;

/// Lets the threads of a crowd wake one another in seeded disorder, and counts how often one came
/// back elsewhere.
#[derive(Clone)]
struct Shuffle {
    members: Arc<OnceLock<Vec<thread::Thread>>>,
    moves: Arc<AtomicUsize>,
}

impl Shuffle {
    /// Gives way: sometimes yields, sometimes blocks in the kernel long enough to lose its processor,
    /// sometimes wakes another member and parks until somebody does the same.
    fn step(&self, rng: &mut Rng) {
        let before = gettid();
        match rng.below(8) {
            0 => thread::yield_now(),
            1 => thread::blocking(|| std::thread::sleep(Duration::from_micros(50))),
            _ => {
                let members = self.members.get().unwrap();
                members[rng.below(members.len())].unpark();
                thread::park_timeout(Duration::from_micros(300));
            }
        }
        if gettid() != before {
            self.moves.fetch_add(1, Relaxed);
        }
    }
}

/// Runs `body(i, shuffle, rng)` on `threads` green threads over four processors.
fn crowd(
    test: &str,
    threads: usize,
    body: impl Fn(usize, &Shuffle, &mut Rng) + Send + Sync + 'static,
) -> Mode {
    let runtime = Runtime::builder().processors(4).build().expect("a runtime");
    let (body, mut rng) = (Arc::new(body), Rng::new(test));
    let shuffle = Shuffle {
        members: Arc::default(),
        moves: Arc::default(),
    };
    let handles: Vec<_> = (0..threads)
        .map(|i| {
            let (body, shuffle, mut rng) = (body.clone(), shuffle.clone(), rng.fork());
            runtime.spawn(move || {
                wait_until(|| shuffle.members.get().is_some());
                body(i, &shuffle, &mut rng)
            })
        })
        .collect();
    shuffle
        .members
        .set(handles.iter().map(|h| h.thread().clone()).collect())
        .unwrap();
    handles
        .into_iter()
        .for_each(|h| h.join().unwrap_or_else(|payload| resume_unwind(payload)));
    let mode = runtime.mode();
    println!(
        "{test}: {} moves between kernel threads, {mode:?}",
        shuffle.moves.load(Relaxed)
    );
    runtime.shutdown();
    mode
}

#[test]
fn each_thread_has_its_own_and_finds_them_fresh() {
    thread_local! {
        static PLAIN: Cell<usize> = const { Cell::new(7) };
        static LAZY: RefCell<Vec<usize>> = RefCell::new(vec![7]);
    }
    let _w = watchdog("locals::each_thread_has_its_own_and_finds_them_fresh");
    for _round in 0..5 {
        // later rounds run on recycled blocks
        let places = Arc::new(Mutex::new(HashSet::new()));
        let all_here = Arc::new(AtomicUsize::new(0));
        crowd(
            "locals::each_thread_has_its_own_and_finds_them_fresh",
            100,
            move |i, shuffle, rng| {
                assert_eq!(PLAIN.get(), 7);
                LAZY.with_borrow(|v| assert_eq!(*v, [7]));
                let place = PLAIN.with(|p| &raw const *p as usize);
                assert!(
                    places.lock().unwrap().insert(place),
                    "two live threads share a thread-local"
                );
                all_here.fetch_add(1, SeqCst);
                wait_until(|| all_here.load(SeqCst) == 100);
                for n in 0..50 {
                    PLAIN.set(i * n);
                    LAZY.with_borrow_mut(|v| v.push(i * n));
                    shuffle.step(rng);
                    assert_eq!(PLAIN.get(), i * n);
                    assert_eq!(PLAIN.with(|p| &raw const *p as usize), place);
                    LAZY.with_borrow(|v| assert_eq!((v.len(), v[n + 1]), (n + 2, i * n)));
                }
            },
        );
    }
}

#[test]
fn an_rc_survives_ten_thousand_moves() {
    thread_local!(static SHARED: RefCell<Rc<Vec<usize>>> = RefCell::default());
    const STEPS: usize = 10_000;
    let _w = watchdog("locals::an_rc_survives_ten_thousand_moves");
    crowd(
        "locals::an_rc_survives_ten_thousand_moves",
        8,
        |i, shuffle, rng| {
            SHARED.replace(Rc::new((0..64).map(|n| n ^ i).collect()));
            let moves = |shuffle: &Shuffle| shuffle.moves.load(Relaxed);
            let (must_move, mut step) = (Runtime::global().mode() == Mode::Green, 0);
            while step < STEPS || (must_move && moves(shuffle) < STEPS) {
                let clones: Vec<_> = (0..step % 5)
                    .map(|_| SHARED.with_borrow(Rc::clone))
                    .collect();
                let lent = SHARED.with(|s| Rc::clone(&s.borrow()));
                shuffle.step(rng);
                SHARED.with_borrow(|s| {
                    assert!(Rc::ptr_eq(s, &lent));
                    assert_eq!(Rc::strong_count(s), clones.len() + 2);
                    assert_eq!(s[step % 64], (step % 64) ^ i);
                });
                step += 1;
            }
            SHARED.with_borrow(|s| assert_eq!(Rc::strong_count(s), 1));
        },
    );
}

#[test]
fn a_borrow_lasts_across_switches() {
    thread_local!(static CELL: RefCell<String> = RefCell::default());
    let _w = watchdog("locals::a_borrow_lasts_across_switches");
    crowd(
        "locals::a_borrow_lasts_across_switches",
        16,
        |i, shuffle, rng| {
            for n in 0..100 {
                CELL.with_borrow_mut(|s| {
                    *s = format!("{i}:{n}");
                    shuffle.step(rng);
                    CELL.with(|c| assert!(c.try_borrow().is_err(), "my own borrow is known"));
                });
                shuffle.step(rng);
                CELL.with_borrow(|s| assert_eq!(*s, format!("{i}:{n}")));
            }
        },
    );
}

#[test]
fn destructors_run_once_on_their_thread_before_join() {
    struct Note(Arc<Mutex<Vec<(usize, thread::ThreadId)>>>, usize);
    impl Drop for Note {
        fn drop(&mut self) {
            (0..5).for_each(|_| thread::yield_now()); // a destructor may use the runtime
            drop(thread::spawn(|| ()).join());
            self.0
                .lock()
                .unwrap()
                .push((self.1, thread::current().id()));
        }
    }
    thread_local! {
        static NOTE: RefCell<Option<Note>> = const { RefCell::new(None) };
        static UNUSED: Note = panic!("nobody asked for this one");
    }
    let _w = watchdog("locals::destructors_run_once_on_their_thread_before_join");
    both(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        for i in 0..50 {
            let theirs = log.clone();
            let handle = thread::spawn(move || {
                NOTE.set(Some(Note(theirs, i)));
                if i % 3 == 0 {
                    resume_unwind(Box::new(i)); // a panic runs them too
                }
            });
            let id = handle.thread().id();
            assert_eq!(handle.join().is_err(), i % 3 == 0);
            let log = log.lock().unwrap();
            assert_eq!(
                (log.len(), log[i]),
                (i + 1, (i, id)),
                "before join returns, once"
            );
        }
        let _ = || UNUSED.with(|_| ());
    });
}

#[test]
fn a_destructor_may_touch_other_thread_locals() {
    static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
    struct First;
    struct Second(Cell<u32>);
    impl Drop for First {
        fn drop(&mut self) {
            let again = FIRST.try_with(|_| ()).is_err();
            let second = SECOND.try_with(|s| s.0.replace(2)); // first use: made now, destroyed after this one
            LOG.lock()
                .unwrap()
                .push(format!("first: gone {again}, second {second:?}"));
        }
    }
    impl Drop for Second {
        fn drop(&mut self) {
            LOG.lock().unwrap().push(format!(
                "second: {}, first gone {}",
                self.0.get(),
                FIRST.try_with(|_| ()).is_err()
            ));
        }
    }
    thread_local! {
        static FIRST: First = const { First };
        static SECOND: Second = const { Second(Cell::new(1)) };
    }
    let _w = watchdog("locals::a_destructor_may_touch_other_thread_locals");
    both(|| {
        LOG.lock().unwrap().clear();
        thread::spawn(|| FIRST.with(|_| ())).join().unwrap();
        assert_eq!(
            *LOG.lock().unwrap(),
            [
                "first: gone true, second Ok(1)",
                "second: 2, first gone true"
            ]
        );
    });
}

#[test]
fn stds_channels_maps_and_ids() {
    let _w = watchdog("locals::stds_channels_maps_and_ids");
    // A pipeline of rendezvous channels: std parks and wakes through its own thread handles.
    both(|| {
        let (first, mut last) = mpsc::sync_channel::<u64>(0);
        let stages: Vec<_> = (0..20)
            .map(|_| {
                let (send, receive) = mpsc::sync_channel(1);
                let from = std::mem::replace(&mut last, receive);
                thread::spawn(move || from.iter().for_each(|n| send.send(n + 1).unwrap()))
            })
            .collect();
        let feed = thread::spawn(move || (0..200).for_each(|n| first.send(n).unwrap()));
        assert!(last.iter().eq((0..200).map(|n| n + 20)));
        feed.join().unwrap();
        stages.into_iter().for_each(|s| s.join().unwrap());
    });
    let (ids, hashes) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
    crowd(
        "locals::stds_channels_maps_and_ids",
        32,
        move |i, shuffle, rng| {
            let id = std::thread::current().id();
            assert!(
                ids.lock().unwrap().insert(id),
                "std tells two threads apart"
            );
            assert!(
                hashes
                    .lock()
                    .unwrap()
                    .insert(RandomState::new().hash_one(1)),
                "each thread draws its own keys"
            );
            let mut map: HashMap<usize, String> = HashMap::new();
            for n in 0..300 {
                map.insert(n * i, n.to_string());
                shuffle.step(rng);
                assert_eq!(std::thread::current().id(), id);
                assert_eq!(map[&(n * i)], n.to_string());
            }
        },
    );
    // std's own park and unpark.
    let turns: Vec<_> = (0..8)
        .map(|_| {
            let (send, receive) = mpsc::channel();
            let woken = Arc::new(AtomicBool::new(false));
            let sleeper = thread::spawn({
                let woken = woken.clone();
                move || {
                    send.send(std::thread::current()).unwrap();
                    while !woken.load(Acquire) {
                        std::thread::park();
                    }
                }
            });
            (receive.recv().unwrap(), woken, sleeper)
        })
        .collect();
    for (handle, woken, sleeper) in turns {
        woken.store(true, Release);
        handle.unpark();
        sleeper.join().unwrap();
    }
}

#[test]
fn a_panic_is_counted_where_it_happens() {
    struct Slow<'a>(&'a Shuffle, &'a mut Rng);
    impl Drop for Slow<'_> {
        fn drop(&mut self) {
            for _ in 0..50 {
                self.0.step(self.1);
                assert!(std::thread::panicking() && thread::panicking());
            }
            assert!(catch_unwind(|| resume_unwind(Box::new(()))).is_err()); // a panic within a panic, caught
            assert!(thread::panicking());
        }
    }
    let _w = watchdog("locals::a_panic_is_counted_where_it_happens");
    crowd(
        "locals::a_panic_is_counted_where_it_happens",
        16,
        |i, shuffle, rng| {
            for _ in 0..5 {
                if i % 2 == 0 {
                    let unwound = catch_unwind(AssertUnwindSafe(|| {
                        let _slow = Slow(shuffle, rng);
                        resume_unwind(Box::new(i))
                    }));
                    assert_eq!(*unwound.unwrap_err().downcast::<usize>().unwrap(), i);
                } else {
                    shuffle.step(rng);
                }
                assert!(!std::thread::panicking() && !thread::panicking());
                let lock = Mutex::new(()); // poisoned only by a panic of this thread
                drop(lock.lock().unwrap());
                assert!(!lock.is_poisoned());
            }
        },
    );
}

#[test]
fn a_destructor_of_the_whole_thread_sees_its_locals() {
    thread_local!(static OWN: Cell<usize> = const { Cell::new(0) });
    struct Late(Arc<AtomicUsize>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.store(OWN.get(), SeqCst);
        }
    }
    let _w = watchdog("locals::a_destructor_of_the_whole_thread_sees_its_locals");
    let seen = Arc::new(AtomicUsize::new(0));
    for i in 1..50 {
        let late = Late(seen.clone());
        let handle = thread::spawn(move || {
            OWN.set(i);
            let _late = late;
            (0..10).for_each(|_| thread::yield_now());
        });
        handle.join().unwrap();
        assert_eq!(seen.load(SeqCst), i);
    }
}

#[test]
fn stds_locks_know_their_owner() {
    let _w = watchdog("locals::stds_locks_know_their_owner");
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (sum, turns) = (Mutex::new(0), Condvar::new());
    let barrier = Barrier::new(8);
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                barrier.wait();
                for _ in 0..20 {
                    // stdout's lock is reentrant: it must tell green threads apart, and know one
                    // again elsewhere.
                    let mut out = std::io::stdout().lock();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two threads hold stdout");
                    (0..5).for_each(|_| thread::yield_now());
                    let again = std::io::stdout().lock();
                    (0..5).for_each(|_| thread::yield_now());
                    drop(again);
                    out.flush().unwrap();
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    drop(out);
                    let mut sum = sum.lock().unwrap();
                    let before = *sum;
                    thread::yield_now();
                    *sum = before + 1;
                    turns.notify_all();
                }
                entered.fetch_add(1, SeqCst);
            });
        }
        let all = turns
            .wait_while(sum.lock().unwrap(), |sum| *sum < 160)
            .unwrap();
        assert_eq!(*all, 160);
    });
    assert_eq!(entered.load(SeqCst), 8);
    let poisoned = Arc::new(Mutex::new(()));
    let theirs = poisoned.clone();
    let holder = thread::spawn(move || {
        let _held = theirs.lock();
        resume_unwind(Box::new(()));
    });
    assert!(holder.join().is_err() && poisoned.is_poisoned());
}

/// Also where a thread has to provide for the next one's stack first.
#[test]
fn a_thread_begins_without_an_error() {
    let runtime = Runtime::builder().processors(2).build().unwrap();
    if runtime.mode() == Mode::Kernel {
        return;
    }
    // They all wait, so each needs a stack of its own.
    let all = Arc::new(greenthread::sync::Barrier::new(2_000));
    let begin = || {
        let all = all.clone();
        runtime.spawn(move || {
            let error = std::io::Error::last_os_error().raw_os_error();
            all.wait();
            error
        })
    };
    let threads: Vec<_> = (0..2_000).map(|_| begin()).collect();
    let errors = threads.into_iter().map(|thread| thread.join().unwrap());
    let with_error = errors.filter(|&error| error != Some(0)).count();
    assert_eq!(with_error, 0);
}
