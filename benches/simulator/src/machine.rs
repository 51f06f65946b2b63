//! A simulation: the library's scheduler (`library/sched`), on virtual processors, lets a workload run to
//! its end under a policy.
//!
//! Left out: time limits (but for the looks at others' timers), I/O (but for the looks for events), the
//! monitor, preemption, hand-off, resizing, kernel threads beside processors (here each processor has
//! one), locked threads, and the program's own memory: what the allocator does, and what threads share.

use core::cell::{Cell, RefCell};

use crate::cost::Costs;
use crate::policy::{Policy, Readied};
use crate::sched::{self, Cluster, Green, Program, Worker};
use crate::virtual_time::{self, Random};
use crate::workload::Workload;

pub use crate::sched::Action;

/// What came out of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Until the last thread had ended, or the workload had done what is counted.
    pub nanoseconds: f64,
    pub operations: u64,
    pub threads: u64,
    pub steals: u64,
    pub wake_ups: u64,
    /// Wake-ups after which the woken processor found nothing to run.
    pub idle_wake_ups: u64,
    /// Searches for work that found nothing, of processors that then rested.
    pub vain_searches: u64,
}

impl Outcome {
    /// What one operation takes of a processor's time: flat if all scales.
    pub fn per_operation(&self, processors: usize) -> f64 {
        self.nanoseconds * processors as f64 / self.operations as f64
    }

    /// Millions of operations a second, of all processors together.
    pub fn throughput(&self) -> f64 {
        self.operations as f64 * 1000.0 / self.nanoseconds
    }

    /// How often a second something happens that has happened `count` times.
    pub fn a_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.nanoseconds
    }
}

struct World<'a> {
    cluster: &'static Cluster,
    costs: &'a Costs,
    workload: &'a dyn Workload,
    randoms: Vec<RefCell<Random>>,
    // Bookkeeping, which costs nothing.
    live: Cell<u64>,
    threads: Cell<u64>,
    done_at: Cell<Option<f64>>,
    ended_at: Cell<Option<f64>>,
}

/// A kernel thread, as the threads on it see it.
pub struct Processor<'a> {
    world: &'a World<'a>,
    worker: &'static Worker,
}

/// Lets `workload` run to its end under `policy`. All processors begin awake, with their shares of the
/// first threads.
///
/// # Panics
/// If a thread is lost, or all sleep.
pub fn simulate(
    policy: &dyn Policy,
    processors: usize,
    costs: &Costs,
    workload: &dyn Workload,
    seed: u64,
) -> Outcome {
    policy.resize(processors);
    let first = workload.first_threads(processors);
    // SAFETY: the cluster, which refers to it, is freed before this returns; if this panics, nobody uses the
    // cluster any more.
    let policy: &'static dyn Policy = unsafe { core::mem::transmute(policy) };
    let cluster = Cluster::start(policy, processors, seed);
    let world = World {
        cluster,
        costs,
        workload,
        randoms: (0..processors)
            .map(|index| RefCell::new(Random::new(seed, index)))
            .collect(),
        live: Cell::new(first as u64),
        threads: Cell::new(first as u64),
        done_at: Cell::new(None),
        ended_at: Cell::new(None),
    };
    virtual_time::run(processors, costs, |index| {
        let worker = cluster.worker(index);
        let me = Processor {
            world: &world,
            worker,
        };
        for number in (index..first).step_by(processors) {
            me.start(|thread| workload.begin(thread, number));
        }
        sched::run(worker, &world);
    });
    assert_eq!(policy.len(None), 0, "threads are left");
    assert!(
        (0..processors).all(|i| policy.len(Some(i)) == 0),
        "threads are left"
    );
    assert_eq!(world.live.get(), 0, "a thread is lost");
    let ended_at = world.done_at.get().or(world.ended_at.get());
    let outcome = Outcome {
        nanoseconds: ended_at.expect("it has not ended"),
        operations: workload.operations(processors),
        threads: world.threads.get(),
        steals: cluster.processors().map(|p| p.steals.get()).sum(),
        wake_ups: cluster.wake_ups.get(),
        idle_wake_ups: cluster.tally.idle_wake_ups.get(),
        vain_searches: cluster.tally.vain_searches.get(),
    };
    // SAFETY: the simulation is over, and no thread is left.
    unsafe { cluster.end() };
    outcome
}

impl Program for World<'_> {
    fn step(&self, worker: &'static Worker, thread: &'static Green) -> Action {
        let processor = Processor {
            world: self,
            worker,
        };
        processor.work(self.costs.switch);
        self.workload.step(&processor, thread)
    }

    fn ended(&self, _: &'static Green) {
        self.live.set(self.live.get() - 1);
        if self.live.get() == 0 {
            self.ended_at.set(Some(virtual_time::now()));
            self.cluster.stop();
        }
    }
}

// ---- for the threads ----

impl Processor<'_> {
    fn start(&self, begin: impl FnOnce(&'static Green)) {
        // SAFETY: this is the thread that runs here, or comes before all others.
        let mut processor = unsafe { sched::enter(self.worker) };
        let thread = sched::start::new_green(&mut processor);
        thread.cluster.set(Some(self.world.cluster));
        begin(thread);
        processor.counts.spawned.add(1);
        sched::ready_from(&processor, thread, Readied::Spawned);
    }

    /// A new thread, for which `begin` says what it does.
    pub(crate) fn spawn(&self, begin: impl FnOnce(&'static Green)) {
        self.world.live.set(self.world.live.get() + 1);
        self.world.threads.set(self.world.threads.get() + 1);
        self.work(self.world.costs.thread);
        self.start(begin);
    }

    /// Wakes `thread`, which is parked or about to be. Once a wait.
    pub(crate) fn wake(&self, thread: &'static Green) {
        // SAFETY: this is the thread that runs here.
        let processor = unsafe { sched::enter(self.worker) };
        sched::wake_up(&processor, thread);
    }

    /// Takes about so long: a tenth more or less, so that processors do not keep step.
    pub(crate) fn work(&self, nanoseconds: f64) {
        let random = self.random() as f64 / u64::MAX as f64;
        virtual_time::spend(nanoseconds * (0.9 + 0.2 * random));
    }

    /// What is counted is done; what comes is the end.
    pub(crate) fn is_done(&self) {
        self.world.done_at.set(Some(virtual_time::now()));
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        self.world.randoms[virtual_time::cpu()].borrow_mut().next()
    }
}
