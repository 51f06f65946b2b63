//! What there is to measure.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::id;

use crate::Options;
use crate::contender::Contender;
use crate::measure;
use crate::read::{self, BLOCK, THREADS};
use crate::serve::{Hogs, Work};

/// A table.
#[derive(Clone, Copy, PartialEq)]
pub enum Part {
    Echo,
    Http,
    Hogs,
    Idle,
    Storm,
    Files,
}

/// A row of it for each contender.
#[derive(Clone)]
pub enum Cell {
    Load {
        work: Work,
        connections: usize,
        hogs: Hogs,
    },
    /// So many connections do nothing, while others are active.
    Idle { work: Work, connections: usize },
    /// So many connections are opened and closed.
    Storm(usize),
    /// Random reads.
    Files { file: PathBuf, direct: bool },
}

/// A column of it.
pub struct Metric {
    pub name: &'static str,
    /// Empty for a count.
    pub unit: &'static str,
    /// Which figure is the best one, if any is.
    pub best: Option<Best>,
}

#[derive(Clone, Copy)]
pub enum Best {
    Highest,
    Lowest,
}

/// How many connections there are beside hogs.
const BESIDE_HOGS: usize = 20;

const fn highest(name: &'static str, unit: &'static str) -> Metric {
    let best = Some(Best::Highest);
    Metric { name, unit, best }
}

const fn lowest(name: &'static str, unit: &'static str) -> Metric {
    let best = Some(Best::Lowest);
    Metric { name, unit, best }
}

const fn plain(name: &'static str, unit: &'static str) -> Metric {
    let best = None;
    Metric { name, unit, best }
}

/// The columns of [`Cell::Load`]; the last one only if it is asked for.
const LOAD: [Metric; 6] = [
    highest("requests", "thousand/s"),
    plain("p50", "µs"),
    lowest("p99", "µs"),
    plain("missed", ""),
    lowest("CPU a request", "µs"),
    plain("system calls a request", ""),
];

const IDLE: [Metric; 5] = [
    lowest("memory", "KiB"),
    highest("requests of active ones", "thousand/s"),
    plain("their p50", "µs"),
    lowest("their p99", "µs"),
    plain("missed", ""),
];

const STORM: [Metric; 7] = [
    highest("connections", "thousand/s"),
    plain("descriptors before", ""),
    plain("after", ""),
    plain("kernel threads before", ""),
    plain("after", ""),
    plain("before", "KiB"),
    plain("after", "KiB"),
];

const FILES: [Metric; 2] = [highest("reads", "thousand/s"), lowest("CPU a read", "µs")];

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            "" => f.write_str(self.name),
            unit => write!(f, "{}, {unit}", self.name),
        }
    }
}

impl Part {
    pub const ALL: [Part; 6] = [
        Part::Echo,
        Part::Http,
        Part::Hogs,
        Part::Idle,
        Part::Storm,
        Part::Files,
    ];

    pub fn parse(word: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == word)
    }

    pub fn name(self) -> &'static str {
        match self {
            Part::Echo => "echo",
            Part::Http => "http",
            Part::Hogs => "hogs",
            Part::Idle => "idle",
            Part::Storm => "storm",
            Part::Files => "files",
        }
    }

    pub fn metrics(self, options: &Options) -> &'static [Metric] {
        match self {
            Part::Echo | Part::Http | Part::Hogs if options.syscalls => &LOAD,
            Part::Echo | Part::Http | Part::Hogs => &LOAD[..LOAD.len() - 1],
            Part::Idle => &IDLE,
            Part::Storm => &STORM,
            Part::Files => &FILES,
        }
    }

    pub fn cells(self, options: &Options) -> Vec<Cell> {
        let load = |work, &connections: &usize| Cell::Load {
            work,
            connections,
            hogs: Hogs::NONE,
        };
        let connections = options.connections.iter();
        match self {
            Part::Echo => connections.map(|n| load(Work::Echo, n)).collect(),
            Part::Http => connections.map(|n| load(Work::Http, n)).collect(),
            Part::Hogs => [(0, false), (1, false), (2, true), (100, true)]
                .map(|(count, yielding)| Cell::Load {
                    work: Work::Echo,
                    connections: BESIDE_HOGS,
                    hogs: Hogs { count, yielding },
                })
                .to_vec(),
            Part::Idle => [Work::Echo, Work::Http]
                .map(|work| Cell::Idle {
                    work,
                    connections: options.idle,
                })
                .to_vec(),
            Part::Storm => vec![Cell::Storm(options.storm)],
            Part::Files => [false, true]
                .map(|direct| Cell::Files {
                    file: options.dir.join(format!("blocks-of-{}", id())),
                    direct,
                })
                .to_vec(),
        }
    }
}

impl Cell {
    /// Makes what all measurements need.
    pub fn prepare(&self, options: &Options) -> io::Result<()> {
        match self {
            Cell::Files { file, .. } if !file.exists() => {
                read::make(file, (options.megabytes << 20) / BLOCK as u64)
            }
            _ => Ok(()),
        }
    }

    /// Removes it.
    pub fn clean_up(&self) {
        if let Cell::Files { file, .. } = self {
            let _ = fs::remove_file(file);
        }
    }

    /// Whether a contender has what it takes.
    pub fn is_for(&self, contender: &Contender) -> bool {
        match self {
            Cell::Load { work, hogs, .. } => match contender.runtime {
                "hyper" => matches!(work, Work::Http),
                "loop" => matches!(work, Work::Echo) && hogs.count == 0,
                _ => true,
            },
            Cell::Idle { work, .. } if contender.runtime == "hyper" => matches!(work, Work::Http),
            _ => !["hyper", "loop"].contains(&contender.runtime),
        }
    }

    /// One measurement: a figure for each column.
    pub fn measure(&self, contender: &Contender, options: &Options) -> io::Result<Vec<f64>> {
        match self {
            &Cell::Load {
                work,
                connections,
                hogs,
            } => measure::load(contender, work, connections, hogs, options),
            &Cell::Idle { work, connections } => {
                measure::idle(contender, work, connections, options)
            }
            &Cell::Storm(n) => measure::storm(contender, n),
            Cell::Files { file, direct } => measure::files(contender, file, *direct, options),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Load {
                work,
                connections,
                hogs,
            } => {
                let plural = |n| if n == 1 { "" } else { "s" };
                let s = plural(*connections);
                write!(f, "{}, {connections} connection{s}", work.name())?;
                match hogs.count {
                    0 => Ok(()),
                    n => write!(f, ", {n} {} hog{}", hogs.kind(), plural(n)),
                }
            }
            Cell::Idle { work, connections } => {
                write!(f, "{}, each of {connections} idle connections", work.name())
            }
            Cell::Storm(_) => f.write_str("connections opened and closed"),
            Cell::Files { direct, .. } => {
                write!(
                    f,
                    "file reads by {THREADS} threads, {}",
                    read::mode(*direct)
                )
            }
        }
    }
}
