//! Simulates every workload under every policy on 1 to 1,024 processors, writes the tables of
//! `docs/scaling.md` and draws `docs/scaling.svg`.

mod targets;

use greenthread_simulator::contenders::{self, Contender};
use greenthread_simulator::cost::{Costs, MEASURED, XEON};
use greenthread_simulator::document::{self, Table, round};
use greenthread_simulator::machine::{Outcome, simulate};
use greenthread_simulator::plot::{self, Curve, Panel};
use greenthread_simulator::suite::{SEED, WORKLOADS};
use greenthread_simulator::workload::{Chains, Workload};

fn counts() -> impl Iterator<Item = usize> {
    (0..=10).map(|power| 1 << power)
}

/// Enough operations that the beginning and the end do not count, and not so many that it takes long.
fn operations(processors: usize) -> u64 {
    (20_000 / processors as u64).max(100)
}

type Curves = Vec<(&'static Contender, Vec<(usize, Outcome)>)>;

fn main() {
    if std::env::args().any(|argument| argument == "--targets") {
        return targets::print();
    }
    put_costs();
    let mut panels = vec![];
    for &(name, make) in WORKLOADS {
        let curves: Curves = contenders::ALL
            .iter()
            .map(|contender| {
                let make = |count| make(count, operations(count));
                (contender, outcomes(contender, &MEASURED, make))
            })
            .collect();
        put_curves(name, &curves);
        if panels.is_empty() {
            panels.push(talk(&curves));
        }
        panels.push(Panel {
            title: format!("{name}: millions of operations a second"),
            curves: curves
                .iter()
                .map(|(contender, outcomes)| Curve {
                    name: contender.name,
                    points: outcomes
                        .iter()
                        .map(|(count, outcome)| (*count as f64, outcome.throughput()))
                        .collect(),
                })
                .collect(),
            marks: vec![],
        });
    }
    put_grains();
    put_sensitivity();
    targets::put();
    let drawn = std::fs::write(document::path("scaling.svg"), plot::draw(&panels));
    drawn.expect("docs/scaling.svg cannot be written");
}

fn outcomes(
    contender: &Contender,
    costs: &Costs,
    make: impl Fn(usize) -> Box<dyn Workload>,
) -> Vec<(usize, Outcome)> {
    let one = |count| {
        eprint!("\r{} on {count} processors      ", contender.name);
        (
            count,
            simulate(&*(contender.make)(), count, costs, &*make(count), SEED),
        )
    };
    counts().map(one).collect()
}

/// How many times longer than work stealing, and what the talk measured.
fn talk(curves: &Curves) -> Panel {
    let (_, best) = &curves[0];
    let relative = |outcomes: &[(usize, Outcome)]| {
        let pairs = outcomes.iter().zip(best);
        pairs
            .map(|((count, one), (_, best))| (*count as f64, one.nanoseconds / best.nanoseconds))
            .collect()
    };
    Panel {
        title: "chains: time, relative to work stealing".into(),
        curves: curves
            .iter()
            .map(|(contender, outcomes)| Curve {
                name: contender.name,
                points: relative(outcomes),
            })
            .collect(),
        marks: vec![("the talk", 4.0, 4.0), ("", 16.0, 31.0)],
    }
}

/// Processor time per operation.
fn put_curves(name: &str, curves: &Curves) {
    let titles = counts().map(|count| count.to_string());
    let mut table = Table::new("policy", titles.chain(["scales to".into()]));
    for (contender, outcomes) in curves {
        let times = outcomes
            .iter()
            .map(|(count, outcome)| round(outcome.per_operation(*count)));
        table.row(
            contender.name,
            times.chain([scales_to(outcomes).to_string()]),
        );
    }
    table.put(name);
}

/// The fewest processors that have four fifths of the highest throughput at any number of them.
fn scales_to(outcomes: &[(usize, Outcome)]) -> usize {
    let all = || {
        outcomes
            .iter()
            .map(|(count, outcome)| (*count, outcome.throughput()))
    };
    let highest = all().map(|(_, throughput)| throughput).fold(0.0, f64::max);
    all()
        .find(|&(_, throughput)| throughput >= 0.8 * highest)
        .map_or(1, |(count, _)| count)
}

/// Where policies stop scaling when the threads do something.
fn put_grains() {
    const GRAINS: [(&str, f64); 4] = [
        ("0 µs", 0.0),
        ("1 µs", 1_000.0),
        ("10 µs", 10_000.0),
        ("100 µs", 100_000.0),
    ];
    let mut table = Table::new("policy", GRAINS.map(|(name, _)| name.into()));
    for contender in contenders::ALL {
        let scales = GRAINS.map(|(_, work)| {
            let outcomes = outcomes(contender, &MEASURED, |count| {
                Box::new(Chains {
                    chains: 1,
                    length: operations(count).min(200),
                    work,
                })
            });
            scales_to(&outcomes).to_string()
        });
        table.row(contender.name, scales);
    }
    table.put("grains");
}

/// What the talk's figures would be on machines whose caches or wake-ups cost something else.
fn put_sensitivity() {
    let quick = |costs: Costs| Costs {
        wake_call: 1_000.0,
        wake_latency: 4_000.0,
        ..costs
    };
    let machines = [
        ("as measured", MEASURED),
        ("lines of 50 ns", MEASURED.with_lines_of(50.0)),
        ("lines of 100 ns", MEASURED.with_lines_of(100.0)),
        ("wake-ups of 1 and 4 µs", quick(MEASURED)),
        ("both, 100 ns", quick(MEASURED.with_lines_of(100.0))),
        (
            "two packages, 100 ns apart",
            MEASURED.with_two_packages(100.0),
        ),
        ("the Xeon's costs", XEON),
    ];
    let others = &contenders::ALL[1..];
    let mut table = Table::new("machine", others.iter().map(|it| it.name.into()));
    for (name, costs) in machines {
        let ratios = |count| {
            let chains = Chains {
                chains: 1,
                length: operations(count),
                work: 0.0,
            };
            let time = |contender: &Contender| {
                simulate(&*(contender.make)(), count, &costs, &chains, SEED).nanoseconds
            };
            let best = time(&contenders::ALL[0]);
            others.iter().map(move |it| time(it) / best).collect()
        };
        let (few, many): (Vec<f64>, Vec<f64>) = (ratios(4), ratios(16));
        let pairs = few.into_iter().zip(many);
        table.row(
            name,
            pairs.map(|(few, many)| format!("{} and {}", round(few), round(many))),
        );
    }
    table.put("sensitivity");
}

/// The costs: those in use, and the Xeon's.
fn put_costs() {
    /// The cost, its figures, and how they are measured.
    type Row = (&'static str, fn(&Costs) -> Vec<f64>, &'static str);
    const ROWS: &[Row] = &[
        (
            "load or store in the own cache",
            |it| vec![it.hit],
            "a loop",
        ),
        (
            "read-modify-write, own line",
            |it| vec![it.modify],
            "a loop",
        ),
        ("full fence", |it| vec![it.fence], "a loop"),
        (
            "line from another cache",
            |it| vec![it.transfer],
            "a baton between two CPUs: one way is two transfers and a keeping",
        ),
        (
            "line kept at least",
            |it| vec![it.keep],
            "two CPUs that increment one word",
        ),
        (
            "pause; look at the clock",
            |it| vec![it.pause, it.ticks],
            "loops",
        ),
        ("futex call in vain", |it| vec![it.system_call], "a loop"),
        (
            "futex call that wakes, beyond that",
            |it| vec![it.wake_call],
            "two CPUs, one asleep for 50 µs",
        ),
        (
            "until the sleeper runs",
            |it| vec![it.wake_latency],
            "the same",
        ),
        (
            "switch",
            |it| vec![it.switch],
            "yields, work stealing, one processor, less what the scheduler costs in the simulation",
        ),
        (
            "thread, from spawn to exit",
            |it| vec![it.thread],
            "chains, the same way",
        ),
        (
            "thread runs on another processor than before",
            |it| vec![it.migration],
            "ten lines written in turn by two CPUs (`BENCHMARKS.md` counts ten)",
        ),
    ];
    let titles = ["ns, in use", "ns, Xeon", "measured by"];
    let mut table = Table::new("cost", titles.map(String::from));
    for &(cost, figures, by) in ROWS {
        let of = |costs: &Costs| {
            let figures: Vec<_> = figures(costs).into_iter().map(round).collect();
            figures.join("; ")
        };
        table.row(cost, [of(&MEASURED), of(&XEON), by.into()]);
    }
    table.put("costs");
}
