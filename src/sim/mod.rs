//! Tests under a seed: unmodified blocking code, with its locks, atomics, channels and clocks, runs the same way each time.
#![allow(missing_docs)]

#[cfg(greenthread_points)]
mod atomics;
mod process;
mod record;
mod report;
mod schedule;

use core::ops::Range;
use core::panic::Location;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use self::report::{Failure, FailureKind, Summary};
use self::schedule::Rules;
use crate::sys::{simulated, variable};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Strategy {
    Mixed,
    Random,
    Pct { depth: u32 },
    RoundRobin,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Isolation {
    Auto,
    EachSeed,
    Batch,
}

#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    seeds: Range<u64>,
    strategy: Strategy,
    isolation: Isolation,
    rules: Rules,
    processes: usize,
    /// The points of a run, for PCT; 0: as the first seed's run has.
    steps: u64,
    all_threads_end: bool,
    require_atomics: bool,
    same_addresses: bool,
    /// Where the check is.
    place: Option<&'static Location<'static>>,
}

/// Checks `body` under the seeds from 0 to `seeds`.
#[track_caller]
pub fn check(seeds: u64, body: impl Fn() + Send + Sync + 'static) {
    Builder::new().seeds(seeds).check(body);
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            seeds: 0..1000,
            strategy: Strategy::Mixed,
            isolation: Isolation::Auto,
            rules: Rules {
                max_points: 10_000_000,
                max_time: 24 * 3600 * 1_000_000_000,
                start: 1_767_225_600_000_000_000,
                stalls: 1000,
                spurious: 100,
                cpus: 4,
                allows_threads: false,
                allows_outside: false,
            },
            processes: std::thread::available_parallelism().map_or(1, |count| count.get()),
            steps: 0,
            all_threads_end: false,
            require_atomics: false,
            same_addresses: false,
            place: None,
        }
    }

    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds.end = self.seeds.start.saturating_add(seeds);
        self
    }

    pub fn first_seed(mut self, seed: u64) -> Self {
        let count = self.seeds.end - self.seeds.start;
        self.seeds = seed..seed.saturating_add(count);
        self
    }

    pub fn strategy(mut self, strategy: Strategy) -> Self {
        if let Strategy::Pct { depth } = strategy {
            let most = schedule::MOST_DEPTH;
            assert!(
                (1..=most).contains(&depth),
                "PCT of depth {depth}: accepted is 1 to {most}"
            );
        }
        self.strategy = strategy;
        self
    }

    pub fn max_points(mut self, points: u64) -> Self {
        self.rules.max_points = points;
        self
    }

    pub fn max_time(mut self, time: Duration) -> Self {
        self.rules.max_time = nanos(time);
        self
    }

    pub fn start(mut self, at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        self.rules.start = since.map_or(0, nanos);
        self
    }

    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    pub fn stalls(mut self, one_in: u32) -> Self {
        self.rules.stalls = one_in;
        self
    }

    pub fn spurious(mut self, one_in: u32) -> Self {
        self.rules.spurious = one_in;
        self
    }

    pub fn cpus(mut self, cpus: usize) -> Self {
        self.rules.cpus = cpus;
        self
    }

    pub fn all_threads_end(mut self, yes: bool) -> Self {
        self.all_threads_end = yes;
        self
    }

    pub fn require_atomics(mut self) -> Self {
        self.require_atomics = true;
        self
    }

    pub fn same_addresses(mut self) -> Self {
        self.same_addresses = true;
        self
    }

    pub fn allow_kernel_threads(mut self) -> Self {
        self.rules.allows_threads = true;
        self
    }

    pub fn allow_outside(mut self) -> Self {
        self.rules.allows_outside = true;
        self
    }

    #[track_caller]
    pub fn check(self, body: impl Fn() + Send + Sync + 'static) {
        match self.run(body) {
            Ok(summary) => println!("{summary}"),
            Err(failure) => panic!("{failure}"),
        }
    }

    #[track_caller]
    pub fn run(mut self, body: impl Fn() + Send + Sync + 'static) -> Result<Summary, Failure> {
        self.place = Some(Location::caller());
        let builder = self.asked_for().unwrap_or_else(|text| panic!("{text}"));
        process::check(&builder, Arc::new(body)).into()
    }

    #[track_caller]
    pub fn repeats(mut self, body: impl Fn() + Send + Sync + 'static) -> Result<Summary, Failure> {
        self.place = Some(Location::caller());
        let builder = self.asked_for().unwrap_or_else(|text| panic!("{text}"));
        process::repeats(&builder, Arc::new(body)).into()
    }

    /// Where the check is, as text.
    fn place(&self) -> String {
        self.place.map_or_else(String::new, Location::to_string)
    }

    /// With what variables ask for.
    fn asked_for(mut self) -> Result<Builder, String> {
        let text = |name| variable::read(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(text) = text("GREENTHREAD_SIM_SEEDS") {
            let count = text.parse();
            let count: u64 = count.map_err(|_| {
                format!("GREENTHREAD_SIM_SEEDS={text:?}: accepted is a number of seeds")
            })?;
            self.seeds.end = self.seeds.start + count;
        }
        if let Some(text) = text("GREENTHREAD_SIM_SEED") {
            let (strategy, steps, seed) = Strategy::parse(&text).ok_or_else(|| {
                format!(
                    "GREENTHREAD_SIM_SEED={text:?}: accepted is random:SEED, round-robin:SEED or pctDEPTH.POINTS:SEED"
                )
            })?;
            (self.strategy, self.steps, self.seeds) = (strategy, steps, seed..seed + 1);
        }
        Ok(self)
    }
}

