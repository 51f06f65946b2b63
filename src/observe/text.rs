//! A dump for people, with the words for a thread's name, its state and its wait; and the same for tools, as JSON.
//!
//! Threads that do the same at the same place are shown together: those with the same state, the same kind of
//! wait, the same stack, and the same place of birth. Groups of few come first: they are what is unusual.
//!
//! JSON is one object, by the schema `docs/dump.schema.json`. Stacks are listed once, and threads name theirs by number.

use core::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

use super::dump::{Entry, State, Wait};
use super::json::{Object, Quoted, list};
use super::numbers::{NumberMap, digest, order};
use super::snapshot::{Snapshot, Symbols, descriptor_text};

/// The version of the format of JSON.
const VERSION: u32 = 1;
/// So many threads of a group are named.
const NAMED: usize = 8;

impl Snapshot {
    /// The whole dump.
    pub(crate) fn text(&self) -> String {
        let mut text = self.summary();
        let mut symbols = Symbols::default();
        for group in self.groups() {
            text.push('\n');
            self.add_group(&group, &mut symbols, &mut text);
        }
        text
    }

    fn summary(&self) -> String {
        let green = self.threads.iter().filter(|entry| entry.is_green).count();
        let kernel = self.threads.len() - green;
        let plural = |count| if count == 1 { "" } else { "s" };
        let (one, other) = (plural(green), plural(kernel));
        let (process, at) = (std::process::id(), humantime(self.at));
        let of = |word: &str| {
            let is = |entry: &&Entry| entry.is_green && entry.state.word() == word;
            self.threads.iter().filter(is).count()
        };
        let states = ["running", "blocked", "ready", "new", "parked"];
        let counted = states.map(|word| format!("{} {word}", of(word))).join(", ");
        format!(
            "greenthread: {green} green thread{one} and {kernel} kernel thread{other} of process {process}, at {at}\n  \
             green threads: {counted}\n"
        )
    }

    /// The threads by what they do, the smallest groups first.
    fn groups(&self) -> Vec<Vec<&Entry>> {
        let key = |entry: &Entry| {
            let kind = entry.wait.as_ref().map(|wait| wait.kind.name.as_ptr());
            let spawned_at = entry.spawned_at.map(core::ptr::from_ref);
            (entry.state, kind, spawned_at, entry.stack, entry.is_green)
        };
        let mut groups: NumberMap<Vec<&Entry>> = NumberMap::default();
        for entry in &self.threads {
            let own = key(entry);
            let is_it = |group: &Vec<&Entry>| key(group[0]) == own;
            let place = groups.place(digest(own), is_it, || Vec::with_capacity(1));
            groups.entries[place].1.push(entry);
        }
        let mut groups = groups.entries;
        let mut sizes = groups.iter().map(|(_, group)| group.len() as u64);
        let order = order(&mut sizes).into_iter();
        let in_order = order.map(|place| core::mem::take(&mut groups[place].1));
        in_order.collect()
    }

    fn add_group(&self, group: &[&Entry], symbols: &mut Symbols, text: &mut String) {
        let first = group[0];
        let line = |entry: &Entry| format!("{}: {}\n", title(entry), self.doing(entry));
        if group.len() == 1 {
            *text += &line(first);
        } else {
            *text += &format!("{} threads:\n", group.len());
            for entry in group.iter().take(NAMED) {
                *text += &format!("  {}", line(entry));
            }
        }
        if group.len() > NAMED {
            let times = group.iter().map(|entry| u64::from(entry.since));
            let (shortest, longest) = (times.clone().min(), times.max());
            let [from, to] = [shortest, longest].map(|since| time(since.unwrap_or(0)));
            let (more, state) = (group.len() - NAMED, first.state.word());
            *text += &format!("  and {more} more; all are {state} for {from} to {to}\n");
        }
        *text += &self.places(first, symbols);
    }

    /// Where a thread was spawned, and where it is.
    pub(super) fn places(&self, entry: &Entry, symbols: &mut Symbols) -> String {
        let spawned = entry.spawned_at.map(|at| format!("  spawned at {at}\n"));
        spawned.unwrap_or_default() + &self.backtrace(entry.stack, symbols)
    }

