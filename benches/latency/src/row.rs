//! What there is to measure, and how.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::echo::{CONNECTIONS, Server};
use crate::report::{MIDDLE, Measured, TAIL};
use crate::work::{Load, Wait};
use crate::{child, go, hello};

/// A row, of several lines.
#[derive(Clone, Copy)]
pub enum Row {
    Wait(Wait, Load),
    Echo,
    Start,
    Size,
}

/// Far beyond what a measurement takes, besides its time: who is not done by then hangs.
const PATIENCE: Duration = Duration::from_secs(20);

impl Row {
    pub fn all() -> Vec<Row> {
        let mut all: Vec<Row> = Wait::ALL
            .into_iter()
            .flat_map(|wait| Load::ALL.map(|load| Row::Wait(wait, load)))
            .collect();
        all.extend([Row::Echo, Row::Start, Row::Size]);
        all
    }

    /// Whether it is about hello world.
    fn is_hello(self) -> bool {
        matches!(self, Row::Start | Row::Size)
    }

    fn is_for(self, contender: &str) -> bool {
        match self {
            Row::Wait(wait, load) => wait.is_for(contender, load),
            Row::Echo | Row::Start | Row::Size => true,
        }
    }

    /// Requests a second, for all contenders: half of the rate that the slowest one reaches.
    pub fn rate(self, contenders: &[&(&'static str, PathBuf)]) -> f64 {
        let Row::Echo = self else {
            return 0.0;
        };
        let rates = contenders.iter().filter_map(|(name, program)| {
            let server = Server::start(program, name).ok()?;
            server.greatest_rate().ok()
        });
        rates.fold(f64::INFINITY, f64::min) / 2.0
    }

    /// `None`: the contender fails.
    pub fn measure(
        self,
        name: &str,
        program: &Path,
        rate: f64,
        time: Duration,
        round: u64,
    ) -> Option<Vec<Measured>> {
        let row = self.to_string();
        match self {
            Row::Wait(wait, load) => {
                let mut command = Command::new(program);
                command.args(["run", name, wait.word(), load.word()]);
                command.arg(time.as_secs_f64().to_string());
                let output = child::output(&mut command, time + PATIENCE).ok()?;
                let samples: Vec<u64> = output
                    .lines()
                    .map(|line| line.parse().ok())
                    .collect::<Option<_>>()?;
                Some(vec![Measured::times(row, &samples, &TAIL)?])
            }
            Row::Echo => {
                let server = Server::start(program, name).ok()?;
                let latencies = server.latencies(rate, time, round);
                let latencies = latencies.inspect_err(|error| eprintln!("{name}: {error}"));
                let measured = Measured::times(row, &latencies.ok()?, &TAIL)?;
                Some(vec![measured])
            }
            Row::Start => {
                let starts = hello::starts(program)?;
                let (of_main, of_process): (Vec<u64>, Vec<u64>) = starts.into_iter().unzip();
                Some(vec![
                    Measured::times("main to first thread".into(), &of_main, &MIDDLE)?,
                    Measured::times("exec to first thread".into(), &of_process, &MIDDLE)?,
                ])
            }
            Row::Size => {
                let (whole, stripped) = hello::sizes(program)?;
                let mut measured = vec![
                    Measured::size("size of hello world".into(), whole),
                    Measured::size("size of hello world, stripped".into(), stripped),
                ];
                // Symbols of Go's have no crates.
                if name != "Go" {
                    let parts = hello::code(program)?.into_iter();
                    measured.extend(parts.map(|(part, size)| {
                        Measured::size(format!("code of hello world: {part}"), size)
                    }));
                }
                Some(measured)
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Wait(wait, load) => write!(f, "{wait}, {load}"),
            Row::Echo => write!(f, "echo at half load, {CONNECTIONS} connections"),
            Row::Start => f.write_str("main and exec to first thread"),
            Row::Size => f.write_str("size of hello world"),
        }
    }
}

/// The programs of the contenders.
pub struct Programs {
    work: Vec<(&'static str, PathBuf)>,
    hello: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Those that the rows need.
    pub fn build(rows: &[Row]) -> Programs {
        let (mut work, mut hello) = (Vec::new(), Vec::new());
        if rows.iter().any(|row| !row.is_hello()) {
            let me = env::current_exe().expect("no path to this program");
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
            work.extend(["greenthread", "tokio"].map(|name| (name, me.clone())));
            let program = go::build(source, me.with_file_name("go-latency"));
            work.extend(program.map(|program| ("Go", program)));
        }
        if rows.iter().any(|row| row.is_hello()) {
            hello = hello::build();
        }
        Programs { work, hello }
    }

    /// Those that take part in a row.
    pub fn of(&self, row: Row) -> Vec<&(&'static str, PathBuf)> {
        let all = match row.is_hello() {
            true => &self.hello,
            false => &self.work,
        };
        all.iter().filter(|(name, _)| row.is_for(name)).collect()
    }

    /// All contenders.
    pub fn names(&self) -> Vec<&'static str> {
        let most = match self.hello.is_empty() {
            true => &self.work,
            false => &self.hello,
        };
        most.iter().map(|&(name, _)| name).collect()
    }
}
