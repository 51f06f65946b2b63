//! How long threads wait, on greenthread and on its peers, in the same run; and what a program pays
//! that has one thread.
//!
//! The idea: as in `benches/peers`, each measurement is a short process of its own (`run CONTENDER
//! WAIT LOAD SECONDS` or `serve CONTENDER`, also the command lines of the Go program), and the
//! contenders of a row take turns, round after round, starting from a different one each round. A
//! process tells every sample, so a row shows percentiles of the samples of all rounds.
//!
//! | file | what |
//! |---|---|
//! | `main` | the command line |
//! | `row` | what there is to measure, and how |
//! | `report` | percentiles, the table, and the lines for programs |
//! | `work`, `clock` | what the contenders share |
//! | `on_greenthread`, `on_tokio`, `../go` | the work |
//! | `echo` | servers' processes, and their load |
//! | `hello`, `bin`, `../go/hello` | the smallest programs: their start, their size, and what it is made of |
//!
//! Invariants:
//! 1. All contenders have their default runtime, one a process, and one clock, CLOCK_MONOTONIC.
//! 2. While a contender is measured, no other process of the suite runs, but for the load of a server.
//! 3. A contender that fails shows as such in its row and disturbs no other.

#[path = "../../support/child.rs"]
mod child;
mod clock;
mod echo;
#[path = "../../support/go.rs"]
mod go;
mod hello;
mod on_greenthread;
mod on_tokio;
mod report;
mod row;
mod work;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::report::Report;
use crate::row::{Programs, Row};
use crate::work::{Load, Wait};

const USAGE: &str = "usage: greenthread-latency [OPTION]... [WORD]...
       greenthread-latency crates

WORD: part of a row's name, as \"wake to run\", \"sleep\", \"idle\", \"echo\", \"first thread\", \"size\"
crates: the code of hello world on greenthread, by crate

  --rounds N     interleaved rounds (5)
  --seconds N    how long a measurement takes after its warm-up (1)
  --tsv          a line a figure and round, as soon as it is there:
                 row, unit, lower or higher (which is better), contender, round, value";

/// What the command line asks for.
struct Options {
    rounds: u64,
    seconds: Duration,
    tsv: bool,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match *words {
        ["--help"] => {
            println!("{USAGE}");
            Some(())
        }
        ["run", contender, wait, load, time] => run(contender, wait, load, time),
        ["serve", contender] => echo::serve(contender),
        ["crates"] => hello::print_crates(),
        _ => parse(&args).map(|options| compare(&options)),
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options {
        rounds: 5,
        seconds: Duration::from_secs(1),
        tsv: false,
        words: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => options.rounds = args.next()?.parse().ok().filter(|&n| n > 0)?,
            "--seconds" => options.seconds = seconds(args.next()?)?,
            "--tsv" => options.tsv = true,
            option if option.starts_with('-') => return None,
            word => options.words.push(word.to_string()),
        }
    }
    Some(options)
}

fn seconds(word: &str) -> Option<Duration> {
    let seconds = word.parse().ok().filter(|&seconds| seconds > 0.0);
    Duration::try_from_secs_f64(seconds?).ok()
}

/// One measurement in this process. Prints the samples, in nanoseconds.
fn run(contender: &str, wait: &str, load: &str, time: &str) -> Option<()> {
    let wait = Wait::ALL.into_iter().find(|each| each.word() == wait)?;
    let load = Load::ALL.into_iter().find(|each| each.word() == load)?;
    let measure = match contender {
        "greenthread" => on_greenthread::measure,
        "tokio" => on_tokio::measure,
        _ => return None,
    };
    let samples = measure(wait, load, seconds(time)?);
    let lines: String = samples.iter().map(|sample| format!("{sample}\n")).collect();
    io::stdout().write_all(lines.as_bytes()).ok()
}

/// The rows asked for, round after round.
fn compare(options: &Options) {
    let mut rows = Row::all();
    if !options.words.is_empty() {
        let words = &options.words;
        rows.retain(|row| words.iter().any(|word| row.to_string().contains(word)));
    }
    let programs = Programs::build(&rows);
    let mut report = Report::new(options.tsv, &programs.names());
    for row in rows {
        let contenders = programs.of(row);
        let rate = row.rate(&contenders);
        for round in 0..options.rounds {
            for turn in 0..contenders.len() {
                let (name, program) = &contenders[(round as usize + turn) % contenders.len()];
                match row.measure(name, program, rate, options.seconds, round) {
                    Some(measured) => report.add(name, round, measured),
                    None => report.fails(name, &row.to_string()),
                }
            }
        }
        report.finish_row();
    }
}
