//! Many short threads: Go's CreateGoroutines and CreateGoroutinesParallel, storms, skynet, and Go's
//! Matmult.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::report::{Report, Stopwatch};
use crate::runtime::{Parker, Runtime, Spawner};

/// Threads that [`create`] and [`storm`] start at a time.
const BATCH: u64 = 10_000;

/// Repeats `batch`, which says how many operations it did, until time is up.
async fn repeat<F: Future<Output = u64>>(time: Duration, batch: impl Fn() -> F) -> Report {
    let watch = Stopwatch::start();
    let mut ops = 0;
    while watch.elapsed() < time {
        ops += batch().await;
    }
    Report {
        ops,
        took: watch.read(),
        shares: Vec::new(),
    }
}

/// How many threads are not done, and who waits for them.
struct Left<S: Spawner> {
    count: AtomicUsize,
    waiting: S::Parker,
}

impl<S: Spawner> Left<S> {
    fn new(count: usize) -> Arc<Left<S>> {
        Arc::new(Left {
            count: AtomicUsize::new(count),
            waiting: S::Parker::mine(),
        })
    }

    fn done(&self) {
        // Release and Acquire: who waits sees what all have done.
        if self.count.fetch_sub(1, AcqRel) == 1 {
            self.waiting.unpark();
        }
    }

    async fn wait(&self) {
        while self.count.load(Acquire) != 0 {
            self.waiting.park().await;
        }
    }
}

/// Go's CreateGoroutines: each thread starts the next and ends, in so many chains at a time. An
/// operation is one thread.
pub async fn create<S: Spawner>(chains: usize, time: Duration) -> Report {
    fn link<S: Spawner>(left: u64, end: Arc<Left<S>>) {
        match left {
            0 => end.done(),
            _ => S::start(async move { link(left - 1, end) }),
        }
    }
    repeat(time, || async move {
        let end = Left::<S>::new(chains);
        (0..chains).for_each(|_| link(BATCH, end.clone()));
        end.wait().await;
        chains as u64 * BATCH
    })
    .await
}

/// So many threads start thousands of others each, which do nothing. An operation is one of these.
pub async fn storm<S: Spawner>(spawners: usize, time: Duration) -> Report {
    repeat(time, || async move {
        let left = Left::<S>::new(spawners * BATCH as usize);
        for _ in 0..spawners {
            let left = left.clone();
            S::start(async move {
                for _ in 0..BATCH {
                    let left = left.clone();
                    S::start(async move { left.done() });
                }
            });
        }
        left.wait().await;
        spawners as u64 * BATCH
    })
    .await
}

/// Skynet: a tree of threads, ten children each, until there are so many leaves; each waits for the
/// sum of its children's numbers. An operation is one thread.
pub async fn skynet<R: Runtime>(leaves: usize, time: Duration) -> Report {
    const CHILDREN: u64 = 10;
    /// A subtree, and how many threads it took.
    fn node<R: Runtime>(first: u64, leaves: u64) -> R::Join<(u64, u64)> {
        R::spawn(async move {
            if leaves == 1 {
                return (first, 1);
            }
            let each = leaves / CHILDREN;
            let children = (0..CHILDREN).map(|i| node::<R>(first + i * each, each));
            let (mut sum, mut threads) = (0, 1);
            for child in children.collect::<Vec<_>>() {
                let (theirs, of_theirs) = child.await;
                sum += theirs;
                threads += of_theirs;
            }
            (sum, threads)
        })
    }
    let leaves = leaves as u64;
    repeat(time, || async move {
        let (sum, threads) = node::<R>(0, leaves).await;
        assert_eq!(sum, leaves * (leaves - 1) / 2);
        threads
    })
    .await
}

/// Square matrices, read and written by many threads; the product's cells by one each.
struct Matrices {
    size: usize,
    a: Vec<u64>,
    b: Vec<u64>,
    product: Vec<AtomicU64>,
}

/// Go's Matmult, but for its splits of the inner sum: the product is halved, along its longer side,
/// until blocks are smaller than [`BLOCK`]; a thread for one half, the other in place. An operation
/// is one multiplication.
pub async fn matmult<R: Runtime>(size: usize, time: Duration) -> Report {
    let numbers = || (0..(size * size) as u64).collect();
    let matrices = Arc::new(Matrices {
        size,
        a: numbers(),
        b: numbers(),
        product: (0..size * size).map(|_| AtomicU64::new(0)).collect(),
    });
    repeat(time, || {
        let product = block::<R>(matrices.clone(), [0, size], [0, size]);
        async move {
            product.await;
            (size * size * size) as u64
        }
    })
    .await
}

/// Blocks of [`matmult`] are smaller.
const BLOCK: usize = 8;

fn block<R: Runtime>(
    matrices: Arc<Matrices>,
    mut rows: [usize; 2],
    mut columns: [usize; 2],
) -> R::Join<()> {
    R::spawn(async move {
        let mut others = Vec::new();
        loop {
            let [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
            if height.max(width) < BLOCK {
                break;
            }
            let (mut its_rows, mut its_columns) = (rows, columns);
            if height >= width {
                let middle = rows[0] + height / 2;
                (its_rows[1], rows[0]) = (middle, middle);
            } else {
                let middle = columns[0] + width / 2;
                (its_columns[1], columns[0]) = (middle, middle);
            }
            others.push(block::<R>(matrices.clone(), its_rows, its_columns));
        }
        matrices.multiply(rows, columns);
        for other in others {
            other.await;
        }
    })
}

impl Matrices {
    fn multiply(&self, rows: [usize; 2], columns: [usize; 2]) {
        let size = self.size;
        for row in rows[0]..rows[1] {
            for column in columns[0]..columns[1] {
                let products = (0..size)
                    .map(|i| self.a[row * size + i].wrapping_mul(self.b[i * size + column]));
                let sum = products.fold(0, u64::wrapping_add);
                self.product[row * size + column].store(sum, Relaxed);
            }
        }
    }
}
