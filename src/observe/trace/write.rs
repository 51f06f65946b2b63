//! The two forms in which a timeline leaves the program.
//!
//! *JSON* is in the trace event format, which Perfetto (<https://ui.perfetto.dev>) and Chrome read.
//!
//! | here | there |
//! |---|---|
//! | runtime; kernel threads | process |
//! | processor; kernel thread | thread |
//! | run, sleep, wait of a kernel thread | complete event (`X`) |
//! | a thread without its processor | asynchronous event (`b`, `e`) |
//! | from a waker or spawner to the next run of the thread | flow (`s`, `f`) |
//! | steal, preemption, hand-off, event, deadline | instant (`i`) |
//!
//! The text is written as it is made, in the order of the timeline.
//!
//! *The page* is one file with all that it needs, which any browser opens without a network.
//!
//! `page.html` is its text, with the script `page.js`. The data stand before that, as an object of the page's language: the
//! names as they are, the items as columns of numbers in base64. Times have the unit in which the length
//! of the trace fits into 32 bits.

use core::fmt::Arguments;
use std::io::{self, Write};

use super::record::{KERNEL, Kind, STOPS, text_of};
use super::timeline::{Item, Timeline};
use crate::observe::json::{Object, Quoted, list};
use crate::observe::numbers::NumberMap;

// ==== JSON ====

type Done = io::Result<()>;

/// Both ends of an arrow have the same name.
const FLOW: &str = r#""cat":"wake-up","name":"wake-up""#;
/// The process that the kernel threads are shown in.
const KERNEL_THREADS: u32 = 1000;

impl Timeline {
    pub(super) fn write_json(&self, out: &mut dyn Write) -> Done {
        let mut writer = Writer {
            timeline: self,
            out,
            flows: 0,
            on_their_way: NumberMap::default(),
        };
        writer.head()?;
        self.items.iter().try_for_each(|item| writer.item(item))?;
        writer.out.write_all(b"\n]}\n")
    }
}

struct Writer<'a> {
    timeline: &'a Timeline,
    out: &'a mut dyn Write,
    flows: u64,
    /// The flows to threads that have not run since; 0 for other threads.
    on_their_way: NumberMap<u64>,
}

