//! The suites: programs that measure, and how they are run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::conditions;
use crate::results::Measured;

/// A program that takes `--rounds` and `--tsv`.
pub struct Suite {
    pub name: &'static str,
    package: &'static str,
    /// What its chart is called.
    pub title: &'static str,
    rounds: usize,
    /// Further arguments, of a full run and of a quick one.
    full: &'static str,
    quick: &'static str,
    /// The crates that it compares greenthread with.
    peers: &'static [&'static str],
}

#[derive(Clone, Copy)]
pub enum Length {
    Full,
    Quick,
}

pub const SUITES: [Suite; 4] = [
    Suite {
        name: "peers",
        package: "greenthread-peers",
        title: "Threads, locks and channels",
        rounds: 9,
        full: "",
        quick: "",
        peers: &["tokio", "may", "crossbeam-channel"],
    },
    Suite {
        name: "seeds",
        package: "greenthread-seeds",
        title: "The suites of Go and Cforall, and skynet",
        rounds: 5,
        full: "--time 200",
        quick: "--time 100",
        peers: &["tokio", "smol", "may", "rayon"],
    },
    Suite {
        name: "servers",
        package: "greenthread-servers",
        title: "Servers, and readers of files",
        rounds: 4,
        full: "--seconds 0.5 --storm 20000",
        quick: "--seconds 0.2 --storm 5000 --megabytes 64",
        peers: &["tokio", "hyper", "mio"],
    },
    Suite {
        name: "latency",
        package: "greenthread-latency",
        title: "Latencies",
        rounds: 5,
        full: "",
        quick: "--seconds 0.3",
        peers: &["tokio"],
    },
];

impl Suite {
    pub fn named(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    pub fn build(&self) -> Result<()> {
        let status = self.cargo("build").status()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{} cannot be built", self.package).into()),
        }
    }

    /// Runs it, with the root of the repository as its working directory.
    pub fn measure(&self, root: &Path, length: Length, rounds: Option<usize>) -> Result<Measured> {
        let (rounds, args) = match length {
            Length::Full => (rounds.unwrap_or(self.rounds), self.full),
            Length::Quick => (rounds.unwrap_or(1), self.quick),
        };
        eprintln!("{}:", self.name);
        let mut command = self.cargo("run");
        command.args(["--", "--tsv", "--rounds", &rounds.to_string()]);
        command.args(args.split_whitespace());
        command.current_dir(root).stdout(Stdio::piped());
        let conditions = conditions::now(root, self.peers, length, rounds)?;
        let mut measured = Measured::new(self.name, &conditions);
        let mut child = command.spawn()?;
        let output = child.stdout.take().expect("it is piped");
        for line in BufReader::new(output).lines() {
            measured.add(&line?)?;
        }
        match child.wait()?.success() {
            true if measured.rows.is_empty() => Err(format!("{}: no figures", self.name).into()),
            true => Ok(measured),
            false => Err(format!("{} has failed", self.name).into()),
        }
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([command, "--release", "--quiet", "--package", self.package]);
        cargo
    }
}
