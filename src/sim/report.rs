//! What a check has found, as the server writes it, the test's process reads it, and the user is shown it.

use core::cell::Cell;
use core::fmt;

use super::record::{NOBODY, Sheet};
use super::schedule::BEHIND;
use crate::observe::{Kind, Modules, Symbol, Symbols};
use crate::sys::simulated::mix;

/// What ends a verdict, and is in none.
pub(super) const END: char = '\0';

/// What a check has found.
#[derive(Clone, Default, Debug)]
pub(super) struct Verdict {
    /// Of all runs, or of the one that has failed.
    pub(super) summary: Summary,
    /// The points of the first run.
    pub(super) steps: u64,
    /// The seeds, each with the hash of its run.
    pub(super) hashes: Vec<(u64, u64)>,
    pub(super) failure: Option<Failure>,
}

impl Verdict {
    /// A process has passed that has begun with seed `first`.
    pub(super) fn add(&mut self, first: u64, sheet: &Sheet) {
        let runs = sheet.runs.iter().take(sheet.done.get());
        for (seed, run) in (first..).zip(runs.map(Cell::get)) {
            self.hashes.push((seed, run.hash));
            let sum = &mut self.summary;
            sum.seeds += 1;
            sum.points += run.points;
            sum.atomics += run.atomics;
            sum.switches += run.switches;
            sum.hash = sum.hash.wrapping_add(mix(run.hash ^ seed));
            sum.is_repeatable &= run.is_repeatable;
        }
    }

    pub(super) fn result(self) -> Result<Summary, Failure> {
        self.failure.map_or(Ok(self.summary), Err)
    }

    /// As text, of which [`decode`](Verdict::decode) makes the verdict again.
    pub(super) fn encode(&self) -> String {
        let sum = self.summary;
        let failure = self.failure.as_ref();
        let kind = failure.map_or(0, |failure| failure.kind as u64 + 1);
        let first = [kind, self.steps, sum.seeds, sum.points, sum.atomics];
        let then = [sum.switches, sum.hash, sum.is_repeatable.into()];
        let hashes = self.hashes.iter().map(|&(seed, hash)| [seed, hash]);
        let numbers = first.into_iter().chain(then).chain(hashes.flatten());
        let numbers: String = numbers.map(|number| format!("{number} ")).collect();
        let told = |failure: &Failure| format!("{}\n{}", failure.seed, failure.text);
        let told = failure.map_or("\n".into(), told).replace(END, "");
        format!("{numbers}\n{told}{END}")
    }