impl Writer<'_> {
    fn head(&mut self) -> Done {
        let Timeline { length, lost, .. } = self.timeline;
        write!(
            self.out,
            r#"{{"displayTimeUnit":"ns","otherData":{{"writer":"greenthread","nanoseconds":{length},"lost":{lost}}},"traceEvents":[
{{"ph":"M","pid":{KERNEL_THREADS},"name":"process_name","args":{{"name":"kernel threads"}}}}"#
        )?;
        let mut last = 0;
        for (at, track) in self.timeline.tracks.iter().enumerate() {
            let (pid, tid) = self.place(at as u32);
            if track.runtime > last {
                last = track.runtime;
                self.describe(pid, tid, "process_name", &format!("runtime {last}"))?;
            }
            self.describe(pid, tid, "thread_name", &self.timeline.name_of(track))?;
        }
        Ok(())
    }

    fn describe(&mut self, pid: u32, tid: u32, what: &str, name: &str) -> Done {
        let name = Quoted(name);
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}"
        )
    }

    /// The process and the thread of a track.
    fn place(&self, track: u32) -> (u32, u32) {
        let track = &self.timeline.tracks[track as usize];
        match track.runtime {
            0 => (KERNEL_THREADS, track.index),
            runtime => (runtime, track.index + 1),
        }
    }

    fn item(&mut self, item: &Item) -> Done {
        match item.kind {
            Kind::Woke => self.woke(item, "wake-up"),
            Kind::Spawned => self.woke(item, "spawn"),
            Kind::Fired => self.point(item, item.start, "a deadline has passed"),
            Kind::Arrived => self.point(item, item.start, "an event has come"),
            Kind::Stole => self.point(item, item.start, "steal"),
            Kind::Idle => self.slice(item, "asleep", "idle", format_args!("")),
            Kind::Waited => self.slice(item, "waits", "wait", format_args!("")),
            Kind::Off => self.off(item),
            kind => self.run(item, kind.stopped().unwrap_or("")),
        }
    }

    /// Writes an event. `more`: the fields that not every event has, each behind a comma.
    fn event(&mut self, phase: &str, track: u32, at: u64, more: Arguments<'_>) -> Done {
        let (pid, tid) = self.place(track);
        let (micros, nanos) = (at / 1000, at % 1000);
        write!(
            self.out,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{micros}.{nanos:03}{more}}}"
        )
    }

    /// `more`: fields of the event's arguments, each behind a comma.
    fn slice(&mut self, item: &Item, name: &str, category: &str, more: Arguments<'_>) -> Done {
        let (long, name, thread) = (item.end - item.start, Quoted(name), item.thread);
        let (micros, nanos) = (long / 1000, long % 1000);
        let args = format_args!(r#""args":{{"thread":{thread}{more}}}"#);
        let name = format_args!(r#""cat":"{category}","name":{name}"#);
        let more = format_args!(r#","dur":{micros}.{nanos:03},{name},{args}"#);
        self.event("X", item.track, item.start, more)
    }

    fn run(&mut self, item: &Item, stopped: &str) -> Done {
        let label = self.timeline.label(item.thread);
        let more = match item.kind {
            Kind::Parked | Kind::ParkedUntil if item.other != 0 => {
                format!(",\"for\":{}", Quoted(text_of(item.other)))
            }
            Kind::HandedOver => format!(",\"to\":{}", item.other),
            _ => String::new(),
        };
        let more = format_args!(",\"stopped\":\"{stopped}\"{more}");
        self.slice(item, &label, "run", more)?;
        let flow = core::mem::take(self.on_their_way.or_insert(item.thread.into(), 0));
        if flow != 0 {
            let more = format_args!(r#","bp":"e","id":{flow},{FLOW}"#);
            self.event("f", item.track, item.start, more)?;
        }
        match item.kind {
            Kind::HandedOver => {
                let last = item.end.saturating_sub(1).max(item.start);
                self.leads_to(item.other as u32, item.track, last, "hand-over")
            }
            Kind::Preempted => self.point(item, item.end, "preemption"),
            Kind::HandedOff => self.point(item, item.end, "hand-off"),
            _ => Ok(()),
        }
    }

    fn woke(&mut self, item: &Item, what: &str) -> Done {
        if self.timeline.tracks[item.track as usize].runtime == 0 {
            // A flow begins in a slice.
            let end = item.end + 1;
            let moment = Item { end, ..*item };
            let more = format_args!(",\"wakes\":{}", item.other);
            self.slice(&moment, what, "outside", more)?;
        }
        self.leads_to(item.other as u32, item.track, item.start, what)
    }

    /// An arrow from here to the next run of `thread`.
    fn leads_to(&mut self, thread: u32, track: u32, at: u64, how: &str) -> Done {
        self.flows += 1;
        let flow = self.flows;
        *self.on_their_way.or_insert(thread.into(), 0) = flow;
        let args = format_args!(r#""args":{{"to":{thread},"how":"{how}"}}"#);
        let more = format_args!(r#","id":{flow},{FLOW},{args}"#);
        self.event("s", track, at, more)
    }

    fn point(&mut self, item: &Item, at: u64, name: &str) -> Done {
        let (thread, label) = (item.thread, self.timeline.label(item.thread));
        let args = format_args!(r#"{{"thread":{thread},"name":{}}}"#, Quoted(&label));
        let more = format_args!(r#","s":"t","name":"{name}","args":{args}"#);
        self.event("i", item.track, at, more)
    }

    fn off(&mut self, item: &Item) -> Done {
        let label = self.timeline.label(item.thread);
        let (label, thread) = (Quoted(&label), item.thread & !KERNEL);
        for (phase, at) in [("b", item.start), ("e", item.end)] {
            let name = format_args!(r#""id":{thread},"name":{label}"#);
            let more = format_args!(r#","cat":"without a processor",{name}"#);
            self.event(phase, item.track, at, more)?;
        }
        Ok(())
    }
}

// ==== the page ====

impl Timeline {
    pub(super) fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(
            concat!(
                include_str!("page.html"),
                "<script>\n\"use strict\";\nconst DATA = "
            )
            .as_bytes(),
        )?;
        self.data(out)?;
        out.write_all(
            concat!(
                ";\n",
                include_str!("page.js"),
                "</script>\n</body>\n</html>\n"
            )
            .as_bytes(),
        )
    }

    fn data(&self, out: &mut dyn Write) -> io::Result<()> {
        let unit = self.length / u64::from(u32::MAX) + 1;
        // What threads wait for. The first text is empty.
        let mut texts = NumberMap::default();
        texts.or_insert(0, (0, ""));
        for wait in self.items.iter().filter(|item| is_wait(item)) {
            let number = texts.entries.len() as u32;
            texts.or_insert(wait.other, (number, text_of(wait.other)));
        }
        let tracks = self.tracks.iter().map(|track| {
            let told = Object::default().with("runtime", track.runtime);
            told.with("name", Quoted(self.name_of(track)))
        });
        let mut names = Object::default();
        for (number, name) in &self.names.entries {
            names = names.with(&number.to_string(), Quoted(name));
        }
        let head = Object::default()
            .with("unit", unit)
            .with("length", self.length)
            .with("lost", self.lost)
            .with("count", self.items.len())
            .with("whys", list(STOPS.iter().map(Quoted)))
            .with("tracks", list(tracks))
            .with(
                "texts",
                list(texts.entries.iter().map(|(_, (_, text))| Quoted(text))),
            )
            .with("names", names);
        write!(out, "{{...{head}")?;
        self.column(out, "start", &|item| (item.start / unit) as u32)?;
        self.column(out, "end", &|item| (item.end / unit) as u32)?;
        self.column(out, "thread", &|item| item.thread)?;
        self.column(out, "other", &|item| match is_wait(item) {
            true => texts.get(item.other).map_or(0, |text| text.0),
            false => item.other as u32,
        })?;
        self.column(out, "kind", &|item| item.track << 8 | code(item.kind))?;
        write!(out, "}}")
    }

    /// A number of each item.
    fn column(
        &self,
        out: &mut dyn Write,
        name: &str,
        number: &dyn Fn(&Item) -> u32,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for item in &self.items {
            bytes.extend_from_slice(&number(item).to_le_bytes());
        }
        write!(out, ",{name}:\"")?;
        base64(out, &bytes)?;
        write!(out, "\"")
    }
}

/// An item's kind, for the page. A run's is the reason why it ended.
fn code(kind: Kind) -> u32 {
    let groups = [(Kind::Idle, 32), (Kind::Woke, 16), (Kind::Yielded, 0)];
    let group = groups.into_iter().find(|&(first, _)| kind >= first);
    group.map_or(0, |(first, code)| code + kind as u32 - first as u32)
}

fn is_wait(item: &Item) -> bool {
    matches!(item.kind, Kind::Parked | Kind::ParkedUntil)
}

/// Writes bytes as base64.
fn base64(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for some in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=some.len()].copy_from_slice(some);
        let group = u32::from_be_bytes(group);
        let mut letters = [b'='; 4];
        for (at, letter) in letters.iter_mut().enumerate().take(some.len() + 1) {
            *letter = LETTERS[(group >> (18 - 6 * at)) as usize & 63];
        }
        out.write_all(&letters)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_others_do() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            base64(&mut out, bytes.as_bytes()).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }
}
