//! The work on tokio's multi-threaded runtime: tasks for threads, `.await` for blocking. No I/O or
//! time driver is enabled, which spares its workers a look at them: tokio at its best.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, Semaphore, mpsc};
use tokio::task;

use crate::work::{CAPACITY, Work};

/// The time `ops` operations take, after a warm-up.
pub fn measure(work: Work, workers: usize, ops: u64) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .build();
    let runtime = runtime.expect("a runtime");
    let once = async move |ops| match work {
        Work::Spawn(threads) => spawn(threads, ops).await,
        Work::Yield(threads) => yields(threads, ops).await,
        Work::Wake => wake(ops).await,
        Work::PingPong(capacity) => ping_pong(capacity, ops).await,
        Work::Stream(pairs) => {
            assert_eq!(pairs, 1, "tokio's receivers cannot be cloned");
            stream(ops).await
        }
        Work::Mutex(threads) => mutex(threads, ops).await,
    };
    let both = async move {
        once(ops / 5).await;
        once(ops).await
    };
    // A task, since the future given to `block_on` does not run on a worker.
    runtime
        .block_on(runtime.spawn(both))
        .expect("the work panicked")
}

async fn spawn(threads: usize, ops: u64) -> Duration {
    let mut handles = Vec::with_capacity(threads);
    let start = Instant::now();
    for _ in 0..ops / threads as u64 {
        handles.extend((0..threads).map(|_| task::spawn(async {})));
        for handle in handles.drain(..) {
            handle.await.unwrap();
        }
    }
    start.elapsed()
}

async fn yields(threads: usize, ops: u64) -> Duration {
    // How many have come to the start line, and the start signal.
    let line = Arc::new((AtomicUsize::new(0), Semaphore::new(0)));
    let runner = |line: Arc<(AtomicUsize, Semaphore)>| async move {
        line.0.fetch_add(1, Relaxed);
        line.1.acquire().await.unwrap().forget();
        for _ in 0..ops / threads as u64 {
            task::yield_now().await;
        }
    };
    let handles: Vec<_> = (0..threads)
        .map(|_| task::spawn(runner(line.clone())))
        .collect();
    while line.0.load(Relaxed) < threads {
        task::yield_now().await;
    }
    let start = Instant::now();
    line.1.add_permits(threads);
    for handle in handles {
        handle.await.unwrap();
    }
    start.elapsed()
}

/// Tasks cannot be parked; the nearest thing is a `Notify` each, which also remembers one wake-up.
async fn wake(ops: u64) -> Duration {
    let pair = Arc::new((Notify::new(), Notify::new()));
    let partner = {
        let pair = pair.clone();
        task::spawn(async move {
            for _ in 0..ops / 2 {
                pair.1.notified().await;
                pair.0.notify_one();
            }
        })
    };
    let start = Instant::now();
    for _ in 0..ops / 2 {
        pair.1.notify_one();
        pair.0.notified().await;
    }
    let elapsed = start.elapsed();
    partner.await.unwrap();
    elapsed
}

async fn ping_pong(capacity: usize, ops: u64) -> Duration {
    let (there, mut theirs) = mpsc::channel(capacity);
    let (back, mut mine) = mpsc::channel(capacity);
    let partner = task::spawn(async move {
        for _ in 0..ops {
            back.send(theirs.recv().await.unwrap()).await.unwrap();
        }
    });
    let start = Instant::now();
    for trip in 0..ops {
        there.send(trip).await.unwrap();
        assert_eq!(mine.recv().await, Some(trip));
    }
    let elapsed = start.elapsed();
    partner.await.unwrap();
    elapsed
}

async fn stream(ops: u64) -> Duration {
    let start = Instant::now();
    let (sender, mut receiver) = mpsc::channel(CAPACITY);
    let receiver = task::spawn(async move {
        for _ in 0..ops {
            receiver.recv().await.unwrap();
        }
    });
    let sender = task::spawn(async move {
        for message in 0..ops {
            sender.send(message).await.unwrap();
        }
    });
    sender.await.unwrap();
    receiver.await.unwrap();
    start.elapsed()
}

/// The lock is held until all have come to it.
async fn mutex(threads: usize, ops: u64) -> Duration {
    let share = ops / threads as u64;
    let all = Arc::new((AtomicUsize::new(0), Mutex::new(0)));
    let held = all.1.lock().await;
    let runner = |all: Arc<(AtomicUsize, Mutex<u64>)>| async move {
        all.0.fetch_add(1, Relaxed);
        for _ in 0..share {
            *all.1.lock().await += 1;
        }
    };
    let handles: Vec<_> = (0..threads)
        .map(|_| task::spawn(runner(all.clone())))
        .collect();
    while all.0.load(Relaxed) < threads {
        task::yield_now().await;
    }
    let start = Instant::now();
    drop(held);
    for handle in handles {
        handle.await.unwrap();
    }
    let elapsed = start.elapsed();
    assert_eq!(*all.1.lock().await, share * threads as u64);
    elapsed
}
