//! The end of thread-locals: their destructors.

use super::*;
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Runs this when it is dropped.
struct Last(RefCell<Option<Box<dyn FnOnce()>>>);

impl Last {
    const fn none() -> Last {
        Last(RefCell::new(None))
    }
    fn does(&self, body: impl FnOnce() + 'static) {
        *self.0.borrow_mut() = Some(Box::new(body));
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(body) = self.0.take() {
            body();
        }
    }
}

thread_local!(static LAST: Last = const { Last::none() });

/// In the thread that runs: when its thread-locals end.
fn lastly(body: impl FnOnce() + 'static) {
    LAST.with(|last| last.does(body));
}

/// Counts its clones.
fn counter() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (count.clone(), count)
}

pub fn destructors_run_before_join_returns() {
    for _ in 0..100 {
        let (count, counted) = counter();
        let body = move || lastly(move || _ = counted.fetch_add(1, Relaxed));
        thread::spawn(body).join().unwrap();
        assert_eq!(count.load(Relaxed), 1);
    }
}

pub fn destructors_run_before_a_scoped_join_returns() {
    for _ in 0..100 {
        let (count, counted) = counter();
        thread::scope(|threads| {
            let handle = threads.spawn(move || lastly(move || _ = counted.fetch_add(1, Relaxed)));
            handle.join().unwrap();
            assert_eq!(count.load(Relaxed), 1);
        });
    }
}

pub fn destructors_run_after_the_closure() {
    struct Sends(Sender<u32>, u32);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(self.1).unwrap();
        }
    }
    let (sender, receiver) = channel();
    let captured = Sends(sender.clone(), 2);
    thread::spawn(move || {
        let _captured = captured;
        let (local, last) = (Sends(sender.clone(), 1), Sends(sender, 3));
        lastly(move || drop(last));
        drop(local);
    })
    .join()
    .unwrap();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
}

pub fn destructors_run_once_each() {
    static DROPPED: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
    struct Counts(usize);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED[self.0].fetch_add(1, Relaxed);
        }
    }
    thread_local! {
        static FIRST: Counts = const { Counts(0) };
        static SECOND: Counts = const { Counts(1) };
        static THIRD: Box<Counts> = Box::new(Counts(2));
        static FOURTH: RefCell<Vec<Counts>> = const { RefCell::new(Vec::new()) };
    }
    const COUNT: usize = 50;
    let before = DROPPED.each_ref().map(|count| count.load(Relaxed));
    let handles: Vec<_> = (0..COUNT)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..3 {
                    FIRST.with(|_| ());
                    SECOND.with(|_| ());
                    THIRD.with(|_| ());
                    FOURTH.with_borrow_mut(|counts| counts.push(Counts(3)));
                    thread::yield_now();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    let after = DROPPED.each_ref().map(|count| count.load(Relaxed));
    let by: Vec<_> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(by, [COUNT, COUNT, COUNT, 3 * COUNT]);
}

pub fn destructors_run_on_their_thread() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
        NUMBER.set(9);
        lastly(move || sender.send(NUMBER.get()).unwrap());
    });
    handle.join().unwrap();
    assert_eq!(receiver.recv(), Ok(9));
}

pub fn destructors_run_after_a_panic() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        lastly(move || sender.send(thread::panicking()).unwrap());
        panic!("on purpose");
    });
    assert_eq!(died(handle.join()), "on purpose");
    assert_eq!(receiver.recv(), Ok(false));
}

pub fn destructors_run_in_detached_threads() {
    let (sender, receiver) = channel();
    for i in 0..50 {
        let sender = sender.clone();
        thread::spawn(move || lastly(move || sender.send(i).unwrap()));
    }
    drop(sender);
    let mut all: Vec<_> = receiver.iter().collect();
    all.sort();
    assert!(all.into_iter().eq(0..50));
}

pub fn what_was_not_used_is_not_dropped() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Never;
    impl Drop for Never {
        fn drop(&mut self) {
            DROPPED.store(true, Relaxed);
        }
    }
    thread_local!(static NEVER: Never = const { Never });
    let body = || {
        if black_box(false) {
            NEVER.with(|_| ());
        }
    };
    thread::spawn(body).join().unwrap();
    assert!(!DROPPED.load(Relaxed));
}

pub fn one_that_is_gone_says_so() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        assert!(LAST.try_with(|_| ()).is_ok());
        lastly(move || {
            let is_gone = LAST.try_with(|_| ()).is_err();
            let panics = caught(|| LAST.with(|_| ())).is_err();
            sender.send((is_gone, panics)).unwrap();
        });
    });
    handle.join().unwrap();
    assert_eq!(receiver.recv(), Ok((true, true)));
}

