//! Coroutines: taking turns, and all the ways to end.
//!
//! The idea: as in `thread.rs`, each thing is asked from a kernel thread and from a green one.
//! `coroutine_threads.rs` has what makes them threads, `stress/coroutine.rs` the storm.

use crate::common::*;
use greenthread as thread;
use greenthread::coroutine::{
    Coroutine,
    CoroutineResult::{Return, Yield},
    Yielder,
};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Notes in a list when it is dropped.
struct Noted(&'static str, Arc<Mutex<Vec<String>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        let panicking = if thread::panicking() {
            " panicking"
        } else {
            ""
        };
        self.1
            .lock()
            .unwrap()
            .push(format!("{}{panicking}", self.0));
    }
}

fn log() -> Arc<Mutex<Vec<String>>> {
    Arc::new(Mutex::new(Vec::new()))
}

/// What `f` panics with.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_string(),
    }
}

const IGNORED: &str = "suspended itself when it was dropped";
const ENDED: &str = "resumed after it had ended";

/// The generator of the seed: yields the numbers from `begin` to `end`, keeps what it is sent.
fn count(begin: u32, end: u32) -> Coroutine<Option<String>, u32, (String, Vec<String>)> {
    Coroutine::new(move |yielder, _| {
        let mut received = Vec::new();
        for index in begin..end {
            received.extend(yielder.suspend(index));
        }
        (format!("final result is {end}"), received)
    })
}

#[test]
fn values_go_in_and_out() {
    let _w = watchdog("coroutine::values_go_in_and_out");
    both(|| {
        let mut counter = count(0, 3);
        assert_eq!(counter.resume(Some("dropped".into())), Yield(0));
        assert_eq!(counter.resume(Some("a".into())), Yield(1));
        assert_eq!(counter.resume(None).as_yield(), Some(2));
        assert!(!counter.is_done());
        let (text, received) = counter.resume(Some("b".into())).as_return().unwrap();
        assert_eq!(
            (text.as_str(), received),
            ("final result is 3", vec!["a".into(), "b".into()])
        );
        assert!(counter.is_done());
        assert!(panic_of(|| counter.resume(None)).contains(ENDED));
        let mut at_once = Coroutine::new(|_: &Yielder<u8, ()>, n| n + 1);
        assert_eq!(at_once.resume(1), Return(2));
        let big = [7u64; 512];
        let mut echo = Coroutine::new(|yielder, mut value: [u64; 512]| {
            while value[0] != 0 {
                value = yielder.suspend(value);
            }
        });
        assert_eq!(echo.resume(big), Yield(big));
        assert_eq!(echo.resume([0; 512]), Return(()));
    });
}

#[test]
fn a_coroutine_without_input_is_an_iterator() {
    let _w = watchdog("coroutine::a_coroutine_without_input_is_an_iterator");
    both(|| {
        let numbers = Coroutine::new(|yielder, ()| (0..1 << 20).for_each(|n| yielder.suspend(n)));
        assert!(numbers.skip(1).step_by(2).take(3).eq([1, 3, 5]));
        let mut three = Coroutine::new(|yielder, ()| {
            (0..3).for_each(|n| yielder.suspend(n));
            "dropped"
        });
        assert_eq!(three.by_ref().sum::<i32>(), 3);
        assert!(three.is_done() && three.next().is_none() && three.next().is_none());
    });
}

#[test]
fn it_is_lazy() {
    let _w = watchdog("coroutine::it_is_lazy");
    both(|| {
        let log = log();
        let noted = Noted("closure", log.clone());
        let unborn = Coroutine::new(move |_: &Yielder<(), ()>, ()| {
            let _noted = noted;
            unreachable!("nobody resumes it");
        });
        assert!(!unborn.is_done() && log.lock().unwrap().is_empty());
        assert_eq!(format!("{unborn:?}"), "Coroutine { stage: new, .. }");
        drop(unborn);
        assert_eq!(*log.lock().unwrap(), ["closure"]);
    });
}

