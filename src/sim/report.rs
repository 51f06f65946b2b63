//! What a check has found, as the server writes it, the test's process reads it, and the user is shown it.

use core::fmt::{self, Write};
use std::io;

use super::record::{Choice, Sheet};
use super::schedule::Tally;
use crate::observe::{Kind, Modules, Symbol, Symbols};
use crate::sys::simulated::Step;

/// What a check has found.
#[derive(Clone, Default, Debug)]
pub(super) struct Verdict {
    pub(super) seeds: u64,
    pub(super) tally: Tally,
    /// The points of the first seed's run.
    pub(super) steps: u64,
    /// Some run did what no seed repeats.
    pub(super) is_outside: bool,
    /// The seeds, each with the hash of its run.
    pub(super) hashes: Vec<(u64, u64)>,
    pub(super) failure: Option<Failure>,
}

impl Verdict {
    /// A process has passed that has begun with seed `first`.
    pub(super) fn add(&mut self, first: u64, sheet: &Sheet) {
        self.seeds += sheet.done;
        self.is_outside |= sheet.was_outside;
        let hashes = &sheet.hashes[..sheet.done as usize];
        self.hashes.extend((first..).zip(hashes.iter().copied()));
        self.tally.points += sheet.sum.points;
        self.tally.atomics += sheet.sum.atomics;
        self.tally.switches += sheet.sum.switches;
        self.tally.hash = self.tally.hash.wrapping_add(sheet.sum.hash);
    }

    /// As text, of which [`decode`](Verdict::decode) makes the verdict again.
    pub(super) fn encode(&self) -> String {
        let (kind, seed, text) = match &self.failure {
            Some(failure) => (failure.kind as u64, &failure.seed[..], &failure.text[..]),
            None => (0, "", ""),
        };
        let Tally {
            points,
            atomics,
            switches,
            hash,
        } = self.tally;
        let (seeds, steps, is_outside) = (self.seeds, self.steps, u64::from(self.is_outside));
        let first = [
            seeds, points, atomics, switches, hash, steps, is_outside, kind,
        ];
        let numbers = first
            .into_iter()
            .chain(self.hashes.iter().flat_map(|&(seed, hash)| [seed, hash]));
        let numbers: String = numbers.map(|number| format!("{number} ")).collect();
        format!("{numbers}\n{seed}\n{text}")
    }

    /// `more`: what the processes have said.
    pub(super) fn decode(told: &[u8], more: &str) -> Option<Verdict> {
        let told = core::str::from_utf8(told).ok()?;
        let mut lines = told.splitn(3, '\n');
        let numbers = lines
            .next()?
            .split_whitespace()
            .map_while(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let (first, hashes) = numbers.split_first_chunk()?;
        let [
            seeds,
            points,
            atomics,
            switches,
            hash,
            steps,
            is_outside,
            kind,
        ] = *first;
        let (seed, text) = (lines.next()?.to_owned(), lines.next()?);
        let tally = Tally {
            points,
            atomics,
            switches,
            hash,
        };
        let said = if more.is_empty() {
            ""
        } else {
            "  the run has said:\n"
        };
        let failure = |kind| Failure {
            kind,
            seed,
            tally,
            text: format!("{text}{said}{more}"),
        };
        Some(Verdict {
            seeds,
            tally,
            steps,
            is_outside: is_outside != 0,
            hashes: hashes
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            failure: FailureKind::of(kind).map(failure),
        })
    }
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Verdict {
        Verdict {
            tally: failure.tally,
            failure: Some(failure),
            ..Verdict::default()
        }
    }
}

impl From<Verdict> for Result<Summary, Failure> {
    fn from(verdict: Verdict) -> Self {
        let Tally {
            points,
            atomics,
            switches,
            hash,
        } = verdict.tally;
        verdict.failure.map_or(Ok(()), Err)?;
        Ok(Summary {
            seeds: verdict.seeds,
            points,
            atomics,
            switches,
            hash,
            is_repeatable: !verdict.is_outside,
        })
    }
}

/// What a check that has found nothing amounts to. Its numbers are the sums over all runs.
///
/// ```
/// use greenthread::sim::Builder;
///
/// let check = || Builder::new().seeds(50).run(|| greenthread::spawn(|| ()).join().unwrap());
/// let (one, other) = (check().unwrap(), check().unwrap());
/// assert_eq!(one.seeds, 50);
/// assert!(one.points >= 100); // `spawn` and `join` are two
/// assert!(one.is_repeatable);
/// assert_eq!(one.hash, other.hash);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How many seeds have run.
    pub seeds: u64,
    /// The schedule points.
    pub points: u64,
    /// The points at atomic operations. It is 0 if the program was built without the flags that the
    /// [module](crate::sim) shows.
    pub atomics: u64,
    /// How often a thread was chosen to run, the first of a run included.
    pub switches: u64,
    /// A hash of which thread came to which kind of point, one after the other: the same for the same runs. It
    /// contains no address.
    pub hash: u64,
    /// Whether no run did what the schedule does not see. It is `false` after a step that
    /// [`Builder::allow_kernel_threads`](crate::sim::Builder::allow_kernel_threads) or
    /// [`Builder::allow_outside`](crate::sim::Builder::allow_outside) has allowed.
    pub is_repeatable: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            seeds,
            points,
            atomics,
            switches,
            hash,
            ..
        } = self;
        let repeatable = if self.is_repeatable {
            ""
        } else {
            "; not repeatable"
        };
        write!(
            f,
            "{WITHOUT_POINTS}sim: {seeds} seeds, {points} points, {atomics} of them at atomic operations, {switches} switches, \
            hash {hash:016x}{repeatable}"
        )
    }
}

