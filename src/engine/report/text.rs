//! A dump for people.
//!
//! Threads that do the same at the same place are shown together: those with the same state, the same kind of
//! wait, the same stack, and the same place of birth. Groups of few come first: they are what is unusual.

use std::collections::HashMap;
use std::io::{self, Write};

use super::collect::{Entry, Snapshot, Wait};
use super::describe::{self, Named};
use super::symbols::Symbols;
use crate::engine::sched::sight::Doing;

/// So many threads of a group are named.
const NAMED: usize = 8;

/// Threads that are shown together, as places among the entries.
struct Group {
    members: Vec<u32>,
}

impl Snapshot {
    /// Writes the whole dump.
    pub(crate) fn write_text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.write_summary(to)?;
        let mut symbols = Symbols::new();
        for group in self.groups() {
            writeln!(to)?;
            self.write_group(&group, &mut symbols, to)?;
        }
        Ok(())
    }

    fn write_summary(&self, to: &mut dyn Write) -> io::Result<()> {
        let green = self.threads.iter().filter(|entry| entry.is_green).count();
        let kernel = self.threads.len() - green;
        writeln!(
            to,
            "greenthread: {} and {} of process {}, at {}",
            count(green, "green thread"),
            count(kernel, "kernel thread"),
            std::process::id(),
            humantime(self.at),
        )?;
        let of = |word: &str| {
            let is = |entry: &&Entry| entry.is_green && describe::state(entry) == word;
            self.threads.iter().filter(is).count()
        };
        let states = ["running", "blocked", "ready", "new", "parked"];
        let counted = states.map(|word| format!("{} {word}", of(word)));
        writeln!(to, "  green threads: {}", counted.join(", "))
    }

    /// The threads by what they do, the smallest groups first.
    fn groups(&self) -> Vec<Group> {
        let mut places = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for (index, entry) in self.threads.iter().enumerate() {
            let subject = entry.wait.as_ref().map(|wait| wait.subject.name.as_ptr());
            let spawned_at = entry.spawned_at.map(core::ptr::from_ref);
            let state = describe::state(entry);
            let key = (state, subject, spawned_at, entry.stack, entry.is_green);
            let place = *places.entry(key).or_insert_with(|| {
                groups.push(Group {
                    members: Vec::new(),
                });
                groups.len() - 1
            });
            groups[place].members.push(index as u32);
        }
        groups.sort_by_key(|group| group.members.len());
        groups
    }

    fn write_group(
        &self,
        group: &Group,
        symbols: &mut Symbols,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let entries = || {
            group
                .members
                .iter()
                .map(|&place| &self.threads[place as usize])
        };
        let Some(first) = entries().next() else {
            return Ok(());
        };
        match group.members.len() {
            1 => writeln!(to, "{}: {}", Named(first), self.doing(first))?,
            all => self.write_members(all, entries, to)?,
        }
        if let Some(place) = first.spawned_at {
            writeln!(to, "  spawned at {place}")?;
        }
        self.write_stack(first.stack, symbols, to)
    }

    /// The head of a group of several.
    fn write_members<'a, I: Iterator<Item = &'a Entry>>(
        &self,
        all: usize,
        entries: impl Fn() -> I,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(to, "{all} threads:")?;
        for entry in entries().take(NAMED) {
            writeln!(to, "  {}: {}", Named(entry), self.doing(entry))?;
        }
        if all > NAMED {
            let times = || entries().map(|entry| u64::from(entry.since));
            writeln!(
                to,
                "  and {} more; all are {} for {} to {}",
                all - NAMED,
                entries().next().map_or("", describe::state),
                describe::time(times().min().unwrap_or(0)),
                describe::time(times().max().unwrap_or(0)),
            )?;
        }
        Ok(())
    }

    /// The state of a thread, and its wait.
    pub(super) fn doing(&self, entry: &Entry) -> String {
        let since = describe::time(u64::from(entry.since));
        let mut text = format!("{} for {since}", describe::state(entry));
        if let Some(cpu) = entry.cpu {
            text += &format!(", with {} of CPU time", describe::time(cpu / 1_000_000));
        }
        if let Some(call) = describe::call(entry) {
            text += &format!(" in the system call {call}");
        }
        match &entry.wait {
            // One that was woken, or that waits on its own kernel thread.
            Some(wait) if entry.doing == Doing::Ready => {
                text += &format!(", woken from its wait for {}", describe::wait(self, wait));
            }
            Some(wait) => text += &format!(", waits for {}", describe::wait(self, wait)),
            None => {}
        }
        text
    }

    /// A thread's wait in words.
    pub(crate) fn describe_wait(&self, wait: &Wait) -> String {
        describe::wait(self, wait)
    }

    /// The name of the system call that the thread is blocked in.
    pub(crate) fn describe_call(&self, entry: &Entry) -> Option<String> {
        describe::call(entry)
    }

    /// A stack as text.
    pub(crate) fn backtrace(&self, number: u32) -> String {
        let mut text = Vec::new();
        // A Vec accepts everything.
        let _ = self.write_stack(number, &mut Symbols::new(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn write_stack(
        &self,
        number: u32,
        symbols: &mut Symbols,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let frames = self.frames(number, symbols);
        for (i, frame) in frames.iter().enumerate() {
            writeln!(to, "  {i:3}: {}", frame.function)?;
            if let Some(file) = &frame.file {
                let line = frame.line.unwrap_or(0);
                writeln!(to, "             at {file}:{line}")?;
            }
        }
        Ok(())
    }
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A time of day of the universal time.
fn humantime(at: std::time::SystemTime) -> String {
    let seconds = at
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day after 1970-01-01, by the rules of the Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    let mut year = 1970;
    let mut left = days;
    let is_leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u32 + 1, left as u32 + 1)
}
