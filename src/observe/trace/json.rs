//! The trace event format, which Perfetto (<https://ui.perfetto.dev>) and Chrome read.
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

use std::collections::HashMap;
use std::io::{self, Write};

use super::text::{Micros, Quoted};
use super::timeline::{Item, Timeline, What, Why};
use super::words::{KERNEL, Kind, value};

/// The process that the kernel threads are shown in.
const KERNEL_THREADS: u32 = 1000;

impl Timeline {
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = Writer {
            timeline: self,
            out,
            flows: 0,
            on_their_way: HashMap::new(),
        };
        writer.head()?;
        self.items.iter().try_for_each(|item| writer.item(item))?;
        writer.foot()
    }

    /// The name of the thing that was waited for.
    pub(super) fn what_for(other: u64) -> String {
        match Kind::of(other) {
            Kind::Text => text_of(value(other)).to_string(),
            _ => String::new(),
        }
    }
}

/// The text behind a word of the kind `Text`.
fn text_of(value: u64) -> &'static str {
    let (address, length) = ((value & ((1 << 48) - 1)) as usize, (value >> 48) as usize);
    // SAFETY: `words::text` has made the word of a static string's address and length, or of its first
    // bytes; a character that is cut makes it no text.
    let bytes = unsafe {
        core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(address), length)
    };
    core::str::from_utf8(bytes).unwrap_or("")
}

struct Writer<'a> {
    timeline: &'a Timeline,
    out: &'a mut dyn Write,
    flows: u64,
    /// The flows to threads that have not run since.
    on_their_way: HashMap<u32, u64>,
}

impl Writer<'_> {
    fn head(&mut self) -> io::Result<()> {
        let Timeline { length, lost, .. } = *self.timeline;
        write!(
            self.out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"writer\":\"greenthread\",\"nanoseconds\":{length},\
             \"lost\":{lost}}},\"traceEvents\":[\n{{\"ph\":\"M\",\"pid\":{KERNEL_THREADS},\
             \"name\":\"process_name\",\"args\":{{\"name\":\"kernel threads\"}}}}"
        )?;
        let mut last = 0;
        for (at, track) in self.timeline.tracks.iter().enumerate() {
            let (pid, tid) = self.place(at as u32);
            if track.runtime > last {
                last = track.runtime;
                self.describe(pid, tid, "process_name", &format!("runtime {last}"))?;
            }
            self.describe(pid, tid, "thread_name", &track.name)?;
        }
        Ok(())
    }

    fn describe(&mut self, pid: u32, tid: u32, what: &str, name: &str) -> io::Result<()> {
        let name = Quoted(name);
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}"
        )
    }

    fn foot(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    /// The process and the thread of a track.
    fn place(&self, track: u32) -> (u32, u32) {
        let track = &self.timeline.tracks[track as usize];
        match track.runtime {
            0 => (KERNEL_THREADS, track.index),
            runtime => (runtime, track.index + 1),
        }
    }

    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item.what {
            What::Ran(why) => self.run(item, why),
            What::Woke | What::Spawned => self.woke(item),
            What::Fired => self.point(item, item.start, "a deadline has passed"),
            What::Arrived => self.point(item, item.start, "an event has come"),
            What::Stole => self.point(item, item.start, "steal"),
            What::Idle => self.slice(item, "asleep", "idle", ""),
            What::Waited => self.slice(item, "waits", "wait", ""),
            What::Off => self.off(item),
        }
    }

    /// The fields that every event has.
    fn begin(&mut self, phase: &str, track: u32, at: u64) -> io::Result<()> {
        let (pid, tid) = self.place(track);
        let at = Micros(at);
        write!(
            self.out,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{at}"
        )
    }

    /// `more`: fields of its arguments, each behind a comma.
    fn slice(&mut self, item: &Item, name: &str, category: &str, more: &str) -> io::Result<()> {
        self.begin("X", item.track, item.start)?;
        let (long, name, thread) = (Micros(item.end - item.start), Quoted(name), item.thread);
        write!(
            self.out,
            ",\"dur\":{long},\"cat\":\"{category}\",\"name\":{name},\"args\":{{\"thread\":{thread}{more}}}}}"
        )
    }

    fn run(&mut self, item: &Item, why: Why) -> io::Result<()> {
        let mut more = format!(",\"stopped\":\"{}\"", why.name());
        match why {
            Why::Waits | Why::WaitsUntil if item.other != 0 => {
                let what_for = Timeline::what_for(item.other);
                more += &format!(",\"for\":{}", Quoted(&what_for));
            }
            Why::HandedOver => more += &format!(",\"to\":{}", item.other),
            _ => {}
        }
        let label = self.timeline.label(item.thread);
        self.slice(item, &label, "run", &more)?;
        if let Some(flow) = self.on_their_way.remove(&item.thread) {
            self.flow("f", flow, item.track, item.start)?;
            self.out.write_all(b"}")?;
        }
        match why {
            Why::HandedOver => {
                let last = item.end.saturating_sub(1).max(item.start);
                self.leads_to(item.other as u32, item.track, last, "hand-over")
            }
            Why::Preempted => self.point(item, item.end, "preemption"),
            Why::HandedOff => self.point(item, item.end, "hand-off"),
            _ => Ok(()),
        }
    }

    fn woke(&mut self, item: &Item) -> io::Result<()> {
        let what = match item.what {
            What::Woke => "wake-up",
            _ => "spawn",
        };
        let runtime = self.timeline.tracks[item.track as usize].runtime;
        if runtime == 0 {
            // A flow begins in a slice.
            let moment = Item {
                end: item.end + 1,
                ..*item
            };
            let more = format!(",\"wakes\":{}", item.other);
            self.slice(&moment, what, "outside", &more)?;
        }
        self.leads_to(item.other as u32, item.track, item.start, what)
    }

    /// An arrow from here to the next run of `thread`.
    fn leads_to(&mut self, thread: u32, track: u32, at: u64, how: &str) -> io::Result<()> {
        self.flows += 1;
        self.on_their_way.insert(thread, self.flows);
        self.flow("s", self.flows, track, at)?;
        write!(
            self.out,
            ",\"args\":{{\"to\":{thread},\"how\":\"{how}\"}}}}"
        )
    }

    /// One end of an arrow, without its closing brace; both have the same name.
    fn flow(&mut self, phase: &str, flow: u64, track: u32, at: u64) -> io::Result<()> {
        self.begin(phase, track, at)?;
        let end = if phase == "f" { ",\"bp\":\"e\"" } else { "" };
        write!(
            self.out,
            "{end},\"id\":{flow},\"cat\":\"wake-up\",\"name\":\"wake-up\""
        )
    }

    fn point(&mut self, item: &Item, at: u64, name: &str) -> io::Result<()> {
        self.begin("i", item.track, at)?;
        let (thread, label) = (item.thread, self.timeline.label(item.thread));
        let label = Quoted(&label);
        write!(
            self.out,
            ",\"s\":\"t\",\"name\":\"{name}\",\"args\":{{\"thread\":{thread},\"name\":{label}}}}}"
        )
    }

    fn off(&mut self, item: &Item) -> io::Result<()> {
        let label = self.timeline.label(item.thread);
        for (phase, at) in [("b", item.start), ("e", item.end)] {
            self.begin(phase, item.track, at)?;
            let (label, thread) = (Quoted(&label), item.thread & !KERNEL);
            write!(
                self.out,
                ",\"cat\":\"without a processor\",\"id\":{thread},\"name\":{label}}}"
            )?;
        }
        Ok(())
    }
}
