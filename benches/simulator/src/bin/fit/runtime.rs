//! The runtime and its simulation: the same work on both.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread::{self, Thread};
use std::time::Instant;

use greenthread::policy as real;
use greenthread::runtime::Builder;
use greenthread_simulator::cost::Costs;
use greenthread_simulator::machine::simulate;
use greenthread_simulator::workload::{Chains, Workload, Yields};
use greenthread_simulator::{policy, virtual_time};

use crate::{Apart, LOCKINGS, typical};

const CHAIN: u64 = 100_000;
const YIELDS: u64 = 20_000;
const YIELDERS: usize = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Chains,
    Yields,
}

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
        Kind::Yields => &Yields {
            threads: YIELDERS,
            each: YIELDS,
        },
    };
    simulate(policy, processors, costs, work, 1).per_operation(processors)
}

/// The same on this machine.
pub(crate) fn measured(kind: Kind, builder: Builder, processors: usize) -> f64 {
    let runtime = builder.processors(processors).build();
    let runtime = runtime.expect("no runtime");
    typical(|| {
        let (parts, operations) = match kind {
            Kind::Chains => (processors, CHAIN),
            Kind::Yields => (processors * YIELDERS, YIELDS * YIELDERS as u64),
        };
        let end = Arc::new(End {
            left: AtomicUsize::new(parts),
            main: thread::current(),
        });
        let done = end.clone();
        let start = Instant::now();
        runtime
            .spawn(move || {
                for _ in 0..parts {
                    let end = end.clone();
                    greenthread::spawn(move || match kind {
                        Kind::Chains => chain(CHAIN - 1, end),
                        Kind::Yields => yields(end),
                    });
                }
            })
            .join()
            .expect("it does not panic");
        while done.left.load(Acquire) != 0 {
            thread::park();
        }
        start.elapsed().as_nanos() as f64 / operations as f64
    })
}

/// Wakes the main thread when all has ended.
struct End {
    left: AtomicUsize,
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

fn yields(end: Arc<End>) {
    (0..YIELDS).for_each(|_| greenthread::yield_now());
    end.one_less();
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
