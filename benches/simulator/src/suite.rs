//! What is simulated: the workloads, their sizes, and the machines.

use crate::contenders::Contender;
use crate::cost::{Costs, MEASURED, XEON};
use crate::machine::{Outcome, simulate};
use crate::workload::{Burst, Chains, Churn, Tree, Turns, Workload, Yields};

pub const SEED: u64 = 1;

/// The many processors of the targets.
pub const MANY: usize = 128;
/// Operations of each, so that the beginning and the end, some wake-ups long, count little.
pub const EACH: u64 = 1_000;

/// A workload for so many processors, each with so many operations, more or less.
pub type Make = fn(usize, u64) -> Box<dyn Workload>;

pub const WORKLOADS: &[(&str, Make)] = &[
    ("chains", |_, each| {
        Box::new(Chains {
            chains: 1,
            length: each,
            work: 0.0,
        })
    }),
    ("burst", |_, each| Box::new(Burst { size: each })),
    ("yields", |_, each| {
        Box::new(Yields {
            threads: 10,
            each: each.div_ceil(10),
        })
    }),
    ("tree", |_, _| Box::new(Tree { depth: 4 })),
    ("churn", |processors, each| {
        Box::new(Churn::new(processors, each))
    }),
];

/// A tree ten times as large: on 128 processors the small one has 87 threads for each, and a good part of
/// its time is that in which it begins and ends.
pub const LARGE_TREE: (&str, Make) = ("large tree", |_, _| Box::new(Tree { depth: 5 }));

/// A machine that we do not have: its name and its costs.
pub type Machine = (&'static str, Costs);

/// The machines of the targets: lines as near as measured, lines that are far, and two packages; and one
/// on which everything was measured anew.
#[must_use]
pub fn machines() -> [Machine; 4] {
    [
        ("lines of 17 ns", MEASURED),
        ("lines of 100 ns", MEASURED.with_lines_of(100.0)),
        (
            "two packages, 17 and 100 ns",
            MEASURED.with_two_packages(100.0),
        ),
        ("the Xeon's costs", XEON),
    ]
}

/// What an operation takes on so many processors at least, beyond what it takes on one: a thread of churn
/// finds the slot, and the park state of the thread in it, where other processors have left them, and that
/// thread runs on another processor than before. No policy can help it, for the slots are random. The
/// threads of the other workloads share nothing.
#[must_use]
pub fn own_lines(workload: &str, costs: &Costs, processors: usize) -> f64 {
    if workload != "churn" {
        return 0.0;
    }
    let elsewhere = 1.0 - 1.0 / processors as f64;
    let across = (1.0 - 1.0 / costs.packages as f64) / elsewhere.max(f64::MIN_POSITIVE);
    let line = costs.transfer + (costs.across - costs.transfer) * across.min(1.0);
    elsewhere * line * (2.0 + costs.migration / costs.transfer)
}

/// Lets `contender` do the work that `make` makes.
#[must_use]
pub fn outcome(
    contender: &Contender,
    costs: &Costs,
    processors: usize,
    make: Make,
    each: u64,
) -> Outcome {
    let work = make(processors, each);
    simulate(&*(contender.make)(), processors, costs, &*work, SEED)
}

/// The fairness of yields: three threads for two processors yield two thousand times each, on average. The
/// least, the median and the most turns of a thread, in shares of the average. Each is the median of
/// several seeds: which thread changes places when is as good as random.
#[must_use]
pub fn turns(contender: &Contender, costs: &Costs, processors: usize) -> [f64; 3] {
    const SEEDS: u64 = 7;
    let shares: Vec<_> = (0..SEEDS)
        .map(|seed| {
            let turns = Turns::new(processors * 3 / 2, 2_000);
            let policy = (contender.make)();
            simulate(&*policy, processors, costs, &turns, SEED + seed);
            turns.shares()
        })
        .collect();
    [0, 1, 2].map(|place| {
        let mut of_seeds: Vec<_> = shares.iter().map(|shares| shares[place]).collect();
        of_seeds.sort_by(f64::total_cmp);
        of_seeds[of_seeds.len() / 2]
    })
}
