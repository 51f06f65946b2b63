//! Libraries as they are, inside: each a small program that holds under every seed, and whose runs repeat. `GT_SEEDS`: how many
//! seeds each runs.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_channel::{bounded, select, tick, unbounded};
use crossbeam_epoch::{self as epoch, Atomic, Owned};
use crossbeam_queue::{ArrayQueue, SegQueue};
use dashmap::DashMap;
use greenthread::sim::{Builder, Summary};
use greenthread::{scope, spawn};

use crate::support::seeds;

/// Runs the program with all seeds, twice.
#[track_caller]
fn repeats(builder: Builder, body: impl Fn() + Send + Sync + 'static) -> Summary {
    let ended = builder.seeds(seeds()).repeats(body);
    let summary = ended.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{summary:?}");
    assert!(summary.is_repeatable);
    assert_eq!(summary.seeds, seeds());
    summary
}

fn any() -> Builder {
    Builder::new().all_threads_end(true)
}

/// Jobs go to three workers, and results come back.
#[test]
fn crossbeam_channel_pool() {
    repeats(any(), || {
        let (jobs, queue) = bounded::<u32>(2);
        let (results, sums) = unbounded();
        let workers = [(); 3].map(|()| {
            let (queue, results) = (queue.clone(), results.clone());
            spawn(move || {
                queue
                    .iter()
                    .for_each(|job| results.send(job * job).unwrap())
            })
        });
        drop((queue, results));
        (1..=8).for_each(|job| jobs.send(job).unwrap());
        drop(jobs);
        assert_eq!(sums.iter().sum::<u32>(), 204);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}

/// One thread waits for whatever comes first.
#[test]
fn crossbeam_channel_select() {
    repeats(any(), || {
        let (left, from_left) = bounded(0);
        let (right, from_right) = bounded(1);
        let clock = tick(Duration::from_millis(10));
        scope(|scope| {
            scope.spawn(move || (0..5).for_each(|message| left.send(message).unwrap()));
            scope.spawn(move || {
                for message in 5..10 {
                    std::thread::sleep(Duration::from_millis(7));
                    right.send(message).unwrap();
                }
            });
            let (mut seen, mut ticks) = (Vec::new(), 0);
            while seen.len() < 10 {
                select! {
                    recv(from_left) -> message => seen.extend(message),
                    recv(from_right) -> message => seen.extend(message),
                    recv(clock) -> _ => ticks += 1,
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, Vec::from_iter(0..10));
            assert!(ticks >= 1);
        });
    });
}

#[test]
fn crossbeam_queues() {
    repeats(any(), || {
        let (short, long) = (ArrayQueue::new(2), SegQueue::new());
        scope(|scope| {
            for producer in 0..2 {
                let short = &short;
                scope.spawn(move || {
                    for number in 0..4 {
                        let mut item = producer * 4 + number;
                        while let Err(refused) = short.push(item) {
                            item = refused;
                            std::thread::yield_now();
                        }
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..8 {
                    let item = loop {
                        match short.pop() {
                            Some(item) => break item,
                            None => std::thread::yield_now(),
                        }
                    };
                    long.push(item);
                }
            });
        });
        let mut all: Vec<u32> = std::iter::from_fn(|| long.pop()).collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..8));
    });
}

/// A Treiber stack: nodes are freed when no thread can hold them.
#[test]
fn crossbeam_epoch_stack() {
    struct Node {
        number: u32,
        below: Atomic<Node>,
    }
    fn push(top: &Atomic<Node>, number: u32) {
        let guard = epoch::pin();
        let mut node = Owned::new(Node {
            number,
            below: Atomic::null(),
        });
        loop {
            let below = top.load(Relaxed, &guard);
            node.below.store(below, Relaxed);
            match top.compare_exchange(below, node, Release, Relaxed, &guard) {
                Ok(_) => return,
                Err(failed) => node = failed.new,
            }
        }
    }
    fn pop(top: &Atomic<Node>) -> Option<u32> {
        let guard = epoch::pin();
        loop {
            let node = top.load(Acquire, &guard);
            // SAFETY: pinned, so a node that was reached is not freed.
            let inside = unsafe { node.as_ref() }?;
            let below = inside.below.load(Relaxed, &guard);
            if top
                .compare_exchange(node, below, AcqRel, Relaxed, &guard)
                .is_ok()
            {
                let number = inside.number;
                // SAFETY: it is no longer reached.
                unsafe { guard.defer_destroy(node) };
                return Some(number);
            }
        }
    }
    repeats(Builder::new(), || {
        let (top, sum) = (Atomic::null(), AtomicUsize::new(0));
        scope(|scope| {
            for thread in 0..3 {
                let (top, sum) = (&top, &sum);
                scope.spawn(move || {
                    (0..4).for_each(|number| push(top, thread * 4 + number));
                    for _ in 0..4 {
                        sum.fetch_add(pop(top).expect("a number") as usize, Relaxed);
                    }
                    epoch::pin().flush();
                });
            }
        });
        assert_eq!(sum.into_inner(), (0..12).sum::<usize>());
        assert_eq!(pop(&top), None);
    });
}

/// parking_lot's queues of waiters are found by the address of the lock.
#[test]
fn parking_lot_bank() {
    use parking_lot::{Condvar, Mutex, RwLock};
    repeats(any().same_addresses(), || {
        let accounts = [(); 3].map(|()| Mutex::new(10_u32));
        let (rates, paid) = (RwLock::new(1), (Mutex::new(0), Condvar::new()));
        scope(|scope| {
            for from in 0..3 {
                let (accounts, rates, paid) = (&accounts, &rates, &paid);
                scope.spawn(move || {
                    let to = (from + 1) % 3;
                    let rate = *rates.read();
                    let (mut low, mut high) =
                        (accounts[from.min(to)].lock(), accounts[from.max(to)].lock());
                    let (giver, taker) = if from < to {
                        (&mut *low, &mut *high)
                    } else {
                        (&mut *high, &mut *low)
                    };
                    *giver -= rate;
                    *taker += rate;
                    drop((low, high));
                    *paid.0.lock() += 1;
                    paid.1.notify_one();
                });
            }
            scope.spawn(|| *rates.write() += 1);
            let mut count = paid.0.lock();
            paid.1.wait_while(&mut count, |count| *count < 3);
        });
        let sum: u32 = accounts.into_iter().map(Mutex::into_inner).sum();
        assert_eq!(sum, 30);
    });
}

#[test]
fn flume_pipeline() {
    repeats(any(), || {
        let (lines, to_split) = flume::bounded::<&str>(1);
        let (words, to_count) = flume::unbounded();
        let splitter = spawn(move || {
            for line in to_split {
                line.split(' ').for_each(|word| words.send(word).unwrap());
            }
        });
        let counter = spawn(move || {
            let mut counts = HashMap::new();
            while let Ok(word) = to_count.recv_timeout(Duration::from_secs(60)) {
                *counts.entry(word).or_insert(0) += 1;
            }
            counts
        });
        for line in ["a rose is a rose", "is a rose"] {
            lines.send(line).unwrap();
        }
        drop(lines);
        splitter.join().unwrap();
        let counts = counter.join().unwrap();
        // A stall of a minute does not end in time; none is so long.
        assert_eq!(counts, HashMap::from([("a", 3), ("rose", 3), ("is", 2)]));
    });
}

/// Readers see a whole configuration, and never an older one than before.
#[test]
fn arc_swap_settings() {
    repeats(any(), || {
        let settings = ArcSwap::from_pointee((0_u32, 0_u32));
        scope(|scope| {
            scope.spawn(|| {
                (1..4).for_each(|version| settings.store(Arc::new((version, version * 10))))
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..4 {
                        let now = settings.load();
                        assert_eq!(now.1, now.0 * 10);
                        assert!(now.0 >= last);
                        last = now.0;
                    }
                });
            }
        });
        assert_eq!(settings.load().0, 3);
    });
}

#[test]
fn dashmap_counts() {
    // As many shards as the check has processors, whatever the machine has.
    repeats(any(), || {
        let counts = DashMap::with_shard_amount(4);
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for word in ["a", "rose", "is", "a", "rose"] {
                        *counts.entry(word).or_insert(0) += 1;
                    }
                });
            }
        });
        assert_eq!(*counts.get("rose").unwrap(), 6);
        assert_eq!(counts.iter().map(|entry| *entry.value()).sum::<u32>(), 15);
    });
}

