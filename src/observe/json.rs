//! A dump for tools: one object, by the schema `docs/dump.schema.json`. Stacks are listed once, and threads name
//! theirs by number.

use core::fmt;
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use super::raw;
use super::snapshot::{Entry, Snapshot};
use super::symbols::Symbols;
use super::text::{self, descriptor_text};

/// The version of the format.
const VERSION: u32 = 1;

/// A string of JSON.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                ..' ' | '\u{7f}' => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

impl Snapshot {
    /// Writes the whole dump.
    pub(crate) fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let millis = self
            .at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        write!(
            to,
            "{{\"version\":{VERSION},\"process\":{},\"time_ms\":{millis},\n\"threads\":[",
            std::process::id()
        )?;
        for (i, entry) in self.threads.iter().enumerate() {
            to.write_all(if i == 0 { b"\n" } else { b",\n" })?;
            self.write_thread(entry, to)?;
        }
        write!(to, "\n],\n\"stacks\":[")?;
        let mut symbols = Symbols::new();
        for number in 0..self.stacks.len() as u32 {
            to.write_all(if number == 0 { b"\n" } else { b",\n" })?;
            raw::progress();
            self.write_frames(number, &mut symbols, to)?;
        }
        writeln!(to, "\n]}}")
    }

    pub(super) fn write_thread(&self, entry: &Entry, to: &mut dyn Write) -> io::Result<()> {
        let kind = if entry.is_green { "green" } else { "kernel" };
        write!(
            to,
            "{{\"id\":{},\"kind\":\"{kind}\",\"state\":\"{}\",\"since_ms\":{},\"stack\":{}",
            entry.id,
            text::state(entry),
            entry.since,
            entry.stack
        )?;
        if let Some(cpu) = entry.cpu {
            write!(to, ",\"cpu_us\":{}", cpu / 1_000)?;
        }
        if let Some(name) = &entry.name {
            write!(to, ",\"name\":{}", Quoted(name))?;
        }
        if let Some(call) = text::call(entry) {
            write!(to, ",\"system_call\":{}", Quoted(&call))?;
        }
        if let Some(place) = entry.spawned_at {
            let place = place.to_string();
            write!(to, ",\"spawned_at\":{}", Quoted(&place))?;
        }
        self.write_wait(entry, to)?;
        to.write_all(b"}")
    }

    fn write_wait(&self, entry: &Entry, to: &mut dyn Write) -> io::Result<()> {
        let Some(wait) = &entry.wait else {
            return Ok(());
        };
        write!(to, ",\"waits_for\":{{\"what\":{}", Quoted(wait.kind.name))?;
        if wait.of != 0 {
            write!(to, ",\"address\":\"{:#x}\"", wait.of)?;
        }
        if let Some(place) = wait.whom {
            let key = match wait.facts.target {
                Some(_) => "thread",
                None => "held_by",
            };
            write!(to, ",\"{key}\":{}", self.threads[place as usize].id)?;
        }
        for (name, value) in wait.facts.numbers() {
            write!(to, ",{}:{value}", Quoted(name))?;
        }
        if let Some(descriptor) = wait.facts.descriptor {
            write!(to, ",\"descriptor\":{descriptor}")?;
            if let Some(text) = descriptor_text(descriptor) {
                write!(to, ",\"file\":{}", Quoted(&text))?;
            }
        }
        if let Some(left) = wait.left {
            write!(to, ",\"left_ms\":{}", left / 1_000_000)?;
        }
        to.write_all(b"}")
    }

    pub(super) fn write_frames(
        &self,
        number: u32,
        symbols: &mut Symbols,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let frames = self.frames(number, symbols);
        to.write_all(b"[")?;
        for (i, frame) in frames.iter().enumerate() {
            if i != 0 {
                to.write_all(b",")?;
            }
            write!(to, "{{\"function\":{}", Quoted(&frame.function))?;
            if let Some(file) = &frame.file {
                write!(to, ",\"file\":{}", Quoted(file))?;
            }
            if let Some(line) = frame.line {
                write!(to, ",\"line\":{line}")?;
            }
            to.write_all(b"}")?;
        }
        to.write_all(b"]")
    }
}
