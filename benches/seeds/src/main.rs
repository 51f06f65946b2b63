//! The benchmark suites of the schedulers that greenthread is modelled on: Go's and Cforall's, and
//! skynet; on every policy of greenthread and on its peers, in the same run.
//!
//! The idea: this machine is noisy, so numbers of different minutes cannot be compared. Every
//! measurement is one short process (`run RUNTIME KIND N WORKERS MILLISECONDS`, also the command
//! line of the Go program), and the contenders take turns, round after round; a round is all rows once.
//!
//! | file | what |
//! |---|---|
//! | `main`, `work` | the command line; what there is to measure |
//! | `cforall`, `transfer`, `storm` | the suites, written once |
//! | `crew`, `random` | threads that do the same until time is up; their dice |
//! | `runtime`, `blocking`, `tasks`, `../go` | what a contender is; those that block; those that do not; the suites in Go |
//! | `compare`, `report` | rounds and tables; what a measurement finds |
//!
//! Invariants:
//! 1. All contenders do the same work for the same time with the same number of workers, after a
//!    warm-up of the same kind, in a process that has started no other runtime.
//! 2. A contender that cannot do something takes no part in it; one that fails or hangs shows as
//!    such in its row and disturbs no other.

mod blocking;
mod cforall;
#[path = "../../support/child.rs"]
mod child;
mod compare;
mod crew;
#[path = "../../support/go.rs"]
mod go;
mod random;
mod report;
mod runtime;
mod storm;
mod tasks;
mod transfer;
#[path = "../../support/tsv.rs"]
mod tsv;
mod work;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use work::Work;

const USAGE: &str = "usage: greenthread-seeds [OPTION]... [WORD]...

WORD: part of a row's name, or its kind or the beginning of that: create, storm, matmult, skynet, cycle, yield, churn,
      locality-own, locality-shared, transfer-yield or transfer-park; all of them if none is named

  --rounds N           interleaved rounds (5)
  --workers N          workers of every runtime (2)
  --time MS            how long a measurement takes after its warm-up; Transfer four times as long (300)
  --policies NAME,...  of greenthread; those that it refuses are left out
                       (work-stealing,global-queue,relaxed-fifo,least-loaded,priority)
  --peers NAME,...     (tokio,tokio-spot,smol,may,rayon,std,Go)
  --tsv                no table, but a line for each measurement, for benches/compare";

/// What the command line asks for.
struct Options {
    rounds: usize,
    workers: usize,
    time: Duration,
    policies: Vec<String>,
    peers: Vec<String>,
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
        ["run", ref rest @ ..] => run(rest),
        ["probe"] => return probe(),
        _ => parse(&args).map(|options| compare::compare(&options)),
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// One measurement in this process: `RUNTIME KIND N WORKERS MILLISECONDS`. Prints its figures.
fn run(args: &[&str]) -> Option<()> {
    let [runtime, kind, n, workers, time] = *args else {
        return None;
    };
    let work = Work::parse(kind, n)?;
    let time = Duration::from_millis(time.parse().ok()?);
    let report = work.measure(runtime, positive(workers)?, time)?;
    println!("{}", report.figures());
    Some(())
}

/// Whether greenthread accepts its environment, the policy above all; if not, says why.
fn probe() -> ExitCode {
    match greenthread::runtime::Runtime::builder().build() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<Options> {
    let names = |names: &str| names.split(',').map(String::from).collect();
    let mut options = Options {
        rounds: 5,
        workers: 2,
        time: Duration::from_millis(300),
        policies: names("work-stealing,global-queue,relaxed-fifo,least-loaded,priority"),
        peers: names("tokio,tokio-spot,smol,may,rayon,std,Go"),
        tsv: false,
        words: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next();
        match arg.as_str() {
            "--rounds" => options.rounds = positive(value()?)?,
            "--workers" => options.workers = positive(value()?)?,
            "--time" => options.time = Duration::from_millis(positive(value()?)? as u64),
            "--policies" => options.policies = names(value()?),
            "--peers" => options.peers = names(value()?),
            "--tsv" => options.tsv = true,
            option if option.starts_with('-') => return None,
            word => options.words.push(word.to_string()),
        }
    }
    Some(options)
}

fn positive(word: &str) -> Option<usize> {
    word.parse().ok().filter(|&n| n > 0)
}