/// Its own destructor runs, too.
pub fn one_may_begin_in_a_destructor() {
    struct Sends(OnceCell<Sender<&'static str>>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.get().unwrap().send("late").unwrap();
        }
    }
    thread_local!(static LATE: Sends = const { Sends(OnceCell::new()) });
    let (sender, receiver) = channel();
    thread::spawn(move || {
        lastly(move || {
            sender.send("last").unwrap();
            LATE.with(|late| late.0.set(sender).unwrap());
        });
    })
    .join()
    .unwrap();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["last", "late"]);
}

/// In no order that is promised: one of them is there still, or both use what is gone.
pub fn one_may_be_used_in_anothers_destructor() {
    struct Peeks(&'static str, OnceCell<Sender<(&'static str, bool)>>);
    thread_local! {
        static ONE: Peeks = const { Peeks("one", OnceCell::new()) };
        static OTHER: Peeks = const { Peeks("other", OnceCell::new()) };
    }
    impl Drop for Peeks {
        fn drop(&mut self) {
            let is_one = self.0 == "one";
            let other = if is_one { &OTHER } else { &ONE };
            let name = other.try_with(|other| other.0);
            assert!(name.is_err() || (name == Ok("other")) == is_one);
            let sender = self.1.get().unwrap();
            sender.send((self.0, name.is_ok())).unwrap();
        }
    }
    let (sender, receiver) = channel();
    thread::spawn(move || {
        ONE.with(|one| one.1.set(sender.clone()).unwrap());
        OTHER.with(|other| other.1.set(sender).unwrap());
    })
    .join()
    .unwrap();
    let mut said: Vec<_> = receiver.iter().collect();
    // Who went first saw the other one, who went second did not.
    assert!(said[0].1 && !said[1].1, "{said:?}");
    said.sort();
    assert_eq!((said[0].0, said[1].0), ("one", "other"));
}

pub fn one_without_a_destructor_is_never_gone() {
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(1) });
    let (sender, receiver) = channel();
    thread::spawn(move || {
        NUMBER.set(2);
        lastly(move || sender.send(NUMBER.try_with(Cell::get)).unwrap());
    })
    .join()
    .unwrap();
    assert!(receiver.recv().unwrap() == Ok(2));
}

pub fn a_destructor_knows_its_thread() {
    let (sender, receiver) = channel();
    let body = move || {
        lastly(move || {
            let this = thread::current();
            sender
                .send((this.id(), this.name().map(String::from)))
                .unwrap();
        });
    };
    let handle = thread::Builder::new().name("ends".into()).spawn(body);
    let handle = handle.unwrap();
    let id = handle.thread().id();
    handle.join().unwrap();
    assert_eq!(receiver.recv(), Ok((id, Some("ends".to_string()))));
}

pub fn a_destructor_may_wait() {
    let (go, gone): (Sender<()>, Receiver<()>) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let ends = ended.clone();
    let handle = thread::spawn(move || {
        lastly(move || {
            assert!(gone.recv().is_err());
            for _ in 0..20 {
                thread::yield_now();
            }
            ends.store(true, Relaxed);
        });
    });
    assert!(!ended.load(Relaxed));
    drop(go);
    handle.join().unwrap();
    assert!(ended.load(Relaxed));
}

pub fn a_destructor_may_start_threads() {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        lastly(move || {
            let nested = thread::spawn(|| {
                lastly(|| ());
                5
            });
            sender.send(nested.join().unwrap()).unwrap();
        });
    })
    .join()
    .unwrap();
    assert_eq!(receiver.recv(), Ok(5));
}

pub fn a_destructor_may_park() {
    let (sender, receiver) = channel();
    let go = Arc::new(AtomicBool::new(false));
    let waits = go.clone();
    let handle = thread::spawn(move || {
        lastly(move || {
            sender.send(thread::current()).unwrap();
            while !waits.load(Acquire) {
                thread::park();
            }
        });
    });
    let in_destructor = receiver.recv().unwrap();
    go.store(true, Release);
    in_destructor.unpark();
    handle.join().unwrap();
}

pub fn the_value_is_dropped_by_who_joins() {
    struct Sends(Sender<thread::ThreadId>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    let (sender, receiver) = channel();
    let value = thread::spawn(move || Sends(sender)).join().unwrap();
    assert!(receiver.try_recv().is_err());
    drop(value);
    assert_eq!(receiver.recv(), Ok(thread::current().id()));
}
