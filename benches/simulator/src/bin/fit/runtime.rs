//! The runtime and its simulation: the same work on both.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::{self, Thread};
use std::time::Instant;

use greenthread::policy as real;
use greenthread::runtime::Builder;
use greenthread_simulator::cost::Costs;
use greenthread_simulator::machine::simulate;
use greenthread_simulator::workload::{Burst, Chains, Churn, Tree, Workload, Yields};
use greenthread_simulator::{policy, virtual_time};

use crate::{Apart, LOCKINGS, typical};

const CHAIN: u64 = 100_000;
const YIELDS: u64 = 20_000;
const YIELDERS: usize = 10;
const BURST: usize = 1_000;
const DEPTH: u32 = 4;
const CHILDREN: usize = 10;
const WAKE_UPS: u64 = 50_000;
const CHURNERS: usize = 8;
const SLOTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Chains,
    Burst,
    Yields,
    Tree,
    Churn,
}

pub(crate) const KINDS: [Kind; 5] = [
    Kind::Chains,
    Kind::Burst,
    Kind::Yields,
    Kind::Tree,
    Kind::Churn,
];

/// The real ones, in the contenders' order.
pub(crate) const REAL: &[fn(Builder) -> Builder] = &[
    |builder| builder.policy(real::WorkStealing::new()),
    |builder| builder.policy(real::GlobalQueue::new()),
    |builder| builder.policy(real::RelaxedFifo::new()),
    |builder| builder.policy(real::LeastLoaded::new()),
    |builder| builder.policy(real::Priorities::new()),
];

/// Processor time per operation, in nanoseconds.
pub(crate) fn simulated(
    kind: Kind,
    policy: &dyn policy::Policy,
    processors: usize,
    costs: &Costs,
) -> f64 {
    let work: &dyn Workload = match kind {
        Kind::Chains => &Chains {
            chains: 1,
            length: CHAIN,
            work: 0.0,
        },
        Kind::Burst => &Burst { size: BURST as u64 },
        Kind::Yields => &Yields {
            threads: YIELDERS,
            each: YIELDS,
        },
        Kind::Tree => &Tree { depth: DEPTH },
        Kind::Churn => &Churn::new(processors, WAKE_UPS),
    };
    simulate(policy, processors, costs, work, 1).per_operation(processors)
}

/// The same on this machine.
pub(crate) fn measured(kind: Kind, builder: Builder, processors: usize) -> f64 {
    let runtime = builder.processors(processors).build();
    let runtime = runtime.expect("no runtime");
    typical(|| {
        // So many threads begin, and the end comes when so many parts of the work have been done.
        let (threads, parts, operations) = match kind {
            Kind::Chains => (processors, processors, CHAIN as usize * processors),
            Kind::Burst => (processors, processors, BURST * processors),
            Kind::Yields => {
                let threads = processors * YIELDERS;
                (threads, threads, threads * YIELDS as usize)
            }
            Kind::Tree => (1, 1, (0..=DEPTH).map(|level| CHILDREN.pow(level)).sum()),
            Kind::Churn => {
                let threads = processors * CHURNERS;
                // It says itself how much it has done.
                (threads, threads, 0)
            }
        };
        let end = Arc::new(End {
            left: AtomicUsize::new(parts),
            wake_ups: AtomicU64::new(0),
            main: thread::current(),
        });
        let (done, slots) = (end.clone(), Arc::new(Slots::new(processors)));
        let start = Instant::now();
        runtime
            .spawn(move || {
                for index in 0..threads {
                    let (end, slots) = (end.clone(), slots.clone());
                    greenthread::spawn(move || match kind {
                        Kind::Chains => chain(CHAIN - 1, end),
                        Kind::Burst => burst(end),
                        Kind::Yields => yields(end),
                        Kind::Tree => {
                            tree(DEPTH, None);
                            end.one_less();
                        }
                        Kind::Churn => {
                            end.wake_ups.fetch_add(slots.churn(index), Relaxed);
                            end.one_less();
                        }
                    });
                }
            })
            .join()
            .expect("it does not panic");
        while done.left.load(Acquire) != 0 {
            thread::park();
        }
        let operations = operations + done.wake_ups.load(Relaxed) as usize;
        start.elapsed().as_nanos() as f64 * processors as f64 / operations as f64
    })
}