/// At most 584 years.
fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Strategy {
    /// The strategy of one seed.
    fn of(self, seed: u64) -> Strategy {
        match self {
            Strategy::Mixed => match seed % 3 {
                0 => Strategy::Random,
                depth => Strategy::Pct {
                    depth: depth as u32 + 1,
                },
            },
            strategy => strategy,
        }
    }

    /// So that two strategies have different chance under one seed.
    fn salt(self) -> u64 {
        match self {
            Strategy::Mixed | Strategy::Random => 0,
            Strategy::RoundRobin => 1 << 56,
            Strategy::Pct { depth } => u64::from(depth + 1) << 56,
        }
    }

    /// How a variable names a seed.
    fn name(self, steps: u64, seed: u64) -> String {
        match self.of(seed) {
            Strategy::Mixed | Strategy::Random => format!("random:{seed}"),
            Strategy::RoundRobin => format!("round-robin:{seed}"),
            Strategy::Pct { depth } => format!("pct{depth}.{steps}:{seed}"),
        }
    }

    fn parse(text: &str) -> Option<(Strategy, u64, u64)> {
        let (strategy, seed) = text.split_once(':')?;
        let seed = seed.parse().ok()?;
        match strategy {
            "random" => Some((Strategy::Random, 0, seed)),
            "round-robin" => Some((Strategy::RoundRobin, 0, seed)),
            _ => {
                let (depth, steps) = strategy.strip_prefix("pct")?.split_once('.')?;
                let depth = depth.parse().ok()?;
                let is_known = (1..=schedule::MOST_DEPTH).contains(&depth);
                is_known.then_some((Strategy::Pct { depth }, steps.parse().ok()?, seed))
            }
        }
    }
}

/// Whether the process is simulated.
pub fn is_simulated() -> bool {
    simulated::is_on()
}

/// A number by chance: under a seed it follows from the seed, the thread, and how often the thread has asked.
pub fn random() -> u64 {
    own_random().unwrap_or_else(|| fastrand::u64(..))
}

/// True in one of `one_in` calls, by chance, under a seed; false in any other process, and if `one_in` is 0: code that is to be
/// tested can be made to do now and then what it may do, but seldom does.
pub fn buggify(one_in: u32) -> bool {
    is_simulated() && one_in != 0 && random().is_multiple_of(one_in.into())
}

// ==== what libc's functions ask ====

/// The next number of the calling thread's own stream, in a simulated process.
pub(crate) fn own_random() -> Option<u64> {
    is_simulated().then(schedule::own_number).flatten()
}

/// What a simulated process does that the schedule does not see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outside {
    KernelThread,
    Process,
    Socket,
    Timer,
    /// A call that waits for others in the kernel.
    Kernel,
}

/// The caller is about to go outside. Ends the run if that is not allowed.
pub(crate) fn goes(outside: Outside) {
    if is_simulated() {
        schedule::goes(outside);
    }
}

/// The answer in a simulated process.
pub(crate) fn constant<T>(value: T) -> Option<T> {
    is_simulated().then_some(value)
}

/// The number of the calling thread in a simulated process.
pub(crate) fn thread_number() -> Option<usize> {
    is_simulated().then(schedule::own).flatten()
}

/// How many CPUs a simulated process has.
pub(crate) fn cpus() -> Option<i64> {
    constant(schedule::cpus() as i64)
}

/// The virtual time since the beginning of the seed's run.
pub fn elapsed() -> Duration {
    Duration::from_nanos(schedule::elapsed())
}
