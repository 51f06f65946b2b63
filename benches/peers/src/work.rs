//! The work all contenders do, and its names on the command line and in the table.

use std::fmt;

/// What is measured.
#[derive(Clone, Copy)]
pub enum Work {
    /// Spawn so many threads that do nothing, then join them all. An operation is one thread.
    Spawn(usize),
    /// So many threads yield, in equal shares. An operation is one yield.
    Yield(usize),
    /// Two threads wake each other in turn and go to sleep. An operation is one wake-up.
    Wake,
    /// A message goes to another thread and one comes back, each through a channel that holds so
    /// many. An operation is both ways.
    PingPong(usize),
    /// So many threads send to as many others through one channel that holds [`CAPACITY`]
    /// messages. An operation is one message.
    Stream(usize),
    /// So many threads lock one mutex, increment what it guards, unlock it, and so on, in equal
    /// shares. An operation is one lock, increment and unlock.
    Mutex(usize),
}

/// How many messages the channel of [`Work::Stream`] holds.
pub const CAPACITY: usize = 100;

impl Work {
    /// The work that `kind` and its number name.
    pub fn parse(kind: &str, n: usize) -> Option<Work> {
        match kind {
            "spawn" => Some(Work::Spawn(n)),
            "yield" => Some(Work::Yield(n)),
            "wake" => Some(Work::Wake),
            "ping-pong" => Some(Work::PingPong(n)),
            "stream" => Some(Work::Stream(n)),
            "mutex" => Some(Work::Mutex(n)),
            _ => None,
        }
    }

    /// The kind's name.
    pub fn kind(self) -> &'static str {
        match self {
            Work::Spawn(_) => "spawn",
            Work::Yield(_) => "yield",
            Work::Wake => "wake",
            Work::PingPong(_) => "ping-pong",
            Work::Stream(_) => "stream",
            Work::Mutex(_) => "mutex",
        }
    }

    /// The kind's number.
    pub fn n(self) -> usize {
        match self {
            Work::Wake => 2,
            Work::Spawn(n) | Work::Yield(n) => n,
            Work::PingPong(n) | Work::Stream(n) | Work::Mutex(n) => n,
        }
    }

    /// Whether a contender has what it takes.
    pub fn is_for(self, contender: &str, workers: usize) -> bool {
        match (contender, self) {
            // These run on all CPUs, and spawning them or yielding is no contest.
            ("std", Work::PingPong(_) | Work::Stream(1) | Work::Mutex(_)) => workers > 1,
            ("crossbeam", Work::PingPong(_) | Work::Stream(_)) => workers > 1,
            ("std" | "crossbeam", _) => false,
            // No channel of theirs holds nothing, or has many receivers.
            ("tokio" | "may", Work::PingPong(0)) | ("tokio", Work::Stream(2..)) => false,
            _ => true,
        }
    }

    /// How many operations a contender does where `ops` are asked for. Kernel threads that wake each
    /// other take a hundred times as long as the others, so they do fewer.
    pub fn ops_of(self, contender: &str, ops: u64) -> u64 {
        match (contender, self) {
            ("std" | "crossbeam", Work::PingPong(_)) => ops / 20,
            _ => ops,
        }
    }

    /// Whether a word of the command line asks for it: part of its name in the table, or its kind.
    pub fn matches(self, word: &str) -> bool {
        self.kind() == word || self.to_string().contains(word)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Spawn(1) => f.write_str("spawn and join"),
            Work::Spawn(threads) => write!(f, "spawn {threads}, join all"),
            Work::Yield(threads) => write!(f, "yield among {threads}"),
            Work::Wake => f.write_str("park and unpark, two in turn"),
            Work::PingPong(capacity) => write!(f, "channel ping-pong, capacity {capacity}"),
            Work::Stream(pairs) => write!(f, "channel {pairs} to {pairs}, capacity {CAPACITY}"),
            Work::Mutex(threads) => write!(f, "mutex among {threads}"),
        }
    }
}
