//! What a check has found, as the server writes it, the test's process reads it, and the user is shown it.

use core::fmt::Write;
use std::io;

use super::process::Failed;
use super::record::{Choice, End, Sheet};
use super::schedule::Tally;
use crate::observe::{Modules, Symbols};

/// What a check has found.
#[derive(Clone, Default, Debug)]
pub(super) struct Verdict {
    pub(super) seeds: u64,
    pub(super) tally: Tally,
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

    /// A process has passed.
    pub(super) fn add(&mut self, sheet: &Sheet) {
        self.seeds += sheet.done;
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
            failed: Some(name.to_owned()),
            text,
        }
    }

    pub(super) fn encode(&self) -> String {
        let Tally {
            points,
            switches,
            hash,
        } = self.tally;
        let failed = self.failed.as_deref().unwrap_or("-");
        format!(
            "{} {points} {switches} {hash} {failed}\n{}",
            self.seeds, self.text
        )
    }

    /// Reads what [`encode`](Verdict::encode) has written, by a process that has also said `more`.
    pub(super) fn decode(told: &[u8], more: &str) -> Option<Verdict> {
        let told = std::str::from_utf8(told).ok()?;
        let (first, text) = told.split_once('\n')?;
        let mut words = first.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (seeds, points, switches, hash) = (number()?, number()?, number()?, number()?);
        let failed = words.next().filter(|&name| name != "-").map(String::from);
        let text = match failed.is_some() && !more.is_empty() {
            true => format!("{text}  the run has said:\n{more}"),
            false => text.to_owned(),
        };
        Some(Verdict {
            seeds,
            tally: Tally {
                points,
                switches,
                hash,
            },
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
        // The innermost function that is not std's.
        let stack = symbols.stack(&stack, false, &modules);
        let place = stack.iter().find_map(|symbol| {
            let file = symbol
                .file
                .as_deref()
                .filter(|file| !file.starts_with("/rustc/"))?;
            let line = symbol.line.unwrap_or(0);
            Some(format!("{file}:{line} in {}", symbol.function))
        });
        let place = place.unwrap_or_else(|| String::from("an unknown place"));
        let [from, to] = [from, to].map(|number| sheet.name(number));
        let _ = writeln!(
            text,
            "    point {point}, {time} ns: {from} -> {to}, at {place}"
        );
    }
}

/// What a check that has found nothing amounts to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    pub seeds: u64,
    pub points: u64,
    pub switches: u64,
    pub hash: u64,
}

/// A seed under which the body fails.
#[derive(Clone, Debug)]
pub struct Failure(Verdict);

impl Failure {
    /// The seed, as `GREENTHREAD_SIM_SEED` names it.
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
            switches,
            hash,
        } = verdict.tally;
        Ok(Summary {
            seeds: verdict.seeds,
            points,
            switches,
            hash,
        })
    }
}
