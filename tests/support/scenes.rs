//! Scenes: small programs over the public API, each of which knows what must come out.
//!
//! A scene runs on a green thread or on a kernel thread, beside others; it spawns what it needs with
//! `greenthread::spawn`, waits for all of it, and panics if the books do not balance. It takes some
//! milliseconds, and chooses by its random numbers only, so that a seed repeats what was done.

use crate::support::Rng;
#[path = "scenes_io.rs"]
mod io;

use crate::support::ledger::Ledger;
use crate::support::storm::burn;
use greenthread::channel::{self, Receiver, RecvTimeoutError, SendTimeoutError, Sender};
use greenthread::coroutine::Coroutine;
use greenthread::dataflow::{Value, call, value};
use greenthread::runtime::Runtime;
use greenthread::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore};
use greenthread::{JoinHandle, Thread, select, spawn};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub type Scene = fn(&mut Rng);

pub const SCENES: [(&str, Scene); 16] = [
    ("tree", tree),
    ("ring of parked threads", ring),
    ("channels", channels),
    ("timers", timers),
    ("sockets", io::sockets),
    ("files", io::files),
    ("blocking", io::blocking),
    ("hogs", hogs),
    ("coroutines", coroutines),
    ("locks", locks),
    ("panics", panics),
    ("processes", io::processes),
    ("dataflow", dataflow),
    ("thread-locals", thread_locals),
    ("scopes", scopes),
    ("runtimes", runtimes),
];

fn all<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    let join = |thread: JoinHandle<T>| thread.join().unwrap_or_else(|e| resume_unwind(e));
    threads.into_iter().map(join).collect()
}

fn start<T: Send + 'static>(
    count: u64,
    rng: &mut Rng,
    body: impl Fn(u64, Rng) -> T + Clone + Send + 'static,
) -> Vec<JoinHandle<T>> {
    let one = |index| {
        let (body, rng) = (body.clone(), Rng::new(rng.next()));
        spawn(move || body(index, rng))
    };
    (0..count).map(one).collect()
}

/// What no compiler foresees.
fn work(seed: u64, rounds: u64) -> u64 {
    let mut rng = Rng::new(seed);
    (0..rounds).fold(seed, |sum, _| sum.rotate_left(5) ^ rng.next())
}

fn dawdle(rng: &mut Rng) {
    match rng.below(20) {
        0..5 => greenthread::yield_now(),
        5 => greenthread::sleep(rng.micros_below(300)),
        6 => burn(rng.micros_below(300)),
        _ => {}
    }
}

/// Threads that spawn threads, and sum up what those found.
fn tree(rng: &mut Rng) {
    fn leaves(depth: u64, seed: u64) -> u64 {
        if depth == 0 {
            return work(seed, seed % 200);
        }
        let branch = |n| spawn(move || leaves(depth - 1, seed.wrapping_mul(3) + n));
        let branches = (0..3).map(branch).collect();
        all(branches).into_iter().fold(0, u64::wrapping_add)
    }
    fn expected(depth: u64, seed: u64) -> u64 {
        match depth {
            0 => work(seed, seed % 200),
            _ => (0..3).fold(0, |sum, n| {
                sum.wrapping_add(expected(depth - 1, seed.wrapping_mul(3) + n))
            }),
        }
    }
    let (depth, seed) = (1 + rng.below(5), rng.next() >> 1);
    assert_eq!(leaves(depth, seed), expected(depth, seed));
}

/// A turn goes round; who has it not parks.
fn ring(rng: &mut Rng) {
    let (members, rounds) = (2 + rng.below(12), 1 + rng.below(40));
    let threads: Arc<Vec<OnceLock<Thread>>> =
        Arc::new((0..members).map(|_| OnceLock::new()).collect());
    let all_here = Arc::new(Barrier::new(members as usize));
    let turn = Arc::new(AtomicU64::new(0));
    let his = turn.clone();
    let ring = start(members, rng, move |me, mut rng| {
        threads[me as usize].set(greenthread::current()).unwrap();
        all_here.wait();
        for round in 0..rounds {
            let mine = round * members + me;
            while his.load(Acquire) != mine {
                match rng.below(3) {
                    0 => greenthread::park_timeout(rng.micros_below(2_000)),
                    _ => greenthread::park(),
                }
            }
            his.store(mine + 1, Release);
            let next = threads[((me + 1) % members) as usize].get();
            next.expect("all are here").unpark();
        }
    });
    all(ring);
    assert_eq!(turn.load(Acquire), members * rounds);
}

