//! Ten threads, or all, wait for each other.

use greenthread::sync::{Barrier, OnceLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::{Kind, Measure, Taken};

/// How many threads share a lock.
const CROWD: usize = 10;

/// Ten threads share each thing. `turn` is given the thread's number and the round's.
fn crowds<T: Send + Sync + 'static>(
    pairs: usize,
    rounds: usize,
    shared: impl Fn() -> T,
    turn: fn(&T, usize, usize),
) -> Taken {
    // They begin together: the first must not be over before the last is there.
    let each = |_| Arc::new((shared(), Barrier::new(CROWD)));
    let all: Vec<_> = (0..2 * pairs / CROWD).map(each).collect();
    let start = Instant::now();
    let thread = |i: usize| {
        let shared = all[i / CROWD].clone();
        greenthread::spawn(move || {
            shared.1.wait();
            (0..rounds).for_each(|round| turn(&shared.0, i, round));
        })
    };
    let threads: Vec<_> = (0..all.len() * CROWD).map(thread).collect();
    let turns = threads.len() * rounds;
    threads.into_iter().for_each(|t| t.join().unwrap());
    Taken {
        turns,
        time: start.elapsed(),
    }
}

/// The thread that held a lock last.
#[derive(Default)]
struct Last(AtomicUsize);

impl Last {
    /// Holds a lock as thread `i`, for a turn. The thread gives way while it holds the lock, so that the others come and wait
    /// for it. It gives way again when it has let go, so that it does not overtake the one that it has woken. If that one
    /// does not come, its kernel thread does not run, or there is none.
    fn hold<G>(&self, i: usize, guard: G) {
        self.0.store(i, Relaxed);
        greenthread::yield_now();
        drop(guard);
        for _ in 0..100 {
            greenthread::yield_now();
            if self.0.load(Relaxed) != i {
                return;
            }
        }
    }
}

/// The yields of such turns, without a lock.
fn yields(pairs: usize, rounds: usize) -> Taken {
    crowds(pairs, rounds, Last::default, |last, i, _| last.hold(i, ()))
}

/// A mutex that is always held.
macro_rules! mutex {
    ($Mutex:path $(, $unwrap:ident)?) => {
        |pairs, rounds| {
            type Shared = ($Mutex, Last);
            let turn = |(mutex, last): &Shared, i, _| last.hold(i, mutex.lock()$(.$unwrap())?);
            crowds(pairs, rounds, Shared::default, turn)
        }
    };
}

/// Writers wait for readers, and readers for writers. A turn in ten is a reader's: if half of them were, the
/// readers would come together, and few would wait.
macro_rules! rwlock {
    ($RwLock:path $(, $unwrap:ident)?) => {
        |pairs, rounds| {
            type Shared = ($RwLock, Last);
            let turn = |(lock, last): &Shared, i: usize, round: usize| match (i + round) % CROWD {
                0 => last.hold(i, lock.read()$(.$unwrap())?),
                _ => last.hold(i, lock.write()$(.$unwrap())?),
            };
            crowds(pairs, rounds, Shared::default, turn)
        }
    };
}

/// The first of ten threads begins something, and waits in it until the others have come.
macro_rules! once {
    ($Once:path, $call:ident) => {
        |pairs, rounds| {
            type Each = ($Once, AtomicUsize, OnceLock<()>);
            let rounds = (rounds / 10).max(20);
            let shared = || -> Vec<Each> {
                let each = |_| (<$Once>::new(), AtomicUsize::new(0), OnceLock::new());
                (0..rounds).map(each).collect()
            };
            let turn = |all: &Vec<Each>, _, round: usize| {
                let (once, come, all_are_here) = &all[round];
                if come.fetch_add(1, Relaxed) == CROWD - 1 {
                    all_are_here.set(()).unwrap();
                }
                once.$call(|| *all_are_here.wait());
            };
            crowds(pairs, rounds, shared, turn)
        }
    };
}

/// A barrier for all.
macro_rules! barrier {
    ($Barrier:path) => {
        |pairs: usize, rounds: usize| {
            let barrier = Arc::new(<$Barrier>::new(2 * pairs));
            let rounds = (rounds / 10).max(20);
            let start = Instant::now();
            let threads: Vec<_> = (0..2 * pairs)
                .map(|_| {
                    let barrier = barrier.clone();
                    greenthread::spawn(move || {
                        for _ in 0..rounds {
                            barrier.wait();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            Taken {
                turns: 2 * pairs * rounds,
                time: start.elapsed(),
            }
        }
    };
}

pub fn kinds() -> Vec<Kind> {
    use greenthread::sync as our_sync;
    let own_mutex: Measure = mutex!(our_sync::Mutex<()>, unwrap);
    let own_rwlock: Measure = rwlock!(our_sync::RwLock<()>, unwrap);
    vec![
        Kind::new(
            "std's mutex",
            mutex!(std::sync::Mutex<()>, unwrap),
            own_mutex,
        )
        .without(yields, 2.0),
        Kind::new(
            "parking_lot's mutex",
            mutex!(parking_lot::Mutex<()>),
            own_mutex,
        )
        .without(yields, 2.0),
        Kind::new(
            "std's rwlock",
            rwlock!(std::sync::RwLock<()>, unwrap),
            own_rwlock,
        )
        .without(yields, 2.0),
        Kind::new(
            "parking_lot's rwlock",
            rwlock!(parking_lot::RwLock<()>),
            own_rwlock,
        )
        .without(yields, 2.0),
        Kind::new(
            "std's once",
            once!(std::sync::Once, call_once),
            once!(our_sync::Once, call_once),
        ),
        Kind::new(
            "std's once lock",
            once!(std::sync::OnceLock<()>, get_or_init),
            once!(our_sync::OnceLock<()>, get_or_init),
        ),
        Kind::new(
            "std's barrier",
            barrier!(std::sync::Barrier),
            barrier!(our_sync::Barrier),
        ),
    ]
}
