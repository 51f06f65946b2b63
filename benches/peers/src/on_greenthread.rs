//! The work on greenthread, whose API is std's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use greenthread::channel::{Receiver, Sender, bounded};
use greenthread::runtime::{Mode, Runtime};
use greenthread::sync::Mutex;

use crate::blocking::{self, Green};
use crate::work::{CAPACITY, Work};

/// The time `ops` operations take, after a warm-up.
pub fn measure(work: Work, workers: usize, ops: u64) -> Duration {
    let runtime = Runtime::builder()
        .processors(workers)
        .build()
        .expect("a runtime");
    assert_eq!(runtime.mode(), Mode::Green, "these would be kernel threads");
    let once = move |ops| match work {
        Work::Spawn(threads) => spawn(threads, ops),
        Work::Yield(threads) => yields(threads, ops),
        Work::Wake => wake(ops),
        Work::PingPong(capacity) => {
            let channel = || ends(bounded(capacity));
            blocking::ping_pong::<Green>(ops, channel(), channel())
        }
        Work::Stream(pairs) => {
            let (send, receive) = ends(bounded(CAPACITY));
            blocking::stream::<Green>(ops, vec![send; pairs], vec![receive; pairs])
        }
        Work::Mutex(threads) => {
            static COUNT: Mutex<u64> = Mutex::new(0);
            blocking::mutex::<Green, _>(threads as u64, ops, || COUNT.lock().unwrap())
        }
    };
    let both = move || {
        once(ops / 5);
        once(ops)
    };
    runtime.spawn(both).join().expect("the work panicked")
}

fn spawn(threads: usize, ops: u64) -> Duration {
    let mut handles = Vec::with_capacity(threads);
    let start = Instant::now();
    for _ in 0..ops / threads as u64 {
        handles.extend((0..threads).map(|_| greenthread::spawn(|| ())));
        handles.drain(..).for_each(|handle| handle.join().unwrap());
    }
    start.elapsed()
}

fn yields(threads: usize, ops: u64) -> Duration {
    // How many have come to the start line, and the start signal.
    let line = Arc::new((AtomicUsize::new(0), AtomicBool::new(false)));
    let runner = {
        let line = line.clone();
        move || {
            line.0.fetch_add(1, Relaxed);
            while !line.1.load(Relaxed) {
                greenthread::park();
            }
            for _ in 0..ops / threads as u64 {
                greenthread::yield_now();
            }
        }
    };
    let handles: Vec<_> = (0..threads)
        .map(|_| greenthread::spawn(runner.clone()))
        .collect();
    while line.0.load(Relaxed) < threads {
        greenthread::yield_now();
    }
    let start = Instant::now();
    line.1.store(true, Relaxed);
    handles.iter().for_each(|handle| handle.thread().unpark());
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    start.elapsed()
}

fn wake(ops: u64) -> Duration {
    // How often the turn has passed on: even turns are the controlling thread's, odd its partner's.
    let turns = Arc::new(AtomicUsize::new(0));
    let last = ops as usize / 2 * 2;
    let me = greenthread::current();
    let partner = {
        let turns = turns.clone();
        greenthread::spawn(move || {
            for turn in (1..last).step_by(2) {
                // Acquire and Release: a turn sees all of the one before.
                while turns.load(Acquire) != turn {
                    greenthread::park();
                }
                turns.store(turn + 1, Release);
                me.unpark();
            }
        })
    };
    let start = Instant::now();
    for turn in (0..last).step_by(2) {
        turns.store(turn + 1, Release);
        partner.thread().unpark();
        while turns.load(Acquire) != turn + 2 {
            greenthread::park();
        }
    }
    let elapsed = start.elapsed();
    partner.join().unwrap();
    elapsed
}

/// A channel's send and receive operations.
fn ends(
    (sender, receiver): (Sender<u64>, Receiver<u64>),
) -> (impl Fn(u64) + Clone, impl Fn() -> u64 + Clone) {
    (
        move |message| sender.send(message).unwrap(),
        move || receiver.recv().unwrap(),
    )
}