/// Wakes the main thread when all has ended.
struct End {
    left: AtomicUsize,
    wake_ups: AtomicU64,
    main: Thread,
}

impl End {
    fn one_less(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.main.unpark();
        }
    }
}

fn chain(left: u64, end: Arc<End>) {
    match left {
        0 => end.one_less(),
        _ => drop(greenthread::spawn(move || chain(left - 1, end))),
    }
}

fn burst(end: Arc<End>) {
    let left = Arc::new((AtomicUsize::new(BURST), end));
    for _ in 0..BURST {
        let left = left.clone();
        greenthread::spawn(move || {
            if left.0.fetch_sub(1, AcqRel) == 1 {
                left.1.one_less();
            }
        });
    }
}

fn yields(end: Arc<End>) {
    (0..YIELDS).for_each(|_| greenthread::yield_now());
    end.one_less();
}

/// A thread that waits for its children.
struct Parent {
    children: AtomicUsize,
    thread: greenthread::Thread,
}

fn tree(levels: u32, parent: Option<Arc<Parent>>) {
    if levels != 0 {
        let me = Arc::new(Parent {
            children: AtomicUsize::new(CHILDREN),
            thread: greenthread::current(),
        });
        for _ in 0..CHILDREN {
            let me = me.clone();
            greenthread::spawn(move || tree(levels - 1, Some(me)));
        }
        while me.children.load(Acquire) != 0 {
            greenthread::park();
        }
    }
    if let Some(parent) = parent
        && parent.children.fetch_sub(1, AcqRel) == 1
    {
        parent.thread.unpark();
    }
}

/// Churn's.
struct Slots {
    slots: Vec<Apart<AtomicPtr<greenthread::Thread>>>,
    is_over: Apart<AtomicBool>,
}

impl Slots {
    fn new(processors: usize) -> Slots {
        let slot = |_| Apart(AtomicPtr::new(ptr::null_mut()));
        Slots {
            slots: (0..SLOTS * processors).map(slot).collect(),
            is_over: Apart(AtomicBool::new(false)),
        }
    }

    /// Puts `thread` into the slot, and wakes the thread that is there.
    fn put(&self, slot: usize, thread: *mut greenthread::Thread) -> bool {
        let found = self.slots[slot].0.swap(thread, SeqCst);
        // SAFETY: null, or a handle that is never freed.
        let found = unsafe { found.as_ref() };
        found.inspect(|other| other.unpark()).is_some()
    }

    /// Until some thread has woken others so many times; returns how many times this one has.
    fn churn(&self, index: usize) -> u64 {
        let me: *mut greenthread::Thread = Box::leak(Box::new(greenthread::current()));
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        let mut wake_ups = 0;
        loop {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let slot = random as usize % self.slots.len();
            wake_ups += u64::from(self.put(slot, me));
            if wake_ups >= WAKE_UPS / CHURNERS as u64 {
                self.is_over.0.store(true, SeqCst);
            }
            if self.is_over.0.load(SeqCst) {
                // Whoever is in a slot is woken, and ends too; this thread may be in one itself.
                (0..self.slots.len()).for_each(|slot| _ = self.put(slot, ptr::null_mut()));
                return wake_ups;
            }
            greenthread::park();
        }
    }
}

// ---- without a runtime ----

pub(crate) fn modified_in_virtual_time(costs: &Costs) -> f64 {
    let word = Apart(0_u64);
    let end = Cell::new(0.0_f64);
    virtual_time::run(2, costs, |_| {
        for _ in 0..LOCKINGS {
            virtual_time::modify(&raw const word.0);
        }
        end.set(end.get().max(virtual_time::now()));
    });
    end.get() / (2 * LOCKINGS) as f64
}

pub(crate) fn locked_in_virtual_time(processors: usize, costs: &Costs) -> f64 {
    let lock = Apart(policy::Lock::new(0_u64));
    let end = Cell::new(0.0_f64);
    virtual_time::run(processors, costs, |_| {
        for _ in 0..LOCKINGS {
            *lock.0.lock() += 1;
        }
        end.set(end.get().max(virtual_time::now()));
    });
    end.get() / (LOCKINGS * processors as u64) as f64
}
