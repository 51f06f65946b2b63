//! The answers: a line of JSON each. `docs/observe-socket.md` describes them.

use std::io::{self, Write};

use super::ask::{Ask, VERSION};
use super::client::Client;
use crate::engine::door::clock;
use crate::engine::inspect::all;
use crate::engine::inspect::threads::Thread;
use crate::observe::deadlock;
use crate::observe::json::Quoted;
use crate::observe::runtimes::{self, Runtime};
use crate::observe::snapshot::{self, Depth, Entry, Snapshot};
use crate::observe::summary::{Counts, OfProcessor, Summary};
use crate::observe::symbols::Symbols;
use crate::observe::text;

/// The answer that says why there is no other.
pub(super) fn error(reason: &str) -> String {
    format!("{{\"version\":{VERSION},\"error\":{}}}\n", Quoted(reason))
}

impl Client {
    pub(super) fn answer(&mut self, asked: Ask, to: &mut dyn Write) -> io::Result<()> {
        match asked {
            Ask::Summary { show } => self.summary(show, to),
            Ask::Thread { id } => thread(id, to),
            Ask::Dump => dump(to),
            Ask::Deadlocks => deadlocks(to),
        }
    }

    fn summary(&mut self, show: usize, to: &mut dyn Write) -> io::Result<()> {
        let runtimes = runtimes::all();
        let summary = Summary::take(&runtimes, &mut self.looks, &mut self.observer, show);
        begin("summary", to)?;
        write!(
            to,
            ",\"process\":{},\"program\":{},\"uptime_ms\":{},\"took_us\":{},\"runtimes\":[",
            std::process::id(),
            Quoted(&program()),
            (clock::now() - self.started) / 1_000_000,
            summary.took / 1000,
        )?;
        for (i, (runtime, processors)) in runtimes.iter().zip(&summary.processors).enumerate() {
            comma(i, to)?;
            write_runtime(runtime, processors, &summary.snapshot, to)?;
        }
        write!(to, "],\"threads\":")?;
        write_counts(&summary.counts, to)?;
        write!(to, ",\"busiest\":[")?;
        for (i, &(place, busy)) in summary.busiest.iter().enumerate() {
            comma(i, to)?;
            write_entry(&summary.snapshot, place, Some(busy), to)?;
        }
        write!(to, "],\"longest\":[")?;
        for (i, &place) in summary.longest.iter().enumerate() {
            comma(i, to)?;
            write_entry(&summary.snapshot, place, None, to)?;
        }
        writeln!(to, "]}}")
    }
}

fn begin(answer: &str, to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"version\":{VERSION},\"answer\":\"{answer}\"")
}

fn comma(i: usize, to: &mut dyn Write) -> io::Result<()> {
    match i {
        0 => Ok(()),
        _ => to.write_all(b","),
    }
}

/// The name of the program's file.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn write_runtime(
    runtime: &Runtime,
    processors: &[OfProcessor],
    snapshot: &Snapshot,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mode = match runtime.cluster() {
        Some(_) => "green",
        None => "kernel",
    };
    write!(to, "{{\"mode\":\"{mode}\"")?;
    if let Some(policy) = runtime.policy() {
        write!(to, ",\"policy\":{}", Quoted(policy))?;
    }
    let figures = runtime.figures();
    for (name, value) in figures.numbers {
        write!(to, ",{}:{value}", Quoted(name))?;
    }
    write!(to, ",\"blocked_calls\":[")?;
    for (i, (name, count)) in figures.blocked_calls.iter().enumerate() {
        comma(i, to)?;
        write!(to, "{{\"name\":{},\"count\":{count}}}", Quoted(name))?;
    }
    write!(to, "],\"processors\":[")?;
    for (i, processor) in processors.iter().enumerate() {
        comma(i, to)?;
        write!(
            to,
            "{{\"index\":{},\"state\":\"{}\",\"busy\":{},\"queue\":{},\"switches\":{}",
            processor.index, processor.state, processor.busy, processor.queue, processor.switches
        )?;
        if let Some(place) = processor.thread {
            let entry = &snapshot.threads[place];
            write!(to, ",\"thread\":{}", entry.id)?;
            if let Some(cpu) = entry.cpu {
                write!(to, ",\"cpu_us\":{}", cpu / 1_000)?;
            }
            if let Some(name) = &entry.name {
                write!(to, ",\"name\":{}", Quoted(name))?;
            }
        }
        to.write_all(b"}")?;
    }
    to.write_all(b"]}")
}