    /// The state of a thread, and its wait.
    pub(super) fn doing(&self, entry: &Entry) -> String {
        let since = time(u64::from(entry.since));
        let mut text = format!("{} for {since}", entry.state.word());
        if let Some(cpu) = entry.cpu {
            text += &format!(", with {} of CPU time", time(cpu / 1_000_000));
        }
        if let Some(call) = &entry.system_call {
            text += &format!(" in the system call {call}");
        }
        if let Some(wait) = self.describe_wait(entry) {
            // A ready thread was woken. Any other waits: parked, or on its own kernel thread.
            let how = match entry.state {
                State::Ready => "woken from its wait for",
                _ => "waits for",
            };
            text += &format!(", {how} {wait}");
        }
        if let Some(frames) = entry.frames {
            let left = |millis: i64| time(millis.unsigned_abs());
            text += &match frames.left {
                Some(late @ ..=0) => format!(", in a frame that ended {} ago", left(late)),
                _ if frames.is_cancelled => ", in a frame that was cancelled".into(),
                Some(more) => format!(", in a frame that ends in {}", left(more)),
                None => String::new(),
            };
            let waits_on = |wait: &Wait| !wait.kind.when_ended.ends();
            if frames.have_ended() && entry.wait.as_deref().is_some_and(waits_on) {
                text += ", and waits on";
            }
        }
        text
    }

    /// What a thread waits for: `mutex 0x7f…, held by thread 3 "b"`.
    pub(crate) fn describe_wait(&self, entry: &Entry) -> Option<String> {
        let wait = entry.wait.as_ref()?;
        let whom = wait.whom.map(|at| title(&self.threads[at as usize]));
        let mut text = match (wait.facts.target, &whom) {
            (Some(_), Some(whom)) => format!("the end of {whom}"),
            _ if wait.of != 0 => format!("{} {:#x}", wait.kind.name, wait.of),
            _ => wait.kind.name.to_string(),
        };
        if wait.facts.holder.is_some() {
            text += ", held by ";
            text += whom.as_deref().unwrap_or("a thread that is not known");
        }
        let numbers = wait.facts.numbers.iter();
        let mut details: Vec<String> = numbers.map(|(name, n)| format!("{name} {n}")).collect();
        if let Some(descriptor) = wait.facts.descriptor {
            details.push(format!("descriptor {descriptor}"));
            details.extend(descriptor_text(descriptor));
        }
        if !details.is_empty() {
            text += &format!(" ({})", details.join(", "));
        }
        if let Some(left) = wait.left {
            text += &format!(", for {} at most", time(left / 1_000_000));
        }
        Some(text)
    }

    /// A cycle in words, a line for each thread.
    pub(crate) fn describe_cycle(&self, cycle: &[u32]) -> String {
        let line = |&place: &u32| {
            let entry = &self.threads[place as usize];
            let wait = self.describe_wait(entry).unwrap_or_default();
            format!("  {} waits for {wait}\n", title(entry))
        };
        cycle.iter().map(line).collect()
    }

    /// A stack as text.
    pub(crate) fn backtrace(&self, number: u32, symbols: &mut Symbols) -> String {
        let mut text = String::new();
        for (i, frame) in self.frames(number, symbols).iter().enumerate() {
            text += &format!("  {i:3}: {}\n", frame.function);
            if let Some(file) = &frame.file {
                let line = frame.line.unwrap_or(0);
                text += &format!("             at {file}:{line}\n");
            }
        }
        text
    }
}

