//! The work on may, with its default stacks (32 KiB) and pool. Its API is nearly std's, but its
//! `spawn` is unsafe: a coroutine must not touch thread-locals across a switch. All its channels
//! are unbounded, so its senders never wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use may::coroutine::{self, JoinHandle};
use may::sync::{Mutex, mpmc, mpsc};

use crate::blocking::{self, Threads};
use crate::work::Work;

/// The time `ops` operations take, after a warm-up.
pub fn measure(work: Work, workers: usize, ops: u64) -> Duration {
    may::config().set_workers(workers);
    let once = move |ops| match work {
        Work::Spawn(threads) => spawn(threads, ops),
        Work::Yield(threads) => yields(threads, ops),
        Work::Wake => wake(ops),
        Work::PingPong(_) => {
            let channel = || mpsc_ends(mpsc::channel());
            blocking::ping_pong::<Coroutines>(ops, channel(), channel())
        }
        Work::Stream(1) => {
            let (send, receive) = mpsc_ends(mpsc::channel());
            blocking::stream::<Coroutines>(ops, vec![send], vec![receive])
        }
        Work::Stream(pairs) => {
            let (send, receive) = mpmc_ends(mpmc::channel());
            blocking::stream::<Coroutines>(ops, vec![send; pairs], vec![receive; pairs])
        }
        Work::Mutex(threads) => {
            static COUNT: LazyLock<Mutex<u64>> = LazyLock::new(Mutex::default);
            blocking::mutex::<Coroutines, _>(threads as u64, ops, || COUNT.lock().unwrap())
        }
    };
    let both = move || {
        once(ops / 5);
        once(ops)
    };
    start(both).join().expect("the work panicked")
}

/// Spawns a coroutine, like `greenthread::spawn`.
fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: the closures of this file use no thread-local, and little stack.
    unsafe { coroutine::spawn(f) }
}

fn spawn(threads: usize, ops: u64) -> Duration {
    let mut handles = Vec::with_capacity(threads);
    let begin = Instant::now();
    for _ in 0..ops / threads as u64 {
        handles.extend((0..threads).map(|_| start(|| ())));
        handles.drain(..).for_each(|handle| handle.join().unwrap());
    }
    begin.elapsed()
}

fn yields(threads: usize, ops: u64) -> Duration {
    // How many have come to the start line, and the start signal.
    let line = Arc::new((AtomicUsize::new(0), AtomicBool::new(false)));
    let runner = {
        let line = line.clone();
        move || {
            line.0.fetch_add(1, Relaxed);
            while !line.1.load(Relaxed) {
                coroutine::park();
            }
            for _ in 0..ops / threads as u64 {
                coroutine::yield_now();
            }
        }
    };
    let handles: Vec<_> = (0..threads).map(|_| start(runner.clone())).collect();
    while line.0.load(Relaxed) < threads {
        // Yielding here would starve the coroutines not yet begun.
        coroutine::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    line.1.store(true, Relaxed);
    handles
        .iter()
        .for_each(|handle| handle.coroutine().unpark());
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    begin.elapsed()
}

fn wake(ops: u64) -> Duration {
    // How often the turn has passed on: even turns are the controlling thread's, odd its partner's.
    let turns = Arc::new(AtomicUsize::new(0));
    let last = ops as usize / 2 * 2;
    let me = coroutine::current();
    let partner = {
        let turns = turns.clone();
        start(move || {
            for turn in (1..last).step_by(2) {
                // Acquire and Release: a turn sees all of the one before.
                while turns.load(Acquire) != turn {
                    coroutine::park();
                }
                turns.store(turn + 1, Release);
                me.unpark();
            }
        })
    };
    let begin = Instant::now();
    for turn in (0..last).step_by(2) {
        turns.store(turn + 1, Release);
        partner.coroutine().unpark();
        while turns.load(Acquire) != turn + 2 {
            coroutine::park();
        }
    }
    let elapsed = begin.elapsed();
    partner.join().unwrap();
    elapsed
}

/// may's coroutines.
struct Coroutines;

impl Threads for Coroutines {
    fn spawn(f: impl FnOnce() + Send + 'static) -> impl FnOnce() {
        let handle = start(f);
        || handle.join().unwrap()
    }

    fn nap() {
        coroutine::sleep(Duration::from_millis(1));
    }
}

/// The send and receive operations of a channel with one receiver.
fn mpsc_ends(
    (sender, receiver): (mpsc::Sender<u64>, mpsc::Receiver<u64>),
) -> (impl Fn(u64), impl Fn() -> u64) {
    (
        move |message| sender.send(message).unwrap(),
        move || receiver.recv().unwrap(),
    )
}

/// The send and receive operations of a channel with many receivers.
fn mpmc_ends(
    (sender, receiver): (mpmc::Sender<u64>, mpmc::Receiver<u64>),
) -> (impl Fn(u64) + Clone, impl Fn() -> u64 + Clone) {
    (
        move |message| sender.send(message).unwrap(),
        move || receiver.recv().unwrap(),
    )
}