#[test]
fn a_panic_reaches_who_resumes() {
    let _w = watchdog("coroutine::a_panic_reaches_who_resumes");
    both(|| {
        for before in 0..2 {
            let log = log();
            let noted = Noted("closure", log.clone());
            let mut faulty = Coroutine::new(move |yielder: &Yielder<(), u8>, ()| {
                let _noted = &noted;
                (0..before).for_each(|n| yielder.suspend(n));
                panic_any(6 * 7);
            });
            (0..before).for_each(|n| assert_eq!(faulty.resume(()), Yield(n)));
            let payload = catch_unwind(AssertUnwindSafe(|| faulty.resume(()))).unwrap_err();
            assert_eq!(payload.downcast_ref(), Some(&42));
            assert_eq!(*log.lock().unwrap(), ["closure panicking"]);
            assert!(faulty.is_done() && faulty.next().is_none() && !thread::panicking());
            assert!(panic_of(|| faulty.resume(())).contains(ENDED));
        }
    });
}

#[test]
fn dropping_a_suspended_one_unwinds_it() {
    const NAME: &str = "coroutine::dropping_a_suspended_one_unwinds_it";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        both(|| {
            let log = log();
            let (first, second) = (Noted("first", log.clone()), Noted("second", log.clone()));
            let mut one = Coroutine::new(move |yielder: &Yielder<(), thread::ThreadId>, ()| {
                struct OnThisThread(thread::ThreadId);
                impl Drop for OnThisThread {
                    fn drop(&mut self) {
                        assert_eq!(thread::current().id(), self.0);
                        thread::yield_now(); // it may do what it likes
                        thread::sleep(Duration::from_micros(10));
                        thread::spawn(|| ()).join().unwrap();
                    }
                }
                let (_first, _here) = (first, OnThisThread(thread::current().id()));
                let _second = second;
                yielder.suspend(thread::current().id());
                unreachable!("nobody resumes it again");
            });
            assert_ne!(one.resume(()), Yield(thread::current().id()));
            drop(one);
            let expected = ["second panicking", "first panicking"];
            assert_eq!(*log.lock().unwrap(), expected);
            assert!(!thread::panicking());
        });
        return;
    }
    let out = child(NAME, "silently");
    assert_code(&out, 0);
    assert!(
        out.stderr.is_empty(),
        "a drop was reported as a panic: {}",
        said(&out)
    );
}

#[test]
fn a_body_may_catch_the_unwinding_and_end() {
    let _w = watchdog("coroutine::a_body_may_catch_the_unwinding_and_end");
    both(|| {
        let catching = |then: fn(&Yielder<(), u8>)| {
            let mut one = Coroutine::new(move |yielder, ()| {
                catch_unwind(AssertUnwindSafe(|| yielder.suspend(1))).unwrap_err();
                then(yielder);
            });
            assert_eq!(one.resume(()), Yield(1));
            one
        };
        drop(catching(|_| ()));
        assert_eq!(
            panic_of(|| drop(catching(|_| panic!("instead")))),
            "instead"
        );
        let again = |yielder: &Yielder<(), u8>| yielder.suspend(2);
        assert!(panic_of(|| drop(catching(again))).contains(IGNORED));
        // While the dropping thread panics by itself, its panic is the one that counts.
        for then in [again, |_: &Yielder<(), u8>| panic!("instead")] {
            let own = panic_of(|| {
                let _dropped = catching(then);
                panic!("its own");
            });
            assert_eq!(own, "its own");
        }
    });
}

/// Suspends when it is dropped.
struct Suspends<'a>(&'a Yielder<(), u8>, u8);

impl Drop for Suspends<'_> {
    fn drop(&mut self) {
        self.0.suspend(self.1);
    }
}