#[test]
fn std_mpsc() {
    repeats(any(), || {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (done, ends) = mpsc::channel();
        for producer in 0..2 {
            let (sender, done) = (sender.clone(), done.clone());
            spawn(move || {
                (0..3).for_each(|number| sender.send((producer, number)).unwrap());
                done.send(producer).unwrap();
            });
        }
        drop((sender, done));
        let mut next = [0; 2];
        for (producer, number) in receiver {
            assert_eq!(number, next[producer]);
            next[producer] += 1;
        }
        let mut all: Vec<usize> = ends.iter().collect();
        all.sort_unstable();
        assert_eq!((next, all), ([3; 2], vec![0, 1]));
    });
}

/// A bounded buffer of Condvars, with a time-out that never comes.
#[test]
fn std_condvar() {
    repeats(any(), || {
        let (buffer, changed) = (Mutex::new(Vec::new()), Condvar::new());
        scope(|scope| {
            scope.spawn(|| {
                for number in 0..5 {
                    let full = |items: &mut Vec<u32>| items.len() == 2;
                    let mut items = changed.wait_while(buffer.lock().unwrap(), full).unwrap();
                    items.push(number);
                    changed.notify_all();
                }
            });
            let mut sum = 0;
            for _ in 0..5 {
                let limit = Duration::from_secs(3600);
                let (mut items, ended) = changed
                    .wait_timeout_while(buffer.lock().unwrap(), limit, |items| items.is_empty())
                    .unwrap();
                assert!(!ended.timed_out());
                sum += items.remove(0);
                changed.notify_all();
            }
            assert_eq!(sum, 10);
        });
    });
}