/// A time of day of the universal time.
fn humantime(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    // Years are counted from March on, so that the day of a leap year is the last day of its year. 400 years have 146,097
    // days, and five months have 153.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (next_year, month) = (month / 10, (month + 2) % 12 + 1);
    let year = 400 * era + year + next_year;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A thread as a report calls it: its number, and its name.
pub(super) fn title(entry: &Entry) -> String {
    let mut title = match (entry.is_green, entry.id) {
        (true, id) => format!("thread {id}"),
        (false, 0) => "kernel thread".into(),
        (false, id) => format!("kernel thread {id}"),
    };
    if let Some(name) = &entry.name {
        title += &format!(" {name:?}");
    }
    title
}

/// A time, to two digits or so.
pub(super) fn time(millis: u64) -> String {
    match (millis / 60_000, millis / 1_000) {
        (0, 0) => format!("{millis} ms"),
        (0, seconds) => format!("{seconds}.{} s", millis % 1_000 / 100),
        (minutes @ ..60, seconds) => format!("{minutes} min {} s", seconds % 60),
        (minutes, _) => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

// ==== JSON ====

/// What every report tells of a thread.
pub(super) fn thread_as_json(entry: &Entry) -> Object {
    let kind = if entry.is_green { "green" } else { "kernel" };
    let place = entry.spawned_at.map(|place| place.to_string());
    let frames = entry.frames;
    Object::default()
        .with("id", entry.id)
        .with("kind", Quoted(kind))
        .with("state", Quoted(entry.state.word()))
        .with("since_ms", entry.since)
        .maybe("cpu_us", entry.cpu.map(|cpu| cpu / 1_000))
        .maybe("frames_end_in_ms", frames.and_then(|frames| frames.left))
        .maybe("cancelled", frames.map(|frames| frames.is_cancelled))
        .maybe("name", entry.name.as_deref().map(Quoted))
        .maybe("system_call", entry.system_call.as_deref().map(Quoted))
        .maybe("spawned_at", place.as_deref().map(Quoted))
}

/// A whole dump, in one line without an end. Each part is written as soon as it is made, so the text of a million threads need
/// not stand in memory.
pub(super) struct Json<'a>(pub(super) &'a Snapshot);

impl Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Json(dump) = self;
        let since = dump.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (process, millis) = (std::process::id(), since.as_millis());
        write!(
            f,
            r#"{{"version":{VERSION},"process":{process},"time_ms":{millis},"threads":["#
        )?;
        let comma = |place| if place == 0 { "" } else { "," };
        for (place, entry) in dump.threads.iter().enumerate() {
            let wait = entry.wait.as_ref().map(|wait| dump.wait_as_json(wait));
            let thread = thread_as_json(entry).with("stack", entry.stack);
            write!(f, "{}{}", comma(place), thread.maybe("waits_for", wait))?;
        }
        f.write_str(r#"],"stacks":["#)?;
        let mut symbols = Symbols::default();
        for place in 0..dump.stacks.entries.len() {
            let frames = dump.frames_as_json(place as u32, &mut symbols);
            write!(f, "{}{frames}", comma(place))?;
        }
        f.write_str("]}")
    }
}

impl Snapshot {
    fn wait_as_json(&self, wait: &Wait) -> Object {
        let address = (wait.of != 0).then(|| format!("{:#x}", wait.of));
        let whom = wait.whom.map(|place| self.threads[place as usize].id);
        let key = match wait.facts.target {
            Some(_) => "thread",
            None => "held_by",
        };
        let mut told = Object::default()
            .with("what", Quoted(wait.kind.name))
            .maybe("address", address.as_deref().map(Quoted))
            .maybe(key, whom);
        for &(name, value) in &wait.facts.numbers {
            told = told.with(name, value);
        }
        let file = wait.facts.descriptor.and_then(descriptor_text);
        told.maybe("descriptor", wait.facts.descriptor)
            .maybe("file", file.as_deref().map(Quoted))
            .maybe("left_ms", wait.left.map(|left| left / 1_000_000))
    }

    pub(super) fn frames_as_json(&self, number: u32, symbols: &mut Symbols) -> String {
        let frames = self.frames(number, symbols);
        list(frames.iter().map(|frame| {
            Object::default()
                .with("function", Quoted(&frame.function))
                .maybe("file", frame.file.as_deref().map(Quoted))
                .maybe("line", frame.line)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_have_their_dates() {
        let at = |seconds| humantime(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(68_169_599), "1972-02-28T23:59:59Z");
        assert_eq!(at(68_169_600), "1972-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_795_737_599), "2026-11-26T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
