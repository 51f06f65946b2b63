//! greenthread beside its peers on the same work, in the same run.
//!
//! The idea: this machine is noisy, so numbers of different minutes cannot be compared. Every
//! measurement is therefore one short process (`run CONTENDER KIND N WORKERS OPS`, also the
//! command line of the Go program), and the contenders of a row take turns, round after round,
//! starting from a different one each round. A round is all rows once: what disturbs the machine for a
//! minute then disturbs a round of many rows, and not all rounds of one. A row shows each one's median
//! and best.
//!
//! Invariants:
//! 1. All contenders of a row do the same number of operations with the same number of workers, but for
//!    kernel threads that wake each other ([`Work::ops_of`]).
//! 2. All work is done and timed inside the runtime measured, after a warm-up of the same kind,
//!    in a process that has started no other runtime.
//! 3. A contender that lacks what a row needs takes no part in it; one that fails or hangs shows as such in its row and disturbs no other.

#[path = "../../support/blocking.rs"]
mod blocking;
#[path = "../../support/child.rs"]
mod child;
#[path = "../../support/go.rs"]
mod go;
mod on_greenthread;
mod on_may;
mod on_std;
mod on_tokio;
mod table;
#[path = "../../support/tsv.rs"]
mod tsv;
mod work;

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use child::Failure;
use table::Row;
use work::Work;

/// What is measured, and how many operations a measurement takes.
const WORKS: [(Work, u64); 13] = [
    (Work::Spawn(1), 100_000),
    (Work::Spawn(1000), 100_000),
    (Work::Yield(2), 1_000_000),
    (Work::Yield(10), 1_000_000),
    (Work::Yield(1000), 1_000_000),
    (Work::Wake, 400_000),
    (Work::PingPong(1), 200_000),
    (Work::PingPong(0), 200_000),
    (Work::Stream(1), 1_000_000),
    (Work::Stream(4), 1_000_000),
    (Work::Mutex(2), 1_000_000),
    (Work::Mutex(100), 1_000_000),
    (Work::Mutex(1000), 1_000_000),
];

/// Far beyond what any measurement takes: who is not done by then hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const USAGE: &str = "usage: greenthread-peers [--rounds N] [--workers N] [--tsv] [WORD]...
  --tsv: no table, but a line for each measurement, for benches/compare
  WORD: part of a row's name, or its kind: spawn, yield, wake, ping-pong, stream or mutex";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((first, rest)) if first == "run" => run(rest),
        _ => compare(&args),
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// One measurement in this process: `CONTENDER KIND N WORKERS OPS`. Prints `CONTENDER ns_per_op`.
fn run(args: &[String]) -> Option<()> {
    let [contender, kind, n, workers, ops] = args else {
        return None;
    };
    let measure = match contender.as_str() {
        "greenthread" => on_greenthread::measure,
        "tokio" => on_tokio::measure,
        "may" => on_may::measure,
        "std" => on_std::measure,
        "crossbeam" => on_std::measure_crossbeam,
        _ => return None,
    };
    let work = Work::parse(kind, n.parse().ok()?)?;
    let ops: u64 = ops.parse().ok()?;
    let elapsed = measure(work, workers.parse().ok()?, ops);
    println!("{contender} {:.2}", elapsed.as_nanos() as f64 / ops as f64);
    Some(())
}

/// The rows asked for, as a markdown table, or as lines for `benches/compare`.
fn compare(args: &[String]) -> Option<()> {
    let (mut rounds, mut workers, mut tsv, mut words) = (7, vec![2, 1], false, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse().ok().filter(|&n: &usize| n > 0);
        match arg.as_str() {
            "--rounds" => rounds = number()?,
            "--workers" => workers = vec![number()?],
            "--tsv" => tsv = true,
            option if option.starts_with('-') => return None,
            word => words.push(word),
        }
    }
    let asked_for = |work: Work| words.is_empty() || words.iter().any(|word| work.matches(word));
    let rows: Vec<(Work, u64, usize)> = workers
        .into_iter()
        .flat_map(|workers| WORKS.map(|(work, ops)| (work, ops, workers)))
        .filter(|&(work, ..)| asked_for(work))
        .collect();

    let me = env::current_exe().expect("no path to this program");
    let mut contenders = ["greenthread", "tokio", "may", "std", "crossbeam"]
        .map(|name| (name, me.clone()))
        .to_vec();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
    if let Some(program) = go::build(source, me.with_file_name("go-peer")) {
        contenders.push(("Go", program));
    }
    contenders.retain(|(name, _)| {
        rows.iter()
            .any(|(work, _, workers)| work.is_for(name, *workers))
    });

    let names: Vec<&str> = contenders.iter().map(|&(name, _)| name).collect();
    let mut table = vec![Row::new(contenders.len()); rows.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for (&(work, ops, workers), row) in rows.iter().zip(&mut table) {
            for turn in 0..contenders.len() {
                let i = (round + turn) % contenders.len();
                let (name, program) = &contenders[i];
                if !work.is_for(name, workers) || row.has_failed(i) {
                    continue;
                }
                let measured = in_a_process(program, name, work, workers, ops);
                if tsv {
                    let s = if workers == 1 { "" } else { "s" };
                    let row = format!("{work}, {workers} worker{s}");
                    let value =
                        measured.map_or_else(|failure| failure.to_string(), |ns| ns.to_string());
                    tsv::line(&row, ("ns", "lower"), name, round, value);
                }
                row.add(i, measured.ok());
            }
        }
    }
    if !tsv {
        println!("Nanoseconds an operation: median (best) of {rounds} interleaved rounds.\n");
        println!("{}", table::head(&names));
        for (&(work, _, workers), row) in rows.iter().zip(table) {
            println!("{}", row.show(&names, &work.to_string(), workers));
        }
    }
    Some(())
}

/// Runs one measurement in a process of its own.
fn in_a_process(
    program: &Path,
    name: &str,
    work: Work,
    workers: usize,
    ops: u64,
) -> Result<f64, Failure> {
    let mut command = Command::new(program);
    command
        .args(["run", name, work.kind()])
        .args([work.n() as u64, workers as u64, work.ops_of(name, ops)].map(|n| n.to_string()));
    let line = child::output(&mut command, TIME_LIMIT)?;
    let ns = line.split_whitespace().nth(1).map(str::parse);
    ns.and_then(Result::ok).ok_or(Failure::Failed)
}