#[test]
fn std_rwlock() {
    repeats(any(), || {
        let pair = RwLock::new((0, 0));
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let mut pair = pair.write().unwrap();
                        pair.0 += 1;
                        std::thread::yield_now();
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..3 {
                        let pair = pair.read().unwrap();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*pair.read().unwrap(), (6, 6));
    });
}

#[test]
fn std_once() {
    repeats(any(), || {
        let (once, cell, times) = (Once::new(), OnceLock::new(), AtomicUsize::new(0));
        let start = Barrier::new(3);
        scope(|scope| {
            for thread in 0..3 {
                let (once, cell, times, start) = (&once, &cell, &times, &start);
                scope.spawn(move || {
                    start.wait();
                    once.call_once(|| {
                        std::thread::sleep(Duration::from_millis(1));
                        times.fetch_add(1, SeqCst);
                    });
                    assert_eq!(times.load(SeqCst), 1);
                    let first = *cell.get_or_init(|| thread);
                    assert_eq!(cell.get(), Some(&first));
                });
            }
        });
    });
}

/// The crate's own: scopes, locks, channels, parking, thread-locals.
#[test]
fn own_scopes() {
    use greenthread::channel;
    use greenthread::sync::{Mutex, Semaphore};
    thread_local! {
        static COUNT: Cell<u32> = const { Cell::new(0) };
    }
    repeats(any(), || {
        let (total, permits) = (Mutex::new(0), Semaphore::new(2));
        let (sender, receiver) = channel::bounded(1);
        scope(|scope| {
            for number in 0..4 {
                let (total, permits, sender) = (&total, &permits, sender.clone());
                scope.spawn(move || {
                    let permit = permits.acquire();
                    COUNT.set(COUNT.get() + number);
                    greenthread::yield_now();
                    assert_eq!(COUNT.get(), number);
                    *total.lock().unwrap() += number;
                    drop(permit);
                    sender.send(number).unwrap();
                });
            }
            drop(sender);
            assert_eq!(receiver.iter().sum::<u32>(), 6);
        });
        assert_eq!(total.into_inner().unwrap(), 6);
    });
}
