//! The work of channels and mutexes, the same for all threads that block: whose threads, channel
//! ends and locks they are is for the caller to say. `benches/peers` uses this file too.

use std::hint::black_box;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Whose threads they are.
pub trait Threads {
    /// Spawns a thread. Calling what it returns joins that thread.
    fn spawn(f: impl FnOnce() + Send + 'static) -> impl FnOnce();

    /// Sleeps a little.
    fn nap();
}

/// Green threads.
pub struct Green;

impl Threads for Green {
    fn spawn(f: impl FnOnce() + Send + 'static) -> impl FnOnce() {
        let handle = greenthread::spawn(f);
        || handle.join().expect("a thread panicked")
    }

    fn nap() {
        greenthread::sleep(Duration::from_millis(1));
    }
}

/// Kernel threads.
pub struct Kernel;

impl Threads for Kernel {
    fn spawn(f: impl FnOnce() + Send + 'static) -> impl FnOnce() {
        let handle = std::thread::spawn(f);
        || handle.join().expect("a thread panicked")
    }

    fn nap() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A message goes `there` and comes `back`, so many times. The ends of a channel are its send and
/// its receive operation.
pub fn ping_pong<T: Threads>(
    trips: u64,
    there: (impl Fn(u64), impl Fn() -> u64 + Send + 'static),
    back: (impl Fn(u64) + Send + 'static, impl Fn() -> u64),
) -> Duration {
    let join_partner = T::spawn(move || (0..trips).for_each(|_| back.0(there.1())));
    let start = Instant::now();
    for trip in 0..trips {
        there.0(trip);
        assert_eq!(back.1(), trip);
    }
    let elapsed = start.elapsed();
    join_partner();
    elapsed
}

/// So many messages go through one channel, in equal shares by a thread for each of its ends.
pub fn stream<T: Threads>(
    messages: u64,
    senders: Vec<impl Fn(u64) + Send + 'static>,
    receivers: Vec<impl Fn() -> u64 + Send + 'static>,
) -> Duration {
    let pairs = senders.len() as u64;
    let share = messages.div_ceil(pairs);
    let start = Instant::now();
    let receivers: Vec<_> = receivers
        .into_iter()
        .map(|receive| {
            T::spawn(move || {
                (0..share).for_each(|_| {
                    black_box(receive());
                })
            })
        })
        .collect();
    let senders: Vec<_> = senders
        .into_iter()
        .map(|send| T::spawn(move || (0..share).for_each(send)))
        .collect();
    senders.into_iter().for_each(|join| join());
    receivers.into_iter().for_each(|join| join());
    // The shares were rounded up.
    let elapsed = start.elapsed();
    elapsed.mul_f64(messages as f64 / (share * pairs) as f64)
}

/// So many threads lock, increment and unlock in equal shares. The lock is held until all have come
/// to it.
pub fn mutex<T: Threads, G: DerefMut<Target = u64>>(
    threads: u64,
    ops: u64,
    lock: impl Fn() -> G + Copy + Send + 'static,
) -> Duration {
    let share = ops.div_ceil(threads);
    let arrived = Arc::new(AtomicU64::new(0));
    let held = lock();
    let done = *held + share * threads;
    let joins: Vec<_> = (0..threads)
        .map(|_| {
            let arrived = arrived.clone();
            T::spawn(move || {
                arrived.fetch_add(1, Relaxed);
                (0..share).for_each(|_| *lock() += 1);
            })
        })
        .collect();
    while arrived.load(Relaxed) < threads {
        T::nap();
    }
    let start = Instant::now();
    drop(held);
    joins.into_iter().for_each(|join| join());
    let elapsed = start.elapsed();
    assert_eq!(*lock(), done);
    elapsed.mul_f64(ops as f64 / (share * threads) as f64)
}
