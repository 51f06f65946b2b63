//! What a check has found, as the server writes it, the test's process reads it, and the user is shown it.

use core::fmt::{self, Write};
use std::io;

use super::record::{Choice, Sheet};
use super::schedule::Tally;
use crate::observe::{Kind, Modules, Symbol, Symbols};

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

/// What a check that has found nothing amounts to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    pub seeds: u64,
    pub points: u64,
    /// Those at atomic operations.
    pub atomics: u64,
    pub switches: u64,
    pub hash: u64,
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

/// A seed under which the body fails.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    seed: String,
    tally: Tally,
    text: String,
}

impl Failure {
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The seed, as `GREENTHREAD_SIM_SEED` names it.
    pub fn seed(&self) -> &str {
        &self.seed
    }

    pub fn points(&self) -> u64 {
        self.tally.points
    }

    pub fn switches(&self) -> u64 {
        self.tally.switches
    }

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
        let _ = writeln!(text, "    point {point}, {time} ns: {from}{to}, at {place}");
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
