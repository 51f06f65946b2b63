//! Simulates every workload under every policy on 1 to 1,024 processors, prints the tables of
//! `docs/scaling.md` and draws `docs/scaling.svg`.

use std::path::Path;

use greenthread_simulator::contenders::{self, Contender};
use greenthread_simulator::cost::{Costs, MEASURED};
use greenthread_simulator::machine::{Outcome, simulate};
use greenthread_simulator::plot::{self, Curve, Panel};
use greenthread_simulator::workload::{Burst, Chains, Churn, Tree, Workload, Yields};

const SEED: u64 = 1;

type Make = fn(usize, u64) -> Box<dyn Workload>;

/// What is simulated. Made for so many processors, each with so many operations, more or less.
const WORKLOADS: &[(&str, Make)] = &[
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

fn counts() -> impl Iterator<Item = usize> {
    (0..=10).map(|power| 1 << power)
}

/// Enough operations that the beginning and the end do not count, and not so many that it takes long.
fn operations(processors: usize) -> u64 {
    (20_000 / processors as u64).max(100)
}

fn main() {
    let mut panels = vec![];
    for &(name, make) in WORKLOADS {
        let curves: Vec<(&Contender, Vec<(usize, Outcome)>)> = contenders::ALL
            .iter()
            .map(|contender| {
                (
                    contender,
                    outcomes(contender, &MEASURED, |count| make(count, operations(count))),
                )
            })
            .collect();
        print_table(name, &curves);
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
    print_grains();
    print_sensitivity();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scaling.svg");
    std::fs::write(path, plot::draw(&panels)).expect("docs/scaling.svg cannot be written");
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
fn talk(curves: &[(&Contender, Vec<(usize, Outcome)>)]) -> Panel {
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

fn print_table(name: &str, curves: &[(&Contender, Vec<(usize, Outcome)>)]) {
    println!("\r### {name}: processor time per operation, ns\n");
    print!("| policy |");
    counts().for_each(|count| print!(" {count} |"));
    println!(" scales to |");
    print!("|---|");
    counts().for_each(|_| print!("---:|"));
    println!("---:|");
    for (contender, outcomes) in curves {
        print!("| {} |", contender.name);
        for (count, outcome) in outcomes {
            print!(" {} |", round(outcome.per_operation(*count)));
        }
        println!(" {} |", scales_to(outcomes));
    }
    println!();
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
fn print_grains() {
    const GRAINS: [f64; 4] = [0.0, 1_000.0, 10_000.0, 100_000.0];
    println!("\r### Chains whose threads work: scales to so many processors\n");
    println!("| policy | 0 µs | 1 µs | 10 µs | 100 µs |\n|---|---:|---:|---:|---:|");
    for contender in contenders::ALL {
        print!("| {} |", contender.name);
        for work in GRAINS {
            let outcomes = outcomes(contender, &MEASURED, |count| {
                Box::new(Chains {
                    chains: 1,
                    length: operations(count).min(200),
                    work,
                })
            });
            print!(" {} |", scales_to(&outcomes));
        }
        println!();
    }
    println!();
}

/// What the talk's figures would be on machines whose caches or wake-ups cost something else.
fn print_sensitivity() {
    let machines = [
        ("as measured", MEASURED),
        (
            "transfers of 50 ns",
            Costs {
                transfer: 50.0,
                ..MEASURED
            },
        ),
        (
            "transfers of 100 ns",
            Costs {
                transfer: 100.0,
                ..MEASURED
            },
        ),
        (
            "wake-ups of 1 and 4 µs",
            Costs {
                wake_call: 1_000.0,
                wake_latency: 4_000.0,
                ..MEASURED
            },
        ),
        (
            "both, 100 ns",
            Costs {
                transfer: 100.0,
                wake_call: 1_000.0,
                wake_latency: 4_000.0,
                ..MEASURED
            },
        ),
    ];
    println!(
        "\r### Chains: time with the other policies relative to work stealing, at 4 and at 16 processors\n"
    );
    print!("| machine |");
    contenders::ALL[1..]
        .iter()
        .for_each(|contender| print!(" {} |", contender.name));
    print!("\n|---|");
    contenders::ALL[1..].iter().for_each(|_| print!("---:|"));
    println!();
    for (name, costs) in machines {
        print!("| {name} |");
        for contender in &contenders::ALL[1..] {
            let ratio = |count| {
                let chains = Chains {
                    chains: 1,
                    length: operations(count),
                    work: 0.0,
                };
                let time = |contender: &Contender| {
                    simulate(&*(contender.make)(), count, &costs, &chains, SEED).nanoseconds
                };
                time(contender) / time(&contenders::ALL[0])
            };
            print!(" {} and {} |", round(ratio(4)), round(ratio(16)));
        }
        println!();
    }
}

/// Three digits.
fn round(figure: f64) -> String {
    match figure {
        10_000.0.. => format!("{:.0}k", figure / 1_000.0),
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}
