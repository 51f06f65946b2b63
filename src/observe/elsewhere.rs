//! The stand-in for `snapshot` and its kin where there are no green threads: the names of threads, and whether they
//! wait. What they wait for lies on their stacks, which nobody can read here.

use core::panic::Location;
use std::io::{self, Write};

use super::dump::{Depth, State};
use super::json::{Object, Quoted, list};
use crate::engine::inspect::notes::ReadSection;
use crate::engine::inspect::{Identity, kernel};

/// A wait that is described; there is none.
pub(crate) struct Wait {
    pub(crate) whom: Option<u32>,
    never: core::convert::Infallible,
}

/// One thread.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) name: Option<Box<str>>,
    pub(crate) is_green: bool,
    pub(crate) state: State,
    pub(crate) since: u32,
    pub(crate) cpu: Option<u64>,
    pub(crate) wait: Option<Box<Wait>>,
    pub(crate) system_call: Option<String>,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) stack: u32,
}

/// All threads.
pub(crate) struct Snapshot {
    pub(crate) threads: Vec<Entry>,
}

impl Snapshot {
    pub(crate) fn take(_: Depth) -> Snapshot {
        let _section = ReadSection::begin();
        let entry = |kernel: &kernel::KernelThread| {
            let identity = kernel.identity();
            // SAFETY: it was seen in the read section, and so it stays.
            let identity: Option<&Identity> = unsafe { identity.as_ref() };
            Entry {
                id: identity.map_or(0, |identity| identity.id().get()),
                name: identity.and_then(Identity::name).map(Into::into),
                is_green: false,
                state: match kernel.parking().is_null() {
                    true => State::Running,
                    false => State::Parked,
                },
                since: kernel.millis(),
                cpu: None,
                wait: None,
                system_call: None,
                spawned_at: identity.and_then(Identity::spawned_at),
                stack: 0,
            }
        };
        Snapshot {
            threads: kernel::all().map(entry).collect(),
        }
    }

    pub(crate) fn write_text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "greenthread: {} kernel threads", self.threads.len())?;
        for entry in &self.threads {
            let name = entry.name.as_deref().unwrap_or("<unnamed>");
            let doing = match entry.state {
                State::Parked => "waits",
                _ => "runs",
            };
            writeln!(to, "\nthread {} {name:?}: {doing}", entry.id)?;
            if let Some(place) = entry.spawned_at {
                writeln!(to, "  spawned at {place}")?;
            }
        }
        Ok(())
    }

    pub(crate) fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        let threads = self.threads.iter().map(|entry| {
            Object::default()
                .with("id", entry.id)
                .with("kind", Quoted("kernel"))
                .with("state", Quoted(entry.state.word()))
                .with("since_ms", entry.since)
                .with("stack", 0)
        });
        let dump = Object::default().with("version", 1);
        let dump = dump.with("process", std::process::id());
        let dump = dump.with("threads", list(threads));
        writeln!(to, "{}", dump.with("stacks", "[[]]"))
    }

    pub(crate) fn describe_wait(&self, wait: &Wait) -> String {
        match wait.never {}
    }

    pub(crate) fn backtrace(&self, _: u32) -> String {
        String::new()
    }

    /// Nobody knows who holds a lock here.
    pub(crate) fn cycles(&self) -> Vec<Vec<u32>> {
        Vec::new()
    }

    pub(crate) fn describe_cycle(&self, _: &[u32]) -> String {
        String::new()
    }
}
