//! The faults of [`PROGRAMS`](crate::programs::PROGRAMS) are found: within 1,000 seeds, and not by luck.
//!
//! [`is_no_luck`] goes through disjoint blocks of 1,000 seeds and prints a table, with `--nocapture`. It reads variables:
//!
//! | | |
//! |---|---|
//! | `GT_SIM_BLOCKS` | how many blocks, 10 unless told otherwise; 100 in `.ci/full` |
//! | `GT_SIM_RUNS` | how many ordinary runs, on two processors and on std's threads: none unless told so; 1,000 in `.ci/full` |

use std::io::{BufRead, BufReader, Write};
use std::panic::catch_unwind;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use greenthread::runtime::Runtime;
use greenthread::sim::{Builder, Failure};

use crate::common::{child_case, child_command};
use crate::programs::{PROGRAMS, Program, Threads};
use crate::support::{POINTS, number, seed_of};

/// The seeds of a block.
const BLOCK: u64 = 1000;

fn block(program: &Program, number: u64) -> Option<Failure> {
    let run = program.run;
    let builder = Builder::new().first_seed(number * BLOCK).seeds(BLOCK);
    let failure = builder.run(move || run(Threads::Green)).err()?;
    let said = failure.to_string();
    assert!(said.contains(program.says), "not the fault: {said}");
    Some(failure)
}

/// The first block finds the fault.
pub fn is_found(name: &str) {
    let program = PROGRAMS.iter().find(|program| program.name == name);
    let program = program.expect("a program of this name");
    if program.needs_points {
        crate::support::needs_points!();
    }
    let failure = block(program, 0).unwrap_or_else(|| panic!("{name}: no seed fails"));
    let said = failure.to_string();
    println!("{said}");
    assert!(said.contains("fails alone: yes"), "{said}");
}

#[test]
fn is_no_luck() {
    let blocks = number("GT_SIM_BLOCKS", 10);
    let seeds_needed = |program: &'static Program| {
        let is_visible = POINTS || !program.needs_points;
        let failures = (0..if is_visible { blocks } else { 0 }).filter_map(|number| {
            let seed = seed_of(&block(program, number)?);
            Some(seed - number * BLOCK + 1)
        });
        let mut needed: Vec<u64> = failures.collect();
        needed.sort_unstable();
        (program, is_visible, needed)
    };
    let found: Vec<_> = PROGRAMS.iter().map(seeds_needed).collect();
    // A process that a check has made comes no further than to its check: the ordinary runs are last.
    let runs = number("GT_SIM_RUNS", 0);
    println!(
        "| fault | of {blocks} blocks of {BLOCK} seeds find it | seeds needed, median | \
        of {runs} runs on 2 processors fail | \
        on std's threads |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (program, is_visible, needed) in &found {
        let name = program.name.replace('_', " ");
        let [green, kernel] =
            [Threads::Green, Threads::Kernel].map(|on| ordinary(program, on, runs));
        let median = needed.get(needed.len() / 2).copied().unwrap_or(0);
        let blocks = match is_visible {
            true => format!("{} | {median}", needed.len()),
            false => "needs points at atomics |".into(),
        };
        println!("| {name} | {blocks} | {green} | {kernel} |");
    }
    for (program, is_visible, needed) in &found {
        let count = needed.len() as u64;
        assert!(
            !is_visible || count * 100 >= blocks * 95,
            "{}: found in {count} of {blocks} blocks",
            program.name
        );
    }
}

// ==== ordinary runs ====

const RUNS: &str = "bugs::ordinary_runs";
/// A run that takes so long hangs: the time-out of its program is a small part of this.
const HANGS: Duration = Duration::from_secs(3);

/// How many of so many ordinary runs fail. They are in processes of their own, which may crash, and end at a run that hangs.
fn ordinary(program: &Program, on: Threads, runs: u64) -> u64 {
    let (mut done, mut failed) = (0, 0);
    while done < runs {
        let case = format!("{} {on:?} {}", program.name, runs - done);
        let mut command = child_command(RUNS, &case);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ends: Vec<String> = lines.map_while(Result::ok).collect();
        child.wait().unwrap();
        let count = |end: &str| ends.iter().filter(|line| line.ends_with(end)).count() as u64;
        let (well, badly) = (count("run: well"), count("run: badly"));
        // The last run may have taken the process with it.
        let crashed = u64::from(done + well + badly < runs);
        done += well + badly + crashed;
        failed += badly + crashed;
    }
    failed
}

/// In a child of [`ordinary`]: runs.
#[test]
fn ordinary_runs() {
    let Some(case) = child_case(RUNS) else { return };
    let mut words = case.split(' ');
    let mut next = || words.next().unwrap();
    let (name, on, runs) = (next(), next(), next().parse::<u64>().unwrap());
    let program = PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .unwrap();
    let (run, is_green) = (program.run, on == "Green");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let (say, ended) = mpsc::channel();
    let body = move || {
        for _ in 0..runs {
            let ended = match is_green {
                true => runtime.spawn(move || run(Threads::Green)).join(),
                false => catch_unwind(|| run(Threads::Kernel)),
            };
            say.send(ended.is_ok()).unwrap();
        }
    };
    std::thread::spawn(body);
    let mut out = std::io::stdout();
    for _ in 0..runs {
        match ended.recv_timeout(HANGS) {
            Ok(true) => writeln!(out, "run: well").unwrap(),
            Ok(false) => writeln!(out, "run: badly").unwrap(),
            // The one who counts sees that a run is missing.
            Err(_) => break,
        }
    }
    std::process::exit(0);
}
