//! Threads that take all the CPU time that they get.

use greenthread::runtime::Runtime;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

/// Threads that call a closure over and over, until dropped.
pub struct Hogs {
    stop: Arc<AtomicBool>,
    rounds: Arc<Vec<AtomicU64>>,
    handles: Vec<greenthread::JoinHandle<()>>,
}

impl Hogs {
    /// `make(i)` makes the body of the `i`th. Returns once each has run.
    pub fn start<F: FnMut() + Send + 'static>(
        runtime: &Runtime,
        n: usize,
        mut make: impl FnMut(usize) -> F,
    ) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds: Arc<Vec<AtomicU64>> = Arc::new((0..n).map(|_| AtomicU64::new(0)).collect());
        let handles = (0..n).map(|i| {
            let (stop, rounds, mut body) = (stop.clone(), rounds.clone(), make(i));
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    body();
                    rounds[i].fetch_add(1, Relaxed);
                }
            })
        });
        let hogs = Hogs {
            handles: handles.collect(),
            stop,
            rounds,
        };
        while hogs.rounds().contains(&0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hogs
    }

    pub fn rounds(&self) -> Vec<u64> {
        self.rounds
            .iter()
            .map(|rounds| rounds.load(Relaxed))
            .collect()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.handles
            .drain(..)
            .for_each(|handle| handle.join().unwrap());
    }
}

/// Work without calls, about ten microseconds of it.
pub fn compute() {
    let mut x = 1u64;
    for _ in 0..10_000 {
        x = black_box(x.wrapping_mul(31).wrapping_add(1));
    }
}
