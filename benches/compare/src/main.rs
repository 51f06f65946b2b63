//! One command, one picture: runs all suites against all peers that are installed, keeps what they
//! measured, and writes the tables of BENCHMARKS.md and README.md and the charts that they show.
//!
//! The idea: what is measured is kept in one small file, `docs/benchmarks.tsv`, and everything that
//! is shown is made from that file alone. So nobody types a figure, and tables and charts can be made
//! again without measuring.
//!
//! | file | what |
//! |---|---|
//! | `main` | the command line, and the order of things |
//! | `suites`, `conditions` | the programs that measure; what the machine and the peers were |
//! | `results` | what they measured, and the file that keeps it |
//! | `figures` | medians, quartiles, and the share of the best peer's figure |
//! | `targets` | what is to be reached |
//! | `tables`, `chart`, `markers` | markdown; SVG; where in a document a table belongs |
//!
//! Invariants:
//! 1. A suite's results take the place of those of its last run, and no other's.
//! 2. A document changes between its markers only.

#[cfg(test)]
mod tests;

mod chart;
mod conditions;
mod figures;
mod markers;
mod results;
mod suites;
mod tables;
mod targets;

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use results::Results;
use suites::{Length, SUITES, Suite};

const USAGE: &str = "usage: compare [OPTION]...

Runs the suites peers, seeds, servers and latency against all peers that are installed, and writes docs/benchmarks.tsv
and, from it, docs/benchmarks-*.svg and the tables of BENCHMARKS.md and README.md.

  --suite NAME  only this suite; the others' results stay as they are; may be repeated
  --rounds N    interleaved rounds of each suite
  --quick       one short round of each, to try it: a few minutes, and figures that say little
  --draw        measures nothing, and writes tables and charts again";

/// Where results are kept, from the root of the repository.
const KEPT: &str = "docs/benchmarks.tsv";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Options {
    suites: Vec<&'static Suite>,
    rounds: Option<usize>,
    length: Length,
    draw: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if args == ["--help"] {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(options) = parse(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options {
        suites: Vec::new(),
        rounds: None,
        length: Length::Full,
        draw: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--suite" => options.suites.push(Suite::named(args.next()?)?),
            "--rounds" => options.rounds = Some(args.next()?.parse().ok().filter(|&n| n > 0)?),
            "--quick" => options.length = Length::Quick,
            "--draw" => options.draw = true,
            _ => return None,
        }
    }
    if options.suites.is_empty() {
        options.suites = SUITES.iter().collect();
    }
    Some(options)
}

fn run(options: &Options) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kept = root.join(KEPT);
    let mut results = match read(&kept) {
        Ok(text) => Results::parse(&text)?,
        Err(_) if !options.draw => Results::default(),
        Err(error) => return Err(error),
    };
    if !options.draw {
        // All before the first is measured: building would disturb it.
        for suite in &options.suites {
            suite.build()?;
        }
        for suite in &options.suites {
            results.put(suite.measure(&root, options.length, options.rounds)?);
            write(&kept, &results.to_string())?;
        }
    }
    // What the file has, with no more digits: `--draw` shows the same.
    show(&root, &Results::parse(&results.to_string())?)
}

/// Writes charts and tables of whatever has been measured.
fn show(root: &Path, results: &Results) -> Result<()> {
    for measured in &results.suites {
        let suite = Suite::named(&measured.suite).ok_or("a suite that there is no more")?;
        let chart = root.join(format!("docs/benchmarks-{}.svg", suite.name));
        write(&chart, &chart::draw(suite, measured))?;
    }
    let mut benchmarks: Vec<(&str, String)> = Vec::new();
    for measured in &results.suites {
        benchmarks.push((&measured.suite, tables::suite(measured)));
    }
    benchmarks.push(("targets", tables::targets(results)));
    fill(&root.join("BENCHMARKS.md"), &benchmarks)?;
    fill(
        &root.join("README.md"),
        &[("readme", tables::readme(results))],
    )
}

/// Puts each table between the markers of its name.
fn fill(document: &Path, tables: &[(&str, String)]) -> Result<()> {
    let mut text = read(document)?;
    for (name, table) in tables {
        text = markers::replace(&text, name, table)
            .map_err(|error| format!("{}: {error}", document.display()))?;
    }
    write(document, &text)
}

fn read(path: &Path) -> Result<String> {
    Ok(fs::read_to_string(path).map_err(at(path))?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    Ok(fs::write(path, text).map_err(at(path))?)
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
