//! JSON: its strings, objects and lists, and a dump for tools: one object, by the schema `docs/dump.schema.json`. Stacks are listed
//! once, and threads name theirs by number.

use core::fmt::{self, Display, Write as _};
#[cfg(green)]
use std::{
    io::{self, Write},
    time::UNIX_EPOCH,
};

#[cfg(green)]
use super::{
    snapshot::{Entry, Snapshot, Wait},
    symbols::Symbols,
    text::descriptor_text,
};

/// The version of the format.
#[cfg(green)]
const VERSION: u32 = 1;

/// A string, with its quotation marks. What HTML would take for the end of a script, or for a
/// comment, is escaped too.
pub(super) struct Quoted<T>(pub(super) T);

impl<T: AsRef<str>> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.as_ref().chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1F' | '\x7F' => {
                    write!(f, "\\u{:04x}", c as u32)?;
                }
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// An object. The names of its members need no escapes.
#[derive(Default)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn with(mut self, name: &str, value: impl Display) -> Object {
        let comma = if self.0.is_empty() { "" } else { "," };
        // A String accepts everything.
        let _ = write!(self.0, "{comma}\"{name}\":{value}");
        self
    }

    /// The same if there is a value.
    pub(super) fn maybe(self, name: &str, value: Option<impl Display>) -> Object {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0)
    }
}

pub(super) fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

/// What every report tells of a thread.
#[cfg(green)]
pub(super) fn thread(entry: &Entry) -> Object {
    let kind = if entry.is_green { "green" } else { "kernel" };
    let place = entry.spawned_at.map(|place| place.to_string());
    Object::default()
        .with("id", entry.id)
        .with("kind", Quoted(kind))
        .with("state", Quoted(entry.state_word()))
        .with("since_ms", entry.since)
        .maybe("cpu_us", entry.cpu.map(|cpu| cpu / 1_000))
        .maybe("name", entry.name.as_deref().map(Quoted))
        .maybe("system_call", entry.system_call().map(Quoted))
        .maybe("spawned_at", place.map(Quoted))
}

#[cfg(green)]
impl Snapshot {
    /// Writes the whole dump, in one line without an end.
    pub(crate) fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (process, millis) = (std::process::id(), since.as_millis());
        write!(
            to,
            r#"{{"version":{VERSION},"process":{process},"time_ms":{millis},"threads":["#
        )?;
        for (i, entry) in self.threads.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let wait = entry.wait.as_ref().map(|wait| self.wait_as_json(wait));
            let thread = thread(entry).with("stack", entry.stack);
            write!(to, "{comma}{}", thread.maybe("waits_for", wait))?;
        }
        write!(to, r#"],"stacks":["#)?;
        let mut symbols = Symbols::new();
        for number in 0..self.stacks.len() {
            let comma = if number == 0 { "" } else { "," };
            write!(to, "{comma}{}", self.frames_as_json(number, &mut symbols))?;
        }
        write!(to, "]}}")
    }

    fn wait_as_json(&self, wait: &Wait) -> Object {
        let address = (wait.of != 0).then(|| format!("{:#x}", wait.of));
        let whom = wait.whom.map(|place| self.threads[place as usize].id);
        let key = match wait.facts.target {
            Some(_) => "thread",
            None => "held_by",
        };
        let mut told = Object::default()
            .with("what", Quoted(wait.kind.name))
            .maybe("address", address.map(Quoted))
            .maybe(key, whom);
        for &(name, value) in &wait.facts.numbers {
            told = told.with(name, value);
        }
        let file = wait.facts.descriptor.and_then(descriptor_text);
        told.maybe("descriptor", wait.facts.descriptor)
            .maybe("file", file.map(Quoted))
            .maybe("left_ms", wait.left.map(|left| left / 1_000_000))
    }

    pub(super) fn frames_as_json(&self, number: u32, symbols: &mut Symbols) -> String {
        let frames = self.frames(number, symbols);
        list(frames.iter().map(|frame| {
            Object::default()
                .with("function", Quoted(&frame.function))
                .maybe("file", frame.file.as_ref().map(Quoted))
                .maybe("line", frame.line)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::Quoted;

    #[test]
    fn quotes_what_would_end_a_string_or_a_script() {
        let text = Quoted("a\"b\\c</script>\n\u{7}é").to_string();
        assert_eq!(text, r#""a\"b\\c\u003c/script\u003e\u000a\u0007é""#);
    }
}
