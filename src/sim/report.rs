//! What a check has found, as the server writes it, the test's process reads it, and the user is shown it.

use core::fmt::Write;
use std::io;

use super::process::Failed;
use super::record::{Choice, End, Sheet};
use super::schedule::Tally;
use crate::observe::{Modules, Symbol, Symbols};

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
    /// The seed that fails, as a variable names it; none if none does.
    pub(super) failed: Option<String>,
    pub(super) text: String,
}

impl Verdict {
    /// There cannot be such a check.
    pub(super) fn impossible(error: &io::Error) -> Verdict {
        Verdict {
            failed: Some(String::new()),
            text: error.to_string(),
            ..Verdict::default()
        }
    }

    pub(super) fn without_atomics() -> Verdict {
        Verdict::impossible(&io::Error::other(
            "no atomic operation had a point: build with `RUSTFLAGS=\"--cfg greenthread_points -C passes=tsan \
            -C llvm-args=-tsan-instrument-func-entry-exit=0\"` and `--target` (docs/sim.md)",
        ))
    }

    /// A seed's runs differed, and did not when it was looked where.
    pub(super) fn elusive(name: &str) -> Verdict {
        Verdict {
            failed: Some(name.to_owned()),
            text: format!("sim: two runs of seed {name} differed, and the next two did not"),
            ..Verdict::default()
        }
    }

    /// A process has passed that has begun with seed `first`.
    pub(super) fn add(&mut self, first: u64, sheet: &Sheet) {
        self.seeds += sheet.done;
        self.is_outside |= sheet.is_outside;
        self.tally.atomics += sheet.atomics;
        let hashes = &sheet.hashes[..sheet.done as usize];
        self.hashes.extend((first..).zip(hashes.iter().copied()));
        self.tally.points += sheet.points;
        self.tally.switches += sheet.switches;
        self.tally.hash = self.tally.hash.wrapping_add(sheet.hash);
    }

    /// The run of seed `name` has failed. `needs`: the first of the seeds that must come before it in one process.
    pub(super) fn of(failed: Failed, name: &str, needs: Option<u64>, sheet: &Sheet) -> Verdict {
        let mut text = String::new();
        let said = sheet.text();
        let what = match failed {
            Failed::Said(End::Panicked) => format!("panicked: {said}"),
            Failed::Said(End::Deadlock) => {
                format!("deadlock: no thread is ready, and none waits for a time\n{said}")
            }
            Failed::Said(End::Points) => {
                format!("came to more points than `max_points` allows\n{said}")
            }
            Failed::Said(End::Time) => {
                format!("took longer than `max_time` allows, in virtual time\n{said}")
            }
            Failed::Said(End::Computes) => {
                "computes, or is blocked, without a schedule point".into()
            }
            Failed::Said(End::Threads) => {
                "threads are left, and `all_threads_end` allows none".into()
            }
            Failed::Said(End::Differs) => "another run of this seed did something else".into(),
            Failed::Said(_) => said,
            Failed::Signal(number) => format!("ended by signal {number}\n{said}"),
            Failed::Exit(code) => format!("exited with code {code}\n{said}"),
        };
        let _ = writeln!(text, "sim: {what}");
        let _ = writeln!(
            text,
            "  seed: {name}; repeat it with GREENTHREAD_SIM_SEED={name}"
        );
        let _ = match needs {
            None => writeln!(text, "  fails alone: yes"),
            Some(first) => writeln!(
                text,
                "  fails alone: no; in a process that has run the seeds from {first} on"
            ),
        };
        let tally = sheet.tally;
        let _ = writeln!(text, "  {} points, hash {:016x}", tally.points, tally.hash);
        write_choices(&mut text, sheet);
        Verdict {
            seeds: 1,
            tally,
            is_outside: sheet.is_outside,
            failed: Some(name.to_owned()),
            text,
            ..Verdict::default()
        }
    }

    pub(super) fn encode(&self) -> String {
        let Tally {
            points,
            atomics,
            switches,
            hash,
        } = self.tally;
        let (seeds, steps, is_outside) = (self.seeds, self.steps, u8::from(self.is_outside));
        let failed = self.failed.as_deref().unwrap_or("-");
        let hashes = self
            .hashes
            .iter()
            .map(|(seed, hash)| format!("{seed} {hash} "));
        let hashes: String = hashes.collect();
        let numbers = format!("{seeds} {points} {atomics} {switches} {hash} {steps} {is_outside}");
        format!("{numbers} {failed}\n{hashes}\n{}", self.text)
    }

    /// Reads what [`encode`](Verdict::encode) has written, by a process that has also said `more`.
    pub(super) fn decode(told: &[u8], more: &str) -> Option<Verdict> {
        let told = std::str::from_utf8(told).ok()?;
        let mut lines = told.splitn(3, '\n');
        let mut words = lines.next()?.split(' ');
        let mut number = || words.next()?.parse().ok();
        let [seeds, points, atomics, switches, hash, steps, is_outside] =
            [(); 7].map(|()| number()).map(|number| number.unwrap_or(0));
        let failed = words.next().filter(|&name| name != "-").map(String::from);
        let hashes = lines
            .next()?
            .split_whitespace()
            .map_while(|word| word.parse().ok());
        let hashes: Vec<u64> = hashes.collect();
        let text = lines.next()?;
        let text = match failed.is_some() && !more.is_empty() {
            true => format!("{text}  the run has said:\n{more}"),
            false => text.to_owned(),
        };
        Some(Verdict {
            seeds,
            tally: Tally {
                points,
                atomics,
                switches,
                hash,
            },
            steps,
            is_outside: is_outside != 0,
            hashes: hashes
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            failed,
            text,
        })
    }
}

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
        let place = place_in(&stack).unwrap_or_else(|| String::from("an unknown place"));
        let [from, to] = [from, to].map(|number| sheet.name(number));
        let _ = writeln!(
            text,
            "    point {point}, {time} ns: {from} -> {to}, at {place}"
        );
    }
}

/// The innermost function on a stack that is neither std's nor the crate's, if there is one, or else the innermost of the
/// crate's that is not the simulator's.
fn place_in(stack: &[Symbol]) -> Option<String> {
    let place = |symbol: &Symbol| {
        let file = symbol.file.as_deref()?;
        let line = symbol.line.unwrap_or(0);
        Some(format!("{file}:{line} in {}", symbol.function))
    };
    let is_stds = |file: &str| file.starts_with("/rustc/") || file.contains("/rustlib/src/rust/");
    let is_own = |symbol: &&Symbol| symbol.function.contains("greenthread::");
    let known = || {
        let has_file = |symbol: &&Symbol| symbol.file.as_deref().is_some_and(|file| !is_stds(file));
        stack.iter().filter(has_file)
    };
    let users = known().find(|symbol| !is_own(symbol) && !symbol.function.starts_with("__tsan_"));
    let ours = || known().find(|symbol| is_own(symbol) && !symbol.function.contains("::sim::"));
    users.or_else(ours).and_then(place)
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
/// assert!(text.starts_with("sim: panicked: at once\n"));
/// assert!(text.contains("repeat it with GREENTHREAD_SIM_SEED=random:0\n"));
/// assert!(text.contains("fails alone: yes\n"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure(Verdict);

impl Failure {
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
        self.0.failed.as_deref().unwrap_or("")
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl std::error::Error for Failure {}

impl From<Verdict> for Result<Summary, Failure> {
    fn from(verdict: Verdict) -> Self {
        if verdict.failed.is_some() {
            return Err(Failure(verdict));
        }
        let Tally {
            points,
            atomics,
            switches,
            hash,
        } = verdict.tally;
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