/// The first line of all that is told, if the build has no points at atomic operations.
const WITHOUT_POINTS: &str = match cfg!(greenthread_points) {
    true => "",
    false => "sim: atomic operations have no schedule points: RUSTFLAGS is not set (docs/sim.md)\n",
};

/// How a run has failed.
///
/// ```
/// use greenthread::sim::{Builder, FailureKind};
/// use std::sync::Mutex;
///
/// let twice = || {
///     let lock = Mutex::new(());
///     let _first = lock.lock();
///     let _second = lock.lock();
/// };
/// assert_eq!(Builder::new().run(twice).unwrap_err().kind(), FailureKind::Deadlock);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[repr(u32)]
pub enum FailureKind {
    /// There can be no such check here, or it was built without points at atomic operations, which it requires.
    #[default]
    Impossible = 1,
    /// The body has panicked.
    Panic,
    /// No thread was ready, and none waited for a time.
    Deadlock,
    /// It came to more points than `max_points` allows.
    Points,
    /// It took longer than `max_time` allows.
    Time,
    /// A thread has computed, or was blocked in the kernel, for long, and came to no point.
    Stuck,
    /// Threads were left, and `all_threads_end` allows none.
    Threads,
    /// It went outside: made a kernel thread, a process, a socket, or a timer of the system's.
    Outside,
    /// Another run of the same seed did something else.
    Different,
    /// A signal has ended the process, as after an abort.
    Signal,
    /// The process has exited.
    Exit,
}

impl FailureKind {
    fn of(code: u64) -> Option<FailureKind> {
        use FailureKind::*;
        const ALL: [FailureKind; 11] = [
            Impossible, Panic, Deadlock, Points, Time, Stuck, Threads, Outside, Different, Signal,
            Exit,
        ];
        ALL.into_iter().find(|&kind| kind as u64 == code)
    }
}

/// A seed under which the closure of a check fails, or the reason why there cannot be such a check.
///
/// As text it is what a user reads: what has happened, the seed, whether the seed fails alone, the points, the switches
/// that the schedule has chosen, and what the run has written to standard error. `docs/sim.md` explains each line.
///
/// ```
/// use greenthread::sim::Builder;
///
/// let failure = Builder::new().run(|| panic!("at once")).unwrap_err();
/// let text = failure.to_string();
/// assert!(text.contains("sim: panicked: at once\n"));
/// assert!(text.contains("repeat it with GREENTHREAD_SIM_SEED=random:0\n"));
/// assert!(text.contains("fails alone: yes\n"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    seed: String,
    tally: Tally,
    text: String,
}

impl Failure {
    /// How the run has failed.
    ///
    /// ```
    /// use greenthread::sim::{Builder, FailureKind};
    ///
    /// let failure = Builder::new().run(|| std::process::exit(7)).unwrap_err();
    /// assert_eq!(failure.kind(), FailureKind::Exit);
    /// ```
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The seed, as `GREENTHREAD_SIM_SEED` names it: `random:12`, `round-robin:12`, or `pct2.283:12`, which is PCT of
    /// depth 2 for runs of 283 points. It is empty if the check itself has failed.
    ///
    /// ```
    /// use greenthread::sim::{Builder, Strategy};
    ///
    /// let builder = Builder::new().first_seed(12).strategy(Strategy::RoundRobin);
    /// assert_eq!(builder.run(|| panic!("at once")).unwrap_err().seed(), "round-robin:12");
    /// ```
    pub fn seed(&self) -> &str {
        &self.seed
    }

    /// How many points the run has come to.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// let builder = Builder::new().max_points(100);
    /// let failure = builder.run(|| (0..100).for_each(|_| greenthread::yield_now())).unwrap_err();
    /// assert_eq!(failure.points(), 101);
    /// ```
    pub fn points(&self) -> u64 {
        self.tally.points
    }

