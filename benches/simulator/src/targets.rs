//! The default policy on the machines of the targets; `--targets` prints it alone, for whoever tunes it.

use greenthread_simulator::contenders::ALL;
use greenthread_simulator::cost::MEASURED;
use greenthread_simulator::document::{Table, round};
use greenthread_simulator::suite::{
    EACH, LARGE_TREE, MANY, WORKLOADS, machines, outcome, own_lines, turns,
};

const COUNTS: [usize; 7] = [1, 2, 8, 16, 32, 64, MANY];
const FAIRNESS: [usize; 3] = [2, 16, MANY];

pub(crate) fn print() {
    let policy = &ALL[0];
    for (machine, costs) in machines() {
        println!("{}, {machine}", policy.name);
        print!("{:30}", "");
        COUNTS.iter().for_each(|count| print!("{count:>9}"));
        println!();
        for &(name, make) in WORKLOADS.iter().chain([&LARGE_TREE]) {
            let outcomes = COUNTS.map(|count| (count, outcome(policy, &costs, count, make, EACH)));
            let per_operation = outcomes.map(|(count, outcome)| outcome.per_operation(count));
            let row = |title: &str, figures: [f64; COUNTS.len()]| {
                print!("{:11}{title:19}", if title == "ns" { name } else { "" });
                figures
                    .iter()
                    .for_each(|&figure| print!("{:>9}", round(figure)));
                println!();
            };
            row("ns", per_operation);
            row(
                "ratio to 1",
                per_operation.map(|time| time / per_operation[0]),
            );
            if own_lines(name, &costs, 2) != 0.0 {
                let least =
                    |(count, time)| time / (per_operation[0] + own_lines(name, &costs, count));
                let times = core::array::from_fn(|i| (COUNTS[i], per_operation[i]));
                row("ratio to the least", times.map(least));
            }
            row("steals/s", outcomes.map(|(_, it)| it.a_second(it.steals)));
            row(
                "wake-ups/s",
                outcomes.map(|(_, it)| it.a_second(it.wake_ups)),
            );
            row(
                "idle wake-ups/s",
                outcomes.map(|(_, it)| it.a_second(it.idle_wake_ups)),
            );
            row(
                "vain searches/s",
                outcomes.map(|(_, it)| it.a_second(it.vain_searches)),
            );
        }
        println!();
    }
    println!(
        "turns of a thread that yields, three on two processors: least, median and most of the average"
    );
    for (count, shares) in FAIRNESS.map(|count| (count, turns(policy, &MEASURED, count))) {
        println!("on {count:>3} processors: {shares:.2?}");
    }
}

/// The same for `docs/scaling.md`.
pub(crate) fn put() {
    let titles = [
        "workload",
        "ns at 1",
        "ns at 128",
        "ratio",
        "ratio to the least",
        "steals a second",
        "wake-ups",
        "in vain",
        "searches in vain",
    ];
    let mut table = Table::new("machine", titles.map(String::from));
    for (machine, costs) in machines() {
        for &(name, make) in WORKLOADS.iter().chain([&LARGE_TREE]) {
            let on = |count| outcome(&ALL[0], &costs, count, make, EACH);
            let many = on(MANY);
            let (alone, among) = (on(1).per_operation(1), many.per_operation(MANY));
            let least = alone + own_lines(name, &costs, MANY);
            let [steals, wake_ups, idle, vain] = [
                many.steals,
                many.wake_ups,
                many.idle_wake_ups,
                many.vain_searches,
            ]
            .map(|count| many.a_second(count));
            let figures = [
                alone,
                among,
                among / alone,
                among / least,
                steals,
                wake_ups,
                idle,
                vain,
            ];
            let figures = figures.map(round);
            table.row(machine, [name.to_string()].into_iter().chain(figures));
        }
    }
    table.put("targets");
    let mut table = Table::new("policy", FAIRNESS.map(|count| count.to_string()));
    for contender in ALL {
        let shares = FAIRNESS.map(|count| {
            let shares = turns(contender, &MEASURED, count);
            shares.map(|share| format!("{share:.2}")).join(" · ")
        });
        table.row(contender.name, shares);
    }
    table.put("fairness");
}