/// Senders and receivers at one channel, in every way of waiting.
fn channels(rng: &mut Rng) {
    let (s, r) = match rng.below(4) {
        0 => channel::bounded(0),
        1 => channel::bounded(1),
        2 => channel::bounded(1 + rng.below(9) as usize),
        _ => channel::unbounded(),
    };
    let (ledger, each) = (Ledger::new(), 20 + rng.below(200));
    let (books, (senders, receivers)) = (ledger.clone(), (1 + rng.below(4), 1 + rng.below(4)));
    let senders = start(senders, rng, move |me, mut rng| {
        let s: Sender<_> = s.clone();
        for _ in 0..each {
            dawdle(&mut rng);
            let mut message = books.message(me as usize);
            while let Err(back) = match rng.below(3) {
                0 => s.send_timeout(message, rng.micros_below(500)),
                _ => s
                    .send(message)
                    .map_err(|e| SendTimeoutError::Disconnected(e.0)),
            } {
                assert!(back.is_timeout(), "the receivers are gone");
                message = back.into_inner();
            }
            books.sent(me as usize);
        }
    });
    let books = ledger.clone();
    let receivers = start(receivers, rng, move |_, mut rng| {
        let r: Receiver<_> = r.clone();
        let mut last = Ledger::last();
        loop {
            dawdle(&mut rng);
            let got = match rng.below(3) {
                0 => r.recv_timeout(rng.micros_below(500)),
                1 => r.recv().map_err(|_| RecvTimeoutError::Disconnected),
                _ => select! {
                    recv(r) -> got => got.map_err(|_| RecvTimeoutError::Disconnected),
                    recv(channel::never::<()>()) -> _ => panic!("never"),
                    recv(channel::after(rng.micros_below(800))) -> _ => Err(RecvTimeoutError::Timeout),
                },
            };
            match got {
                Ok(message) => books.received(message, &mut last),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    let count = senders.len() as u64;
    all(senders);
    all(receivers);
    assert_eq!(ledger.balance(), count * each);
    ledger.close();
}

/// Nobody wakes early, and everybody wakes.
fn timers(rng: &mut Rng) {
    let count = 1 + rng.below(30);
    let sleepers = start(count, rng, |_, mut rng| {
        for _ in 0..1 + rng.below(6) {
            let (begin, time) = (Instant::now(), rng.micros_below(3_000));
            match rng.below(3) {
                0 => greenthread::sleep(time),
                1 => greenthread::sleep_until(begin + time),
                _ => assert!(channel::never::<()>().recv_timeout(time).is_err()),
            }
            assert!(begin.elapsed() >= time, "woken early");
        }
    });
    all(sleepers);
}

/// Threads that compute for longer than any time slice, some beside their kernel thread alone.
fn hogs(rng: &mut Rng) {
    let count = 1 + rng.below(4);
    let hogs = start(count, rng, |_, mut rng| {
        let locked = (rng.below(4) == 0).then(greenthread::lock_kernel_thread);
        let (seed, rounds) = (rng.next(), rng.below(4_000_000));
        let one = work(seed, rounds);
        drop(locked);
        (seed, rounds, one)
    });
    for (seed, rounds, found) in all(hogs) {
        assert_eq!(work(seed, rounds), found);
    }
}

/// Coroutines that several threads resume in turn, and some that are dropped half way.
fn coroutines(rng: &mut Rng) {
    let count = 1 + rng.below(4);
    let alive = Arc::new(());
    let on_stacks = alive.clone();
    let users = start(count, rng, move |_, mut rng| {
        let (length, stop) = (1 + rng.below(100), rng.below(150));
        let on_stack = on_stacks.clone();
        let mut numbers = Coroutine::new(move |yielder, ()| {
            let _on_stack = on_stack;
            (0..length).for_each(|n| yielder.suspend(n));
        });
        for expected in 0..stop {
            let found;
            (numbers, found) = match rng.below(8) {
                0 => all(vec![spawn(move || {
                    let found = numbers.next();
                    (numbers, found)
                })])
                .remove(0),
                _ => {
                    let found = numbers.next();
                    (numbers, found)
                }
            };
            assert_eq!(found, (expected < length).then_some(expected));
            if found.is_none() {
                break;
            }
        }
    });
    all(users);
    assert_eq!(Arc::strong_count(&alive), 1, "a stack was not unwound");
}

/// A lock of each kind, and what must hold under it.
fn locks(rng: &mut Rng) {
    const PERMITS: u64 = 2;
    #[derive(Default)]
    struct Books {
        pair: Mutex<(u64, u64)>,
        read: RwLock<(u64, u64)>,
        inside: AtomicU64,
        turn: Mutex<u64>,
        turned: Condvar,
    }
    let (books, permits) = (
        Arc::new(Books::default()),
        Arc::new(Semaphore::new(PERMITS as usize)),
    );
    let (members, rounds) = (2 + rng.below(8), 1 + rng.below(30));
    let barrier = Arc::new(Barrier::new(members as usize));
    let his = books.clone();
    let threads = start(members, rng, move |me, mut rng| {
        let mut leads = 0;
        for round in 0..rounds {
            leads += u64::from(barrier.wait().is_leader());
            {
                let mut pair = his.pair.lock().unwrap();
                pair.0 += 1;
                dawdle(&mut rng);
                pair.1 += 1;
            }
            if rng.below(3) == 0 {
                let mut pair = his.read.write().unwrap();
                pair.0 += 1;
                dawdle(&mut rng);
                pair.1 += 1;
            } else {
                let pair = his.read.read().unwrap();
                assert_eq!(pair.0, pair.1);
            }
            let permit = permits.acquire();
            assert!(his.inside.fetch_add(1, SeqCst) < PERMITS, "too many inside");
            dawdle(&mut rng);
            his.inside.fetch_sub(1, SeqCst);
            drop(permit);
            let mine = round * members + me;
            let turn = his.turn.lock().unwrap();
            *his.turned.wait_while(turn, |turn| *turn != mine).unwrap() += 1;
            his.turned.notify_all();
        }
        leads
    });
    assert_eq!(all(threads).into_iter().sum::<u64>(), rounds);
    assert_eq!(
        *books.pair.lock().unwrap(),
        (members * rounds, members * rounds)
    );
    assert_eq!(*books.turn.lock().unwrap(), members * rounds);
}

/// Who joins gets the panic, and the lock that was held is poisoned.
fn panics(rng: &mut Rng) {
    for _ in 0..1 + rng.below(20) {
        let (number, lock) = (rng.next(), Arc::new(Mutex::new(())));
        let held = lock.clone();
        let thread = spawn(move || {
            let _held = held.lock().unwrap();
            // Without the hook, which would print.
            resume_unwind(Box::new(number));
        });
        let payload = thread.join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&number));
        assert!(lock.is_poisoned());
    }
}

/// Layers of sums, each over two of the layer below.
fn dataflow(rng: &mut Rng) {
    let width = 1 + rng.below(8) as usize;
    let mut expected: Vec<u64> = (0..width).map(|_| rng.next() >> 8).collect();
    let mut layer: Vec<Value<u64>> = expected.iter().map(|&n| value(n)).collect();
    for _ in 0..rng.below(12) {
        let below = |n: usize| (n, (n + 1) % width);
        layer = (0..width)
            .map(below)
            .map(|(a, b)| {
                call((&layer[a], &layer[b]), |(a, b)| {
                    work(a.wrapping_add(*b), 10)
                })
            })
            .collect();
        expected = (0..width)
            .map(below)
            .map(|(a, b)| work(expected[a].wrapping_add(expected[b]), 10))
            .collect();
    }
    for (value, expected) in layer.iter().zip(&expected) {
        assert_eq!(value.get(), Ok(expected));
    }
}

/// Each thread has its own, which is destroyed with it.
fn thread_locals(rng: &mut Rng) {
    struct Local(Cell<u64>, Cell<Option<Arc<AtomicU64>>>);
    impl Drop for Local {
        fn drop(&mut self) {
            let ended = self.1.take().expect("the thread has said where to count");
            ended.fetch_add(self.0.get(), SeqCst);
        }
    }
    thread_local!(static LOCAL: Local = const { Local(Cell::new(0), Cell::new(None)) });
    let (count, steps, ended) = (
        1 + rng.below(20),
        rng.below(50),
        Arc::new(AtomicU64::new(0)),
    );
    let ends = ended.clone();
    let threads = start(count, rng, move |_, mut rng| {
        LOCAL.with(|local| local.1.set(Some(ends.clone())));
        for step in 0..steps {
            LOCAL.with(|local| assert_eq!(local.0.replace(step + 1), step));
            dawdle(&mut rng);
        }
    });
    all(threads);
    assert_eq!(ended.load(SeqCst), count * steps);
}

/// Threads that borrow.
fn scopes(rng: &mut Rng) {
    let numbers: Vec<u64> = (0..1 + rng.below(2_000))
        .map(|_| rng.next() >> 16)
        .collect();
    let parts = 1 + rng.below(9) as usize;
    let sum: u64 = greenthread::scope(|scope| {
        let part = |part| scope.spawn(move || <[u64]>::iter(part).sum::<u64>());
        let parts: Vec<_> = numbers
            .chunks(numbers.len().div_ceil(parts))
            .map(part)
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    assert_eq!(sum, numbers.iter().sum());
}

/// A runtime that is resized and shut down while its threads still run.
fn runtimes(rng: &mut Rng) {
    const POLICIES: [&str; 5] = [
        "work-stealing",
        "relaxed-fifo",
        "least-loaded",
        "priority",
        "global-queue",
    ];
    let runtime = Runtime::builder()
        .processors(1 + rng.below(4) as usize)
        .policy_named(POLICIES[rng.below(5) as usize])
        .build()
        .unwrap();
    let (count, ended) = (rng.below(60), Arc::new(AtomicU64::new(0)));
    for _ in 0..count {
        let (ended, mut rng) = (ended.clone(), Rng::new(rng.next()));
        runtime.spawn(move || {
            greenthread::park_timeout(rng.micros_below(2_000));
            dawdle(&mut rng);
            ended.fetch_add(1, SeqCst);
        });
    }
    for _ in 0..rng.below(4) {
        runtime.set_processors(1 + rng.below(4) as usize).unwrap();
    }
    runtime.shutdown();
    assert_eq!(ended.load(SeqCst), count);
}