    /// How often a thread was chosen to run, the first of the run included.
    ///
    /// ```
    /// let failure = greenthread::sim::Builder::new().run(|| panic!("at once")).unwrap_err();
    /// assert_eq!(failure.switches(), 1);
    /// ```
    pub fn switches(&self) -> u64 {
        self.tally.switches
    }

    /// A hash of which thread came to which kind of point: the same whenever the seed is repeated.
    ///
    /// ```
    /// let fails = || greenthread::sim::Builder::new().run(|| panic!("at once")).unwrap_err();
    /// assert_eq!(fails().hash(), fails().hash());
    /// ```
    pub fn hash(&self) -> u64 {
        self.tally.hash
    }

    pub(super) fn impossible(error: &io::Error) -> Failure {
        Failure::without_run(FailureKind::Impossible, "", error.to_string())
    }

    pub(super) fn without_run(kind: FailureKind, seed: &str, text: String) -> Failure {
        Failure {
            kind,
            seed: seed.to_owned(),
            tally: Tally::default(),
            text,
        }
    }

    /// The run of seed `name` has failed. `number`: the signal's, or the exit code. `needs`: the first of the seeds that must come before
    /// it in one process.
    pub(super) fn of(
        kind: FailureKind,
        number: i32,
        name: &str,
        needs: Option<u64>,
        sheet: &Sheet,
    ) -> Failure {
        let what = match kind {
            FailureKind::Impossible => String::new(),
            FailureKind::Panic => "panicked: ".into(),
            FailureKind::Deadlock => {
                "deadlock: no thread is ready, and none waits for a time\n".into()
            }
            FailureKind::Points => "came to more points than `max_points` allows\n".into(),
            FailureKind::Time => "took longer than `max_time` allows, in virtual time\n".into(),
            FailureKind::Stuck => "computes, or is blocked, and comes to no schedule point".into(),
            FailureKind::Threads => "threads are left, and `all_threads_end` allows none".into(),
            FailureKind::Outside => "what no seed repeats: it ".into(),
            FailureKind::Different => "another run of this seed did something else".into(),
            FailureKind::Signal => format!("ended by signal {number}"),
            FailureKind::Exit => format!("exited with code {number}"),
        };
        let alone = match needs {
            None => "yes".into(),
            Some(first) => format!("no; in a process that has run the seeds from {first} on"),
        };
        let (tally, said) = (sheet.tally, sheet.text());
        let mut text = format!(
            "sim: {what}{said}\n  seed: {name}; repeat it with GREENTHREAD_SIM_SEED={name}\n  fails alone: {alone}\n  \
            {} points, hash {:016x}\n",
            tally.points, tally.hash
        );
        write_choices(&mut text, sheet);
        Failure {
            tally,
            text,
            ..Failure::without_run(kind, name, String::new())
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WITHOUT_POINTS}{}", self.text)
    }
}

impl std::error::Error for Failure {}

/// The switches that the schedule has chosen.
fn write_choices(text: &mut String, sheet: &Sheet) {
    let choices = sheet.choices();
    if choices.is_empty() {
        let _ = writeln!(text, "  no switch was chosen: it fails whatever runs first");
        return;
    }
    let _ = writeln!(text, "  chosen switches ({}):", sheet.choices);
    let (mut symbols, modules) = (Symbols::default(), Modules::load());
    for choice in choices {
        let Choice {
            point,
            time,
            from,
            to,
            kind,
            ..
        } = *choice;
        let stack: Vec<_> = choice
            .frames
            .iter()
            .copied()
            .take_while(|&at| at != 0)
            .collect();
        let stack = symbols.stack(&stack, true, &modules);
        let place = place_in(&stack)
            .unwrap_or_else(|| String::from("the beginning or the end of the thread"));
        let to = match from == to {
            true => String::new(),
            false => format!(" -> {}", sheet.name(to)),
        };
        let from = sheet.name(from);
        let where_at = if kind == Step::LOADED {
            "behind the load at"
        } else {
            "at"
        };
        let _ = writeln!(
            text,
            "    point {point}, {time} ns: {from}{to}, {where_at} {place}"
        );
    }
}

/// The innermost function of the program's on a stack, if there is one, or else of the crate's public ones.
fn place_in(stack: &[Symbol]) -> Option<String> {
    let place = |symbol: &Symbol| {
        let (file, line) = (symbol.file.as_deref()?, symbol.line?);
        Some(format!("{file}:{line} in {}", symbol.function))
    };
    let innermost = |kind| {
        stack
            .iter()
            .filter(|symbol| symbol.kind == kind)
            .find_map(place)
    };
    innermost(Kind::Program).or_else(|| innermost(Kind::Public))
}
