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
//! The text is written as it is made, an event a line, in the order of the timeline.
//!
//! *The page* is one file with all that it needs, which any browser opens without a network: `page.html`, the very same JSON
//! in pieces, and the script `page.js`, which reads that line by line. Nothing in the JSON looks like HTML (`Quoted`).

use core::fmt::Arguments;
use std::io::{self, Write};

use super::record::{KERNEL, Kind, text_of};
use super::timeline::{Item, KERNEL_THREADS, Timeline, Track};
use crate::observe::json::Quoted;
use crate::observe::numbers::{NumberMap, order};

type Done = io::Result<()>;

/// So many items of the page are in one piece: browsers know no text of a GB, and are slow with one of 100 MB.
const PIECE: usize = 1 << 15;
/// Both ends of an arrow have the same name.
const FLOW: &str = r#""cat":"wake-up","name":"wake-up""#;

impl Timeline {
    pub(super) fn write_json(&self, out: &mut dyn Write) -> Done {
        self.write_events(out, "")
    }

    /// `between`: what stands between pieces of the text, of which none begins with the end of a line: HTML would drop that.
    fn write_events(&self, out: &mut dyn Write, between: &str) -> Done {
        let mut writer = Writer {
            timeline: self,
            out,
            flows: 0,
            on_their_way: NumberMap::default(),
        };
        writer.head()?;
        for items in self.items.chunks(PIECE) {
            write!(writer.out, "{between}")?;
            items.iter().try_for_each(|item| writer.item(item))?;
        }
        writer.out.write_all(b"\n]}\n")
    }

    pub(super) fn write_html(&self, out: &mut dyn Write) -> Done {
        out.write_all(include_bytes!("page.html"))?;
        self.write_events(out, "</pre><pre class=\"trace\" hidden>")?;
        let script = concat!(
            "</pre>\n<script>\n",
            include_str!("page.js"),
            "</script>\n</body>\n</html>\n"
        );
        out.write_all(script.as_bytes())
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
        let (length, lost) = (self.timeline.clock.length, self.timeline.lost);
        let tracks = &self.timeline.tracks;
        write!(
            self.out,
            r#"{{"displayTimeUnit":"ns","otherData":{{"writer":"greenthread","nanoseconds":{length},"lost":{lost}}},"traceEvents":[
{{"ph":"M","pid":{KERNEL_THREADS},"name":"process_name","args":{{"name":"kernel threads"}}}}"#
        )?;
        let mut last = KERNEL_THREADS;
        for place in order(&mut tracks.entries.iter().map(|track| track.0)) {
            let (_, track @ (process, thread)) = tracks.entries[place];
            let name = match process {
                KERNEL_THREADS => self.timeline.label(thread),
                _ => format!("processor {}", thread - 1),
            };
            if process != KERNEL_THREADS && last != process {
                last = process;
                self.describe(track, "process_name", &format!("runtime {last}"))?;
            }
            self.describe(track, "thread_name", &name)?;
        }
        Ok(())
    }

    fn describe(&mut self, (pid, tid): Track, what: &str, name: &str) -> Done {
        let name = Quoted(name);
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}"
        )
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
            // This item has only ended the one before it.
            Kind::Resumed => Ok(()),
            kind => self.run(item, kind.stopped().unwrap_or("")),
        }
    }

    /// Writes an event. `more`: the fields that not every event has, each behind a comma.
    fn event(&mut self, phase: &str, (pid, tid): Track, at: u64, more: Arguments<'_>) -> Done {
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
                self.leads_to(item, last, "hand-over")
            }
            Kind::Preempted => self.point(item, item.end, "preemption"),
            Kind::HandedOff => self.point(item, item.end, "hand-off"),
            _ => Ok(()),
        }
    }

    fn woke(&mut self, item: &Item, what: &str) -> Done {
        if item.track.0 == KERNEL_THREADS {
            // A flow must begin in a slice, so the moment becomes a slice of a nanosecond.
            let end = item.end + 1;
            let moment = Item { end, ..*item };
            let more = format_args!(",\"wakes\":{}", item.other);
            self.slice(&moment, what, "outside", more)?;
        }
        self.leads_to(item, item.start, what)
    }

    /// An arrow from the item's thread, at this time, to the next run of the other one.
    fn leads_to(&mut self, item: &Item, at: u64, how: &str) -> Done {
        self.flows += 1;
        let (flow, thread, to) = (self.flows, item.thread, item.other);
        *self.on_their_way.or_insert(to, 0) = flow;
        let args = format_args!(r#""args":{{"thread":{thread},"to":{to},"how":"{how}"}}"#);
        let more = format_args!(r#","id":{flow},{FLOW},{args}"#);
        self.event("s", item.track, at, more)
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
