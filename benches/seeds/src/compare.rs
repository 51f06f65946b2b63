//! Contenders, rounds, and the table: a row for each work and contender.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Options;
use crate::child::{self, Failure};
use crate::go;
use crate::report::Figures;
use crate::tsv;
use crate::work::{Kind, Work};

/// Far beyond what it should take: who is not done by then hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const DEFAULT_POLICY: &str = "work-stealing";
const POLICY: &str = "GREENTHREAD_POLICY";

/// Who takes part.
struct Contender {
    program: PathBuf,
    /// `greenthread`, or a peer.
    runtime: String,
    policy: Option<String>,
}

/// What a contender's rounds have come to.
type Rounds = Result<Vec<Figures>, Failure>;

/// Measures what is asked for and prints the table, or lines for `benches/compare`.
pub fn compare(options: &Options) {
    let asked_for = |work: &Work| {
        let matches =
            |word: &String| work.kind_name().starts_with(word) || work.to_string().contains(word);
        options.words.is_empty() || options.words.iter().any(matches)
    };
    let mut works = Work::all(options.workers);
    works.retain(asked_for);
    let contenders = contenders(options);
    let mut table = Vec::new();
    for work in works {
        let taking_part: Vec<&Contender> = contenders
            .iter()
            .filter(|contender| work.is_for(&contender.runtime))
            .collect();
        let rows: Vec<Rounds> = vec![Ok(Vec::new()); taking_part.len()];
        table.push((work, taking_part, rows));
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (work, taking_part, rows) in &mut table {
            for turn in 0..taking_part.len() {
                let i = (round + turn) % taking_part.len();
                let Ok(rounds) = &mut rows[i] else { continue };
                let measured = taking_part[i].measure(*work, options);
                if options.tsv {
                    taking_part[i].tell(*work, options.workers, round, measured);
                }
                match measured {
                    Ok(figures) => rounds.push(figures),
                    Err(failure) => rows[i] = Err(failure),
                }
            }
        }
    }
    if options.tsv {
        return;
    }
    println!(
        "Median (best) of {} interleaved rounds, {} workers.\n\n\
         | work | | ns an operation | of the best peer | CPU ns | least, median and most of a thread |\n\
         |---|---|---:|---:|---:|---:|",
        options.rounds, options.workers
    );
    for (work, taking_part, rows) in &mut table {
        show(*work, taking_part, rows);
    }
}

/// The policies that greenthread accepts, and the peers.
fn contenders(options: &Options) -> Vec<Contender> {
    let me = env::current_exe().expect("no path to this program");
    let contender = |runtime: &str, policy: Option<&String>| Contender {
        program: me.clone(),
        runtime: runtime.to_string(),
        policy: policy.cloned(),
    };
    let mut contenders: Vec<Contender> = options
        .policies
        .iter()
        .map(|policy| contender("greenthread", Some(policy)))
        .filter(Contender::is_accepted)
        .collect();
    for peer in &options.peers {
        let mut contender = contender(peer, None);
        if peer == "Go" {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
            match go::build(source, me.with_file_name("go-seeds")) {
                Some(program) => contender.program = program,
                None => continue,
            }
        }
        contenders.push(contender);
    }
    contenders
}

impl Contender {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.policy.iter().map(|policy| (POLICY, policy)));
        command
    }

    /// Whether greenthread has its policy. (It says itself why not.)
    fn is_accepted(&self) -> bool {
        let accepted = child::output(self.command().arg("probe"), PATIENCE).is_ok();
        if !accepted {
            eprintln!("going on without {}", self.name());
        }
        accepted
    }

    /// Runs one measurement in a process of its own.
    fn measure(&self, work: Work, options: &Options) -> Result<Figures, Failure> {
        let time = work.time(options.time);
        let numbers = [work.n, options.workers, time.as_millis() as usize];
        let mut command = self.command();
        command
            .args(["run", &self.runtime, work.kind_name()])
            .args(numbers.map(|n| n.to_string()))
            // A runtime that cannot have a million stacks says so a million times.
            .stderr(Stdio::null());
        let line = child::output(&mut command, PATIENCE + 2 * time)?;
        let figures = Figures::parse(&line).ok_or(Failure::Failed)?;
        // Stopped by the clock before it had done anything.
        match figures.ns.is_finite() {
            true => Ok(figures),
            false => Err(Failure::Hangs),
        }
    }

    /// Prints a measurement's lines: time, and how evenly the threads have shared it.
    fn tell(&self, work: Work, workers: usize, round: usize, measured: Result<Figures, Failure>) {
        let name = match &self.policy {
            Some(policy) if policy == DEFAULT_POLICY => self.runtime.clone(),
            _ => self.name(),
        };
        let s = if workers == 1 { "" } else { "s" };
        let row = format!("{work}, {workers} worker{s}");
        let is_transfer = matches!(work.kind, Kind::TransferYield | Kind::TransferPark);
        let (unit, scale) = if is_transfer {
            ("µs", 1e3)
        } else {
            ("ns", 1.0)
        };
        let value = match measured {
            Ok(figures) => (figures.ns / scale).to_string(),
            Err(failure) => failure.to_string(),
        };
        tsv::line(&row, (unit, "lower"), &name, round, value);
        // In Transfer these are looks, not transfers.
        if let Ok(Figures {
            shares: Some([least, _, most]),
            ..
        }) = measured
            && !is_transfer
        {
            let row = format!("{row}: fairness");
            let unit = ("least ÷ most", "higher");
            tsv::line(&row, unit, &name, round, least as f64 / most as f64);
        }
    }

    fn name(&self) -> String {
        match &self.policy {
            Some(policy) => format!("{}, {policy}", self.runtime),
            None => self.runtime.clone(),
        }
    }
}

/// Prints the rows of a work.
fn show(work: Work, contenders: &[&Contender], rows: &mut [Rounds]) {
    for rounds in rows.iter_mut().flatten() {
        rounds.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    }
    let median = |rounds: &[Figures]| rounds[rounds.len() / 2];
    let best_peer = contenders
        .iter()
        .zip(&*rows)
        .filter(|(contender, _)| contender.runtime != "greenthread")
        .filter_map(|(contender, rounds)| {
            Some((median(rounds.as_ref().ok()?).ns, &contender.runtime))
        })
        .min_by(|(a, _), (b, _)| a.total_cmp(b));
    for (contender, rounds) in contenders.iter().zip(rows) {
        let cells = match rounds {
            Ok(rounds) => {
                let Figures { ns, shares, .. } = median(rounds);
                let mut cpu: Vec<f64> = rounds.iter().map(|round| round.cpu).collect();
                cpu.sort_by(f64::total_cmp);
                let cpu = digits(cpu[cpu.len() / 2]);
                let share = best_peer.map_or("–".to_string(), |(best, name)| {
                    format!("{:.2} of {name}", ns / best)
                });
                let shares = shares.map_or("–".to_string(), |shares| {
                    shares.map(|share| share.to_string()).join(" · ")
                });
                let figure = format!("{} ({})", digits(ns), digits(rounds[0].ns));
                format!("{figure} | {share} | {cpu} | {shares}")
            }
            Err(Failure::Hangs) => "hangs | – | – | –".to_string(),
            Err(Failure::Failed) => "failed | – | – | –".to_string(),
        };
        println!("| {work} | {} | {cells} |", contender.name());
    }
}

/// Three digits, or all before the point.
fn digits(ns: f64) -> String {
    match ns {
        100.0.. => format!("{ns:.0}"),
        10.0.. => format!("{ns:.1}"),
        _ => format!("{ns:.2}"),
    }
}