    /// `more`: what the processes have said.
    pub(super) fn decode(told: &str, more: &str) -> Option<Verdict> {
        let mut lines = told.strip_suffix(END)?.splitn(3, '\n');
        let mut numbers = lines.next()?.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (kind, steps) = (next()?, next()?);
        let summary = Summary {
            seeds: next()?,
            points: next()?,
            atomics: next()?,
            switches: next()?,
            hash: next()?,
            is_repeatable: next()? != 0,
        };
        let mut hashes = Vec::new();
        while let Some(seed) = next() {
            hashes.push((seed, next()?));
        }
        let (seed, text) = (lines.next()?, lines.next()?);
        let text = match more {
            "" => text.to_owned(),
            _ => format!("{text}  the run has said:\n{more}"),
        };
        let kind = FailureKind::ALL.get((kind as usize).wrapping_sub(1));
        let failure = kind.map(|&kind| Failure::new(kind, seed, summary, text));
        Some(Verdict {
            summary,
            steps,
            hashes,
            failure,
        })
    }
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Verdict {
        Verdict {
            summary: failure.summary,
            failure: Some(failure),
            ..Verdict::default()
        }
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
#[derive(Clone, Copy, Debug)]
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

impl Default for Summary {
    /// No run.
    fn default() -> Summary {
        Summary {
            seeds: 0,
            points: 0,
            atomics: 0,
            switches: 0,
            hash: 0,
            is_repeatable: true,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeatable = match self.is_repeatable {
            true => "",
            false => "; not repeatable",
        };
        write!(
            f,
            "{WITHOUT_POINTS}sim: {} seeds, {} points, {} of them at atomic operations, {} switches, hash {:016x}{repeatable}",
            self.seeds, self.points, self.atomics, self.switches, self.hash
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
    Impossible,
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
    /// All, in the order of their numbers.
    const ALL: [FailureKind; 11] = {
        use FailureKind::*;
        [
            Impossible, Panic, Deadlock, Points, Time, Stuck, Threads, Outside, Different, Signal,
            Exit,
        ]
    };

    /// What a report says, before the details.
    fn text(self) -> &'static str {
        match self {
            FailureKind::Impossible => "",
            FailureKind::Panic => "panicked: ",
            FailureKind::Deadlock => "deadlock: no thread is ready, and none waits for a time\n",
            FailureKind::Points => "came to more points than `max_points` allows\n",
            FailureKind::Time => "took longer than `max_time` allows, in virtual time\n",
            FailureKind::Stuck => "computes, or is blocked, and comes to no schedule point",
            FailureKind::Threads => "threads are left, and `all_threads_end` allows none",
            FailureKind::Outside => "what no seed repeats: it ",
            FailureKind::Different => "another run of this seed did something else",
            FailureKind::Signal => "ended by signal ",
            FailureKind::Exit => "exited with code ",
        }
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
#[derive(Clone)]
pub struct Failure {
    kind: FailureKind,
    seed: String,
    summary: Summary,
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
    /// depth 2 for runs of 283 points. If it fails only after others in the same process, they are named, too, as in
    /// `mixed.283:8-12`. It is empty if the check itself has failed.
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

    /// What the run amounts to, up to its failure; zeroes if the check itself has failed.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// let builder = Builder::new().max_points(100);
    /// let fails = || builder.clone().run(|| (0..100).for_each(|_| greenthread::yield_now()));
    /// let (one, other) = (fails().unwrap_err(), fails().unwrap_err());
    /// assert_eq!(one.summary().points, 101);
    /// assert_eq!(one.summary().hash, other.summary().hash); // the same whenever the seed is repeated
    /// ```
    pub fn summary(&self) -> Summary {
        self.summary
    }

    pub(super) fn impossible(text: String) -> Failure {
        Failure::new(FailureKind::Impossible, "", Summary::default(), text)
    }

    pub(super) fn new(kind: FailureKind, seed: &str, summary: Summary, text: String) -> Failure {
        Failure {
            kind,
            seed: seed.to_owned(),
            summary,
            text,
        }
    }

    /// The run of seed `name` has failed. Or these seeds have run in one process, and the last has.
    pub(super) fn of(
        (kind, said): (FailureKind, String),
        name: &str,
        is_alone: bool,
        sheet: &Sheet,
    ) -> Failure {
        let (what, run) = (kind.text(), sheet.run.get());
        let alone = match is_alone {
            true => "yes",
            false => "no; the seeds before it must have run in the process",
        };
        let text = format!(
            "sim: {what}{said}\n  seed: {name}; repeat it with GREENTHREAD_SIM_SEED={name}\n  fails alone: {alone}\n  \
            {} points, hash {:016x}\n",
            run.points, run.hash
        );
        let mut failure = Failure::new(kind, name, run, text);
        write_choices(&mut failure.text, sheet);
        failure
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WITHOUT_POINTS}{}", self.text)
    }
}

/// As [`Display`](fmt::Display), so that `unwrap` shows what is to be read.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// The switches that the schedule has chosen.
fn write_choices(text: &mut String, sheet: &Sheet) {
    let count = sheet.count.get();
    if count == 0 {
        *text += "  no switch was chosen: it fails whatever runs first\n";
        return;
    }
    *text += &format!("  chosen switches ({count}):\n");
    let (mut symbols, modules) = (Symbols::default(), Modules::load());
    for choice in sheet.choices.iter().take(count).map(Cell::get) {
        let (from, to) = (choice.from, choice.to);
        let stack = choice.frames.split(|&at| at == 0).next().unwrap_or(&[]);
        let place = place_in(&symbols.stack(stack, true, &modules));
        let place = place.unwrap_or_else(|| "a place outside of the program's code".into());
        let to = match to == NOBODY {
            true => String::new(),
            false => format!(" -> {}", sheet.name_of(to)),
        };
        let at = match choice.kind & BEHIND {
            0 => "at",
            _ => "behind the operation at",
        };
        let (from, point, time) = (sheet.name_of(from), choice.point, choice.time);
        *text += &format!("    point {point}, {time} ns: {from}{to}, {at} {place}\n");
    }
}

/// The innermost function of the program's on a stack, if there is one, or else of the crate's public ones.
fn place_in(stack: &[Symbol]) -> Option<String> {
    let place = |symbol: &Symbol| {
        let (file, line) = (symbol.file.as_deref()?, symbol.line?);
        Some(format!("{file}:{line} in {}", symbol.function))
    };
    let innermost = |kind| {
        let mut symbols = stack.iter().filter(|symbol| symbol.kind == kind);
        symbols.find_map(place)
    };
    innermost(Kind::Program).or_else(|| innermost(Kind::Public))
}
