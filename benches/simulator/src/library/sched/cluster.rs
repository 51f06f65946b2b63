//! Stands in for the library's `cluster`, and for its monitor and its spawner, who do nothing: no
//! thread runs for long, and each processor has a worker.

use core::cell::Cell;

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering::*, compiler_fence, fence};
use crate::engine::policy::Policy;
use crate::engine::sched::idle::Parker;
use crate::engine::sched::idle::{IdleWord, Idlers, Watched};
use crate::engine::sched::start::Stock;
use crate::engine::sched::{Counter, Counts, Processor, Worker};
use crate::engine::sys::shared::{Lock, Table};
use crate::engine::sys::{kernel_thread, perturb};

pub(crate) struct Ideas {
    pub(crate) spinning: bool,
}

pub(crate) struct Config {
    pub(crate) ideas: Ideas,
}

/// On cache lines of its own.
#[repr(align(64))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> core::ops::Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The idle word and the idlers' lock share a line, as they do in the library.
#[repr(C, align(128))]
pub(crate) struct Cluster {
    pub(crate) live_count: LiveCount,
    size: Size,
    pub(crate) policy: Apart<&'static dyn Policy>,
    table: Table<Processor>,
    pub(crate) idle: IdleWord,
    pub(crate) idlers: Lock<Idlers>,
    pub(crate) watched: Apart<Watched>,
    pub(crate) wake_ups: Apart<Counter>,
    pub(crate) config: Apart<Config>,
    pub(crate) spawner: Spawner,
    pub(crate) monitor: Parker,
    pub(crate) stopping: AtomicBool,
    /// The process's, in the library: free records and stacks.
    pub(crate) stock: Stock,
    workers: Apart<Vec<Worker>>,
    pub(crate) tally: Apart<Tally>,
}

/// Bookkeeping, which costs nothing.
#[derive(Default)]
pub(crate) struct Tally {
    /// Wake-ups after which the worker found nothing to run.
    pub(crate) idle_wake_ups: Cell<u64>,
    /// Searches that found nothing.
    pub(crate) vain_searches: Cell<u64>,
}

#[repr(C, align(64))]
struct Size {
    active: AtomicUsize,
    seats: AtomicUsize,
}

impl Cluster {
    /// A cluster whose processors all are awake. It is freed by [`Cluster::end`].
    pub(crate) fn start(
        policy: &'static dyn Policy,
        processors: usize,
        seed: u64,
    ) -> &'static Cluster {
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster {
            live_count: LiveCount::default(),
            size: Size {
                active: AtomicUsize::new(processors),
                seats: AtomicUsize::new(processors),
            },
            policy: Apart(policy),
            table: Table::new(),
            idle: IdleWord::new(processors as u32),
            idlers: Lock::new(Idlers::new()),
            watched: Apart(Watched::new()),
            wake_ups: Apart(Counter::default()),
            config: Apart(Config {
                ideas: Ideas { spinning: true },
            }),
            spawner: Spawner,
            monitor: Parker::awake(),
            stopping: AtomicBool::new(false),
            stock: Stock::new(),
            workers: Apart((0..processors).map(|_| Worker::new()).collect()),
            tally: Apart(Tally::default()),
        }));
        let new = |index| Processor::new(index, cluster, seed);
        cluster.table.grow_to(processors, new);
        for (worker, processor) in cluster.workers.iter().zip(cluster.table.iter()) {
            worker.set_cluster(cluster);
            worker.processor.assign(processor);
        }
        cluster
    }

    /// All workers end.
    pub(crate) fn stop(&'static self) {
        self.stopping.store(true, SeqCst);
        let workers = self.workers.iter();
        workers.for_each(|worker| worker.parker.poke());
    }

    /// Frees the cluster, its records and its stacks.
    ///
    /// # Safety
    /// Nobody uses any of them any more.
    pub(crate) unsafe fn end(&'static self) {
        // SAFETY: made by a box in `start`; the rest is the caller's promise.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(self).cast_mut()) });
    }

    pub(crate) fn worker(&self, index: usize) -> &Worker {
        &self.workers[index]
    }

    pub(crate) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub(crate) fn processors(&self) -> impl Iterator<Item = &Processor> {
        self.table.iter()
    }

    pub(crate) fn processor(&self, index: usize) -> &Processor {
        self.table.get(index)
    }

    pub(crate) fn active(&self) -> usize {
        self.size.active.load(Relaxed)
    }

    pub(crate) fn seats(&self) -> usize {
        self.size.seats.load(Acquire)
    }

    pub(crate) fn search_limit(&self) -> u32 {
        self.active().div_ceil(2) as u32
    }

    pub(crate) fn was_last(&self) -> bool {
        self.live_count
            .was_last(|count| self.processors().map(|p| count(&p.counts)).sum())
    }
}

/// The spawner's.
pub(crate) struct Spawner;

impl Spawner {
    pub(crate) fn call(&self) {}
    pub(crate) fn ring(&self) {}
}

include!(concat!(env!("OUT_DIR"), "/start.rs"));
