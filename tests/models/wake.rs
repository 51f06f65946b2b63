//! Models of the wake word: workers that sleep, on the futex or collecting events, somebody who
//! has chosen one, hands it something and wakes it, and somebody who pokes it.
//!
//! Who is never woken is a deadlock. The futex and the bell carry nothing here: what is handed over
//! is seen by way of the word, or it is a race.

use std::sync::Arc;

use loom::thread;

use crate::atomic::Ordering::{AcqRel, Relaxed};
use crate::atomic::{AtomicBool, Cell};
use crate::sched::events::{self, Turn};
use crate::sched::idle::Parker;
use crate::wait::{Outcome, Waiter, wait_reason};

#[derive(Clone, Copy, PartialEq)]
enum By {
    Futex,
    /// By collecting events, if nobody else does.
    Events,
}

struct Worker {
    word: Parker,
    /// It is in the list that wakers choose from.
    listed: AtomicBool,
    handed: Cell<u32>,
}

impl Worker {
    fn new() -> Arc<Worker> {
        Arc::new(Worker {
            word: Parker::default(),
            listed: AtomicBool::new(true),
            handed: Cell::new(0),
        })
    }

    fn hand(&self, what: u32) {
        self.handed.set(what);
        self.word.wake();
    }

    fn turn(&self) -> Option<Turn> {
        events::turn()
    }

    fn sleep(&self, by: By, deadline: Option<u64>) -> bool {
        let turn = (by == By::Events).then(|| self.turn()).flatten();
        match turn {
            Some(turn) => self.word.sleep_collecting(&turn, deadline).0,
            None => self.word.sleep(deadline),
        }
    }

    fn until_woken(&self, by: By) -> u32 {
        while !self.sleep(by, None) {}
        self.handed.get()
    }

    /// Who takes it out of the list.
    fn choose(&self) -> bool {
        self.listed.swap(false, AcqRel)
    }
}

fn woken(by: By, bound: Option<usize>) {
    crate::check(bound, move || {
        events::begin();
        let worker = Worker::new();
        let sleeper = thread::spawn({
            let worker = worker.clone();
            move || assert_eq!(worker.until_woken(by), 1, "lost or doubled")
        });
        let poker = thread::spawn({
            let worker = worker.clone();
            move || {
                worker.word.poke();
                worker.word.poke();
            }
        });
        worker.hand(1);
        sleeper.join().unwrap();
        poker.join().unwrap();
    });
}

/// It is woken while it is poked twice. Full exploration.
pub(crate) fn woken_on_the_futex() {
    woken(By::Futex, None);
}

/// The same, collecting. Full exploration.
pub(crate) fn woken_from_collecting() {
    woken(By::Events, None);
}

/// A poke alone ends a sleep. Full exploration.
pub(crate) fn poked() {
    crate::check(None, || {
        let worker = Worker::new();
        let sleeper = thread::spawn({
            let worker = worker.clone();
            move || assert!(!worker.sleep(By::Futex, None))
        });
        worker.word.poke();
        sleeper.join().unwrap();
    });
}

/// It sleeps again, the other way, while all that ended the first sleep may be late; a poker is
/// beside. At most 4 preemptions.
pub(crate) fn woken_twice() {
    for [first, second] in [[By::Futex, By::Events], [By::Events, By::Futex]] {
        crate::check(Some(4), move || {
            events::begin();
            let worker = Worker::new();
            let again = Arc::new(Waiter::new());
            let sleeper = thread::spawn({
                let (worker, again) = (worker.clone(), again.clone());
                move || {
                    assert_eq!(worker.until_woken(first), 1, "lost or doubled");
                    // The list that it is chosen from.
                    // SAFETY: the model keeps it.
                    unsafe { Waiter::wake_at(&*again) };
                    drop(again);
                    assert_eq!(worker.until_woken(second), 2, "lost or doubled");
                }
            });
            let waker = thread::spawn({
                let worker = worker.clone();
                move || {
                    worker.hand(1);
                    assert_eq!(again.wait(wait_reason(), None), Outcome::Notified);
                    worker.hand(2);
                }
            });
            worker.word.poke();
            sleeper.join().unwrap();
            waker.join().unwrap();
        });
    }
}

/// Its time is up: it goes, unless somebody has chosen it already. Full exploration.
pub(crate) fn gives_up_sleeping() {
    for by in [By::Futex, By::Events] {
        crate::check(None, move || {
            events::begin();
            let worker = Worker::new();
            let sleeper = thread::spawn({
                let worker = worker.clone();
                move || match worker.sleep(by, Some(0)) {
                    false if worker.choose() => 0,
                    false => worker.until_woken(by),
                    true => worker.handed.get(),
                }
            });
            let given = match worker.choose() {
                true => {
                    worker.hand(1);
                    1
                }
                false => 0,
            };
            assert_eq!(sleeper.join().unwrap(), given, "lost or doubled");
            assert!(!worker.listed.load(Relaxed));
        });
    }
}

/// Two workers, of which one at a time can collect, are both woken: each ring reaches whom it is
/// for. At most 5 preemptions.
pub(crate) fn one_collects() {
    crate::check(Some(5), || {
        events::begin();
        let workers = [Worker::new(), Worker::new()];
        let sleepers = workers.clone().map(|worker| {
            thread::spawn(move || assert_eq!(worker.until_woken(By::Events), 1, "lost or doubled"))
        });
        for worker in workers {
            worker.hand(1);
        }
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}
