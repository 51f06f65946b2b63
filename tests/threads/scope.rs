//! Scopes, and threads that wait for one another in numbers.
//!
//! The idea: as in `thread.rs`, whatever std documents of `std::thread::scope` holds here, from a
//! kernel thread and from a green one; then joins in chains, in cycles, and ten thousand threads
//! parked at once, woken from kernel threads.

use crate::common::*;
use greenthread as thread;
use greenthread::{Builder, JoinHandle, scope};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};

#[test]
fn a_scope_lends_and_waits() {
    let _w = watchdog("scope::a_scope_lends_and_waits");
    both(|| {
        let (mut list, mut sum, count) = (vec![1, 2, 3], 0, AtomicUsize::new(0));
        let value = scope(|s| {
            s.spawn(|| sum = list.iter().sum());
            for _ in 0..100 {
                s.spawn(|| {
                    (0..20).for_each(|_| thread::yield_now());
                    count.fetch_add(1, Relaxed)
                });
            }
            "value"
        });
        assert_eq!((value, sum, count.load(Relaxed)), ("value", 6, 100));
        list.push(4); // borrowed no more
        scope(|s| {
            let handle = s.spawn(|| list.len());
            assert_eq!(handle.thread().name(), None);
            wait_until(|| handle.is_finished());
            assert_eq!(handle.join().unwrap(), 4);
        });
        scope(|_| ());
    });
}

#[test]
fn scopes_nest_and_pass_on() {
    let _w = watchdog("scope::scopes_nest_and_pass_on");
    both(|| {
        let count = AtomicUsize::new(0);
        let add = || count.fetch_add(1, Relaxed);
        scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    add();
                    // A scoped thread spawns into the scope it is in...
                    s.spawn(|| s.spawn(add).join().unwrap());
                    // ...and opens its own.
                    scope(|inner| (0..10).for_each(|_| drop(inner.spawn(add))));
                });
            }
        });
        assert_eq!(count.load(Relaxed), 10 + 10 + 100);
    });
}

#[test]
fn scoped_builders() {
    let _w = watchdog("scope::scoped_builders");
    both(|| {
        let text = String::from("lent");
        scope(|s| {
            let builder = Builder::new().name("scoped".into()).stack_size(64 << 10);
            let handle = builder
                .spawn_scoped(s, || {
                    (text.len(), thread::current().name().map(String::from))
                })
                .unwrap();
            assert_eq!(handle.thread().name(), Some("scoped"));
            assert_eq!(handle.join().unwrap(), (4, Some("scoped".into())));
            let error = Builder::new()
                .stack_size(usize::MAX)
                .spawn_scoped(s, || text.len())
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn a_scope_reports_panics_nobody_joined() {
    let _w = watchdog("scope::a_scope_reports_panics_nobody_joined");
    both(|| {
        let ended = AtomicUsize::new(0);
        let payload = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| resume_unwind(Box::new("lost")));
                s.spawn(|| {
                    (0..100).for_each(|_| thread::yield_now());
                    ended.fetch_add(1, Relaxed)
                });
            })
        }));
        assert_eq!(
            *payload.unwrap_err().downcast::<&str>().unwrap(),
            "a scoped thread panicked"
        );
        assert_eq!(ended.load(Relaxed), 1, "all are waited for, whoever panics");

        let payload = scope(|s| {
            s.spawn(|| resume_unwind(Box::new("joined")))
                .join()
                .unwrap_err()
        });
        assert_eq!(*payload.downcast::<&str>().unwrap(), "joined"); // and the scope itself did not panic

        let payload = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| {
                    (0..100).for_each(|_| thread::yield_now());
                    ended.fetch_add(1, Relaxed)
                });
                resume_unwind(Box::new("the scope's own"))
            })
        }));
        assert_eq!(
            *payload.unwrap_err().downcast::<&str>().unwrap(),
            "the scope's own"
        );
        assert_eq!(ended.load(Relaxed), 2);
    });
}

#[test]
fn scoped_results_are_dropped_before_the_scope_ends() {
    struct Lent<'a>(&'a AtomicUsize);
    impl Drop for Lent<'_> {
        fn drop(&mut self) {
            (0..10).for_each(|_| thread::yield_now());
            self.0.fetch_add(1, Relaxed);
        }
    }
    let _w = watchdog("scope::scoped_results_are_dropped_before_the_scope_ends");
    both(|| {
        let drops = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..20 {
                s.spawn(|| Lent(&drops)); // handle dropped, result dropped by the thread or the packet
            }
            let handle = s.spawn(|| Lent(&drops));
            wait_until(|| handle.is_finished());
        });
        assert_eq!(drops.load(Relaxed), 21);
    });
}

