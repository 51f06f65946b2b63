//! The work all contenders do, and its names on the command line and in the table.

use std::fmt;

/// What is measured; the number is how many threads there are at a time.
#[derive(Clone, Copy)]
pub enum Work {
    /// Spawn so many threads that do nothing, then join them all. An operation is one thread.
    Spawn(usize),
    /// So many threads yield, in equal shares. An operation is one yield.
    Yield(usize),
    /// Two threads wake each other in turn and go to sleep. An operation is one wake-up.
    Wake,
}

impl Work {
    /// The work that `kind` and `threads` name.
    pub fn parse(kind: &str, threads: usize) -> Option<Work> {
        match kind {
            "spawn" => Some(Work::Spawn(threads)),
            "yield" => Some(Work::Yield(threads)),
            "wake" => Some(Work::Wake),
            _ => None,
        }
    }

    /// The kind's name.
    pub fn kind(self) -> &'static str {
        match self {
            Work::Spawn(_) => "spawn",
            Work::Yield(_) => "yield",
            Work::Wake => "wake",
        }
    }

    /// How many threads there are at a time.
    pub fn threads(self) -> usize {
        match self {
            Work::Spawn(threads) | Work::Yield(threads) => threads,
            Work::Wake => 2,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Spawn(1) => f.write_str("spawn and join"),
            Work::Spawn(threads) => write!(f, "spawn {threads}, join all"),
            Work::Yield(threads) => write!(f, "yield among {threads}"),
            Work::Wake => f.write_str("park and unpark, two in turn"),
        }
    }
}
