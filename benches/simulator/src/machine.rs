//! The scheduler around a policy: what `src/engine/sched/mod.rs` and `src/engine/sched/idlers.rs` do, as far as
//! costs go. The idle word is theirs.
//!
//! The same: the order in which work is looked for, the passes of a thief and its pauses, how many may
//! search, who is woken when, the look after lying down, the last searcher's ramp.
//!
//! Left out: timers (but for the look at those of others), I/O, the monitor, preemption, hand-off, resizing,
//! kernel threads beside processors (here each processor has one), and locked threads. Records
//! and stacks come from a processor's own cache, which never overflows; when it is empty, a new one
//! costs nothing but what each thread costs.

use core::cell::{Cell, RefCell};

use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::cost::Costs;
use crate::green::Green;
use crate::policy::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::sys::futex;
use crate::sys::lock::Lock;
use crate::virtual_time;
use crate::workload::Workload;

#[path = "../../../src/engine/sched/idle.rs"]
mod idle;

const PASSES: u32 = 4;
const PAUSES: u32 = 200;

// What a ticket says; the library's is `green::ticket`.
const RUNS: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// What a thread wants when it leaves its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Yield,
    Park,
    Exit,
}

/// What came out of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Until the last thread had ended, or the workload had done what is counted.
    pub nanoseconds: f64,
    pub operations: u64,
    pub threads: u64,
    pub steals: u64,
    pub wake_ups: u64,
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
}

/// What all processors share, as a cluster does.
#[repr(align(128))]
struct World<'a> {
    policy: &'a dyn Policy,
    costs: &'a Costs,
    workload: &'a dyn Workload,
    idle: Apart<idle::IdleWord>,
    sleepers: Apart<Lock<Vec<usize>>>,
    machines: Vec<Machine>,
    // Bookkeeping, which costs nothing.
    live: Cell<u64>,
    threads: Cell<u64>,
    steals: Cell<u64>,
    wake_ups: Cell<u64>,
    done_at: Cell<Option<f64>>,
    ended_at: Cell<Option<f64>>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

#[repr(align(128))]
struct Machine {
    woken: AtomicU32,
    records: RefCell<Vec<&'static Green>>,
    made: RefCell<Vec<*mut Green>>,
    random: Cell<u64>,
}

/// A processor, as the threads on it see it.
pub struct Processor<'a> {
    world: &'a World<'a>,
    index: usize,
}

/// Lets `workload` run to its end under `policy`.
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
    let world = World {
        policy,
        costs,
        workload,
        idle: Apart(idle::IdleWord::new(processors as u32)),
        sleepers: Apart(Lock::new(Vec::with_capacity(processors))),
        machines: (0..processors as u64)
            .map(|i| Machine {
                woken: AtomicU32::new(0),
                records: RefCell::default(),
                made: RefCell::default(),
                random: Cell::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + i + 1)),
            })
            .collect(),
        live: Cell::new(first as u64),
        threads: Cell::new(first as u64),
        steals: Cell::new(0),
        wake_ups: Cell::new(0),
        done_at: Cell::new(None),
        ended_at: Cell::new(None),
    };
    virtual_time::run(processors, costs, |index| {
        let world = &world;
        Processor { world, index }.run(first);
    });
    assert_eq!(policy.len(None), 0, "threads are left");
    assert!(
        (0..processors).all(|i| policy.len(Some(i)) == 0),
        "threads are left"
    );
    assert_eq!(world.live.get(), 0, "a thread is lost");
    for machine in &world.machines {
        for &record in machine.made.borrow().iter() {
            // SAFETY: made by a box, and in no queue any more.
            drop(unsafe { Box::from_raw(record) });
        }
    }
    Outcome {
        nanoseconds: world
            .done_at
            .get()
            .or(world.ended_at.get())
            .expect("it has not ended"),
        operations: workload.operations(processors),
        threads: world.threads.get(),
        steals: world.steals.get(),
        wake_ups: world.wake_ups.get(),
    }
}

// ---- the run loop ----