fn write_counts(counts: &Counts, to: &mut dyn Write) -> io::Result<()> {
    write!(
        to,
        "{{\"green\":{},\"kernel\":{},\"new\":{},\"ready\":{},\"running\":{},\"blocked\":{},\"parked\":{},\"waits\":[",
        counts.green,
        counts.kernel,
        counts.new,
        counts.ready,
        counts.running,
        counts.blocked,
        counts.parked
    )?;
    for (i, (kind, count)) in counts.waits.iter().enumerate() {
        comma(i, to)?;
        write!(to, "{{\"what\":{},\"count\":{count}}}", Quoted(kind.name))?;
    }
    to.write_all(b"]}")
}

/// Writes a thread, without the end of the object if there is more to come.
fn write_members(snapshot: &Snapshot, entry: &Entry, to: &mut dyn Write) -> io::Result<()> {
    let kind = if entry.is_green { "green" } else { "kernel" };
    write!(
        to,
        "{{\"id\":{},\"kind\":\"{kind}\",\"state\":\"{}\",\"since_ms\":{},\"turns\":{}",
        entry.id,
        text::state(entry),
        entry.since,
        entry.turns
    )?;
    if let Some(name) = &entry.name {
        write!(to, ",\"name\":{}", Quoted(name))?;
    }
    if let Some(wait) = &entry.wait {
        let text = text::wait_text(snapshot, wait);
        write!(to, ",\"waits_for\":{}", Quoted(&text))?;
    }
    if let Some(call) = text::call(entry) {
        write!(to, ",\"system_call\":{}", Quoted(&call))?;
    }
    if let Some(place) = entry.spawned_at {
        write!(to, ",\"spawned_at\":{}", Quoted(&place.to_string()))?;
    }
    Ok(())
}

fn write_entry(
    snapshot: &Snapshot,
    place: usize,
    busy: Option<u32>,
    to: &mut dyn Write,
) -> io::Result<()> {
    write_members(snapshot, &snapshot.threads[place], to)?;
    if let Some(busy) = busy {
        write!(to, ",\"busy\":{busy}")?;
    }
    to.write_all(b"}")
}

/// One thread, with its backtrace.
fn thread(id: u64, to: &mut dyn Write) -> io::Result<()> {
    let snapshot = find(id).map(|thread| {
        let mut snapshot = Snapshot::of(core::iter::once(thread), Depth::Stacks);
        snapshot.add_holders();
        snapshot
    });
    // Another thread may have the record by now.
    let found = snapshot
        .as_ref()
        .and_then(|snapshot| Some((snapshot, snapshot.threads.first()?)))
        .filter(|(_, entry)| entry.id == id);
    let Some((snapshot, entry)) = found else {
        return to.write_all(error(&format!("there is no thread {id}")).as_bytes());
    };
    begin("thread", to)?;
    write!(to, ",\"thread\":")?;
    write_members(snapshot, entry, to)?;
    write!(to, ",\"frames\":")?;
    snapshot.write_frames(entry.stack, &mut Symbols::new(), to)?;
    writeln!(to, "}}}}")
}

/// The thread that was shown with this number.
fn find(id: u64) -> Option<Thread> {
    let mut found = None;
    snapshot::inspect(&mut all(), |thread| {
        // SAFETY: it was seen in the read section that is open, and so it stays.
        let identity = unsafe { thread.identity().as_ref() };
        let known = identity.and_then(|identity| identity.known_id());
        if known.is_some_and(|known| known.get() == id) {
            found = Some(thread);
        }
    });
    found
}

/// A dump, in one line.
fn dump(to: &mut dyn Write) -> io::Result<()> {
    let snapshot = Snapshot::take(Depth::Stacks);
    begin("dump", to)?;
    write!(to, ",\"dump\":")?;
    snapshot.write_json(&mut OneLine(to))?;
    writeln!(to, "}}")
}

/// Threads that wait for each other.
fn deadlocks(to: &mut dyn Write) -> io::Result<()> {
    let snapshot = Snapshot::take(Depth::Waits);
    begin("deadlocks", to)?;
    write!(to, ",\"deadlocks\":[")?;
    for (i, cycle) in deadlock::cycles(&snapshot).iter().enumerate() {
        comma(i, to)?;
        to.write_all(b"[")?;
        for (i, &place) in cycle.iter().enumerate() {
            comma(i, to)?;
            write_entry(&snapshot, place as usize, None, to)?;
        }
        to.write_all(b"]")?;
    }
    writeln!(to, "]}}")
}

/// Leaves the ends of lines out: inside of strings they are written otherwise.
struct OneLine<'a>(&'a mut dyn Write);

impl Write for OneLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split(|&byte| byte == b'\n') {
            self.0.write_all(line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