#[test]
fn destructors_that_suspend() {
    let _w = watchdog("coroutine::destructors_that_suspend");
    both(|| {
        let make = |ends: fn()| {
            Coroutine::new(move |yielder, ()| {
                let _last = Suspends(yielder, 2);
                yielder.suspend(1);
                ends();
            })
        };
        // At the end of the scope, and in a panic, which goes on when it is resumed.
        let mut plain = make(|| ());
        assert_eq!(plain.by_ref().collect::<Vec<_>>(), [1, 2]);
        let mut faulty = make(|| panic!("faulty"));
        assert_eq!((faulty.next(), faulty.next()), (Some(1), Some(2)));
        assert_eq!(panic_of(|| faulty.next()), "faulty");
        let dropped = |ends, resumed| {
            let mut one = make(ends);
            assert_eq!(one.by_ref().take(resumed).count(), resumed);
            catch_unwind(AssertUnwindSafe(|| drop(one)))
        };
        assert!(
            dropped(|| (), 2).is_ok(),
            "no panic was there: it could unwind"
        );
        // Told to unwind, it suspends; suspended in a panic, it cannot unwind.
        for failed in [dropped(|| (), 1), dropped(|| panic!("faulty"), 2)] {
            let text = failed.unwrap_err().downcast::<&str>().expect("a text");
            assert!(text.contains(IGNORED));
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_destructor_that_panics_in_the_unwinding_aborts() {
    const NAME: &str = "coroutine::a_destructor_that_panics_in_the_unwinding_aborts";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("in a destructor");
            }
        }
        let mut one = Coroutine::new(|yielder: &Yielder<(), ()>, ()| {
            let _panics = Panics;
            yielder.suspend(());
        });
        one.next();
        drop(one);
        return;
    }
    assert_signal(&child(NAME, "aborts"), libc::SIGABRT);
}

#[test]
fn forgetting_leaks_and_nothing_else() {
    let _w = watchdog("coroutine::forgetting_leaks_and_nothing_else");
    both(|| {
        let log = log();
        let noted = Noted("closure", log.clone());
        let mut one = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            let _noted = noted;
            yielder.suspend(());
        });
        one.next();
        std::mem::forget(one);
        thread::sleep(Duration::from_millis(1));
        assert!(log.lock().unwrap().is_empty());
    });
}

#[derive(Default)]
struct Tree(Option<Box<(Tree, u64, Tree)>>);

impl Tree {
    fn balanced(from: u64, to: u64) -> Tree {
        let middle = from.midpoint(to);
        Tree((from < to).then(|| {
            let (left, right) = (Tree::balanced(from, middle), Tree::balanced(middle + 1, to));
            Box::new((left, middle, right))
        }))
    }

    /// A coroutine for each node, which resumes those of its children.
    fn walk(self) -> Coroutine<(), u64, u64> {
        Coroutine::new(|yielder, ()| {
            let Some(node) = self.0 else { return 0 };
            let (left, value, right) = *node;
            let forward = |mut child: Coroutine<(), u64, u64>| loop {
                match child.resume(()) {
                    Yield(value) => yielder.suspend(value),
                    Return(count) => break count,
                }
            };
            let before = forward(left.walk());
            yielder.suspend(value);
            before + 1 + forward(right.walk())
        })
    }
}

#[test]
fn coroutines_resume_coroutines() {
    let _w = watchdog("coroutine::coroutines_resume_coroutines");
    both(|| {
        let mut walk = Tree::balanced(0, 50).walk();
        (0..50).for_each(|n| assert_eq!(walk.resume(()), Yield(n)));
        assert_eq!(walk.resume(()), Return(50));
        // Dropped in the middle: each unwinds and drops those below it. And a panic goes up.
        assert_eq!(Tree::balanced(0, 50).walk().take(20).count(), 20);
        fn deep(depth: u32) -> Coroutine<(), u32, ()> {
            Coroutine::new(move |yielder, ()| {
                match depth {
                    0 => panic!("at the bottom"),
                    _ => deep(depth - 1).for_each(|n| yielder.suspend(n)),
                };
            })
        }
        assert_eq!(panic_of(|| deep(20).next()), "at the bottom");
    });
}