impl Processor<'_> {
    /// All processors begin awake, with their share of the first threads.
    fn run(&self, first_threads: usize) {
        let count = self.world.machines.len();
        for number in (self.index..first_threads).step_by(count) {
            let thread = self.new_thread();
            self.world.workload.begin(thread, number);
            self.world
                .policy
                .ready(Ready::new(thread), Readied::Spawned, Some(&self.seat()));
        }
        let mut searching = false;
        while !self.is_over() {
            match self.find_work(searching) {
                Ok(next) => {
                    self.run_one_after_another(next);
                    searching = false;
                }
                Err(NothingFound { searching: was }) => {
                    self.rest(was);
                    searching = true;
                }
            }
        }
    }

    fn run_one_after_another(&self, mut next: Next) {
        loop {
            let thread = next.thread.into_green();
            self.work(self.world.costs.switch);
            if thread.home.replace(self.index) != self.index {
                virtual_time::spend(self.world.costs.migration);
            }
            thread.ticket.store(RUNS, Relaxed);
            match self.world.workload.step(self, thread) {
                Action::Yield => self.ready(thread, Readied::Yielded),
                Action::Park => self.park(thread),
                Action::Exit => self.bury(thread),
            }
            match self.own_queues() {
                Some(following) => next = following,
                None => return,
            }
        }
    }

    fn ready(&self, thread: &'static Green, how: Readied) {
        let policy = &self.world.policy;
        let for_others = policy.ready(Ready::new(thread), how, Some(&self.seat()));
        if for_others == ForOthers::Work {
            self.notify();
        }
    }

    fn park(&self, thread: &'static Green) {
        let ticket = &thread.ticket;
        if ticket
            .compare_exchange(RUNS, PARKED, Relaxed, Relaxed)
            .is_err()
        {
            self.ready(thread, Readied::Yielded);
        }
    }

    fn bury(&self, thread: &'static Green) {
        let world = self.world;
        world.machines[self.index].records.borrow_mut().push(thread);
        world.live.set(world.live.get() - 1);
        if world.live.get() == 0 {
            world.ended_at.set(Some(virtual_time::now()));
            // The simulation is over: nobody sleeps on.
            for machine in &world.machines {
                machine.woken.store(1, Relaxed);
                futex::wake(&raw const machine.woken, 1);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.world.ended_at.get().is_some()
    }
}

// ---- finding work ----

struct NothingFound {
    searching: bool,
}

impl Processor<'_> {
    fn seat(&self) -> Seat {
        // SAFETY: this is the one that acts as this processor, and drops the seat before it goes on.
        unsafe { Seat::new(self.index, 1) }
    }

    fn find_work(&self, mut searching: bool) -> Result<Next, NothingFound> {
        if let Some(next) = self.own_queues() {
            if searching {
                self.stop_searching();
            }
            return Ok(next);
        }
        let limit = self.world.machines.len().div_ceil(2) as u32;
        searching = searching || self.world.idle.0.start_search(limit);
        if !searching {
            return Err(NothingFound { searching });
        }
        match self.steal() {
            Some(next) => {
                self.stop_searching();
                Ok(next)
            }
            None => Err(NothingFound { searching }),
        }
    }

    fn own_queues(&self) -> Option<Next> {
        let others = match self.world.idle.0.is_everybody_busy() {
            true => Others::Busy,
            false => Others::Idle,
        };
        self.world.policy.next(&self.seat(), others)
    }

    fn stop_searching(&self) {
        if self.world.idle.0.found() {
            virtual_time::fence();
            if self.world.policy.work_for_others() == ForOthers::Work {
                self.notify();
            }
        }
    }

    fn steal(&self) -> Option<Next> {
        let count = self.world.machines.len();
        let alone = self.world.idle.0.awake() <= 1;
        for pass in if alone { PASSES } else { 1 }..=PASSES {
            // The others' timers: nobody writes there.
            virtual_time::spend(self.world.costs.hit * count as f64);
            if let Some(next) = self.own_queues() {
                return Some(next);
            }
            let random = (self.random() >> 32) as u32;
            let victims = Victims::new(self.index, count, random, pass == PASSES);
            if let Some(thread) = self.world.policy.steal(&self.seat(), victims) {
                self.world.steals.set(self.world.steals.get() + 1);
                return Some(thread.into());
            }
            if !alone {
                virtual_time::spend(self.world.costs.pause * f64::from(PAUSES));
            }
        }
        None
    }
}

// ---- sleeping and waking ----

impl Processor<'_> {
    fn notify(&self) {
        if self.world.idle.0.claim_wake() {
            let sleeper = self.world.sleepers.0.lock().pop();
            let sleeper = &self.world.machines[sleeper.expect("claimed, and not in the list")];
            self.world.wake_ups.set(self.world.wake_ups.get() + 1);
            sleeper.woken.store(1, Relaxed);
            futex::wake(&raw const sleeper.woken, 1);
        }
    }

    /// Sleeps, unless there is something to do; gets up as a searcher.
    fn rest(&self, searching: bool) {
        {
            let mut sleepers = self.world.sleepers.0.lock();
            sleepers.push(self.index);
            self.world.idle.0.announce_sleep(searching);
        }
        if self.world.policy.work_for_others() == ForOthers::Work && self.get_up() {
            return;
        }
        let woken = &self.world.machines[self.index].woken;
        while woken.load(Relaxed) == 0 && !self.is_over() {
            futex::wait(woken, 0, None);
        }
        woken.store(0, Relaxed);
    }

    /// False: somebody is about to wake this one.
    fn get_up(&self) -> bool {
        let mut sleepers = self.world.sleepers.0.lock();
        let Some(place) = sleepers.iter().position(|&index| index == self.index) else {
            return false;
        };
        let may = self.world.idle.0.cancel_sleep();
        if may {
            sleepers.remove(place);
        }
        may
    }
}

// ---- for the threads ----

impl Processor<'_> {
    fn new_thread(&self) -> &'static Green {
        let machine = &self.world.machines[self.index];
        let used = machine.records.borrow_mut().pop();
        used.unwrap_or_else(|| {
            let record = Box::into_raw(Box::new(Green::new(self.index)));
            machine.made.borrow_mut().push(record);
            // SAFETY: it is freed when the simulation has ended.
            unsafe { &*record }
        })
    }

    /// A new thread, for which `begin` says what it does.
    pub(crate) fn spawn(&self, begin: impl FnOnce(&'static Green)) {
        self.world.live.set(self.world.live.get() + 1);
        self.world.threads.set(self.world.threads.get() + 1);
        self.work(self.world.costs.thread);
        let thread = self.new_thread();
        if thread.home.replace(self.index) != self.index {
            virtual_time::spend(self.world.costs.migration);
        }
        begin(thread);
        self.ready(thread, Readied::Spawned);
    }

    /// Wakes `thread`, which is parked or about to be. Once a wait.
    pub(crate) fn wake(&self, thread: &'static Green) {
        if thread.ticket.swap(NOTIFIED, Relaxed) == PARKED {
            self.ready(thread, Readied::Woken);
        }
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

    /// A random number (xorshift; Marsaglia 2003).
    pub(crate) fn random(&self) -> u64 {
        let random = &self.world.machines[self.index].random;
        let mut x = random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random.set(x);
        x
    }
}