#[test]
fn many_scopes_at_once() {
    let _w = watchdog("scope::many_scopes_at_once");
    let sums = Mutex::new(Vec::new());
    let job = |n: usize| {
        let mut parts = [0; 16];
        scope(|s| {
            parts
                .iter_mut()
                .enumerate()
                .for_each(|(i, p)| drop(s.spawn(move || *p = i * n)))
        });
        sums.lock().unwrap().push(parts.iter().sum::<usize>());
    };
    scope(|s| {
        for n in 0..50 {
            let job = &job;
            s.spawn(move || job(n));
        }
        std::thread::scope(|kernel| (50..60).for_each(|n| drop(kernel.spawn(move || job(n)))));
    });
    let mut sums = sums.into_inner().unwrap();
    sums.sort();
    assert!(sums.into_iter().eq((0..60).map(|n| n * 120)));
}

#[test]
fn joining_in_chains_and_trees() {
    fn tree(depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        let (left, right) = (
            thread::spawn(move || tree(depth - 1)),
            thread::spawn(move || tree(depth - 1)),
        );
        left.join().unwrap() + right.join().unwrap()
    }
    let _w = watchdog("scope::joining_in_chains_and_trees");
    both(|| {
        let mut last: JoinHandle<usize> = thread::spawn(|| 0);
        for _ in 0..1000 {
            last = thread::spawn(move || last.join().unwrap() + 1);
        }
        assert_eq!(last.join().unwrap(), 1000);
        assert_eq!(tree(9), 512);
        // Handles made on one kind of thread are joined on the other.
        let handles: Vec<_> = (0..100).map(|i| thread::spawn(move || i)).collect();
        let joiner = std::thread::spawn(|| {
            handles
                .into_iter()
                .map(|h| h.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(joiner.join().unwrap(), 4950);
        let kernel: Vec<_> = (0..10)
            .map(|i| std::thread::spawn(move || thread::spawn(move || i)))
            .collect();
        let handles: Vec<_> = kernel.into_iter().map(|k| k.join().unwrap()).collect();
        let joiner = thread::spawn(|| {
            handles
                .into_iter()
                .map(|h| h.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(joiner.join().unwrap(), 45);
    });
}

/// std lets a join that cannot end panic or wait for good. Either way the others go on, and `main`
/// can return.
#[test]
fn joining_in_cycles_stops_nobody_else() {
    const NAME: &str = "scope::joining_in_cycles_stops_nobody_else";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let started = Arc::new(AtomicUsize::new(0));
        let waiting = |started: Arc<AtomicUsize>| {
            let (send, receive) = mpsc::channel::<JoinHandle<()>>();
            let thread = thread::spawn(move || {
                let handle = receive.recv().unwrap();
                started.fetch_add(1, SeqCst);
                let _ = handle.join();
            });
            (send, thread)
        };
        let (send, thread) = waiting(started.clone());
        send.send(thread).unwrap(); // itself
        let ((to_a, a), (to_b, b)) = (waiting(started.clone()), waiting(started.clone()));
        to_a.send(b).unwrap();
        to_b.send(a).unwrap();
        wait_until(|| started.load(SeqCst) == 3);
        (0..200)
            .map(|_| thread::spawn(thread::yield_now))
            .for_each(|h| h.join().unwrap());
        return;
    }
    assert_code(&child(NAME, ""), 0);
}

#[test]
fn ten_thousand_parked_and_woken_from_kernel_threads() {
    const THREADS: usize = 10_000;
    let _w = watchdog("scope::ten_thousand_parked_and_woken_from_kernel_threads");
    let mut rng = Rng::new("scope::ten_thousand_parked_and_woken_from_kernel_threads");
    let parked = Arc::new(AtomicUsize::new(0));
    let flags: Arc<Vec<AtomicBool>> =
        Arc::new((0..THREADS).map(|_| AtomicBool::new(false)).collect());
    let sleeper = |i: usize| {
        let (parked, flags) = (parked.clone(), flags.clone());
        move || {
            parked.fetch_add(1, SeqCst);
            while !flags[i].load(Acquire) {
                thread::park();
            }
            i
        }
    };
    let spawn = |i| {
        Builder::new()
            .stack_size(64 << 10)
            .spawn(sleeper(i))
            .unwrap()
    };
    let handles: Vec<_> = (0..THREADS).map(spawn).collect();
    wait_until(|| parked.load(SeqCst) == THREADS);
    std::thread::scope(|kernel| {
        for quarter in 0..4 {
            let (handles, flags, mut rng) = (&handles, &flags, rng.fork());
            kernel.spawn(move || {
                let mut order: Vec<usize> = (quarter..THREADS).step_by(4).collect();
                for i in (1..order.len()).rev() {
                    order.swap(i, rng.below(i + 1));
                }
                for i in order {
                    handles[rng.below(THREADS)].thread().unpark(); // somebody, for nothing
                    flags[i].store(true, Release);
                    handles[i].thread().unpark();
                }
            });
        }
    });
    assert!(
        handles
            .into_iter()
            .map(|h| h.join().unwrap())
            .eq(0..THREADS)
    );
}
