//! The order of all events of a trace.

use std::collections::{BTreeMap, HashMap};

use super::collect::Collector;
use super::decode::Decoder;
use super::outside::Outside;
use super::words::{KERNEL, NUMBER};

/// From ticks to nanoseconds since the beginning of the trace.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    begin: u64,
    ticks: u64,
    pub(super) length: u64,
}

impl Clock {
    /// `begin` and `end`: ticks, and nanoseconds of the monotonic clock at that time.
    pub(super) fn new(begin: (u64, u64), end: (u64, u64)) -> Clock {
        Clock {
            begin: begin.0,
            ticks: (end.0.wrapping_sub(begin.0)).max(1),
            length: end.1.saturating_sub(begin.1),
        }
    }

    /// Ticks of which the upper eight bits may be missing.
    pub(super) fn at(self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.begin) << 8 >> 8;
        if since > self.ticks {
            // Before the beginning, by as much as the CPUs' counters differ; or behind the end.
            let is_before = since >> 55 != 0;
            return if is_before { 0 } else { self.length };
        }
        (u128::from(since) * u128::from(self.length) / u128::from(self.ticks)) as u64
    }
}

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Why {
    Yielded,
    Preempted,
    Waits,
    WaitsUntil,
    HandedOver,
    Ended,
    HandedOff,
    /// It did not: the trace was over.
    RunsOn,
}

impl Why {
    pub(super) const NAMES: [&'static str; 8] = [
        "yields",
        "was preempted",
        "waits",
        "waits, with a deadline",
        "hands over",
        "ends",
        "lost its processor",
        "goes on",
    ];

    pub(super) fn name(self) -> &'static str {
        Why::NAMES[self as usize]
    }
}

/// What an item of the timeline is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// `thread` has ended the wait of `other`, or made it.
    Woke,
    Spawned,
    /// Its deadline, or an event, has ended the wait of `thread`.
    Fired,
    Arrived,
    /// The processor has stolen `thread`.
    Stole,
    /// `thread` ran.
    Ran(Why),
    /// The kernel thread waited.
    Waited,
    /// The processor slept.
    Idle,
    /// `thread` had no processor: it was blocked in the kernel, or ran without.
    Off,
}

/// Something that happened, once or for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Another thread; or what was waited for, a word of text.
    pub(super) other: u64,
    pub(super) thread: u32,
    pub(super) track: u32,
    pub(super) what: What,
}

/// One line of the picture.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Its runtime, from 1; 0 for kernel threads.
    pub(super) runtime: u32,
    /// The processor's index, or the kernel thread's number.
    pub(super) index: u32,
    pub(super) name: String,
}

/// All that a trace has recorded.
pub(super) struct Timeline {
    pub(super) tracks: Vec<Track>,
    /// Sorted by their beginning.
    pub(super) items: Vec<Item>,
    /// The threads' names, those without one included.
    pub(super) names: BTreeMap<u32, String>,
    /// In nanoseconds.
    pub(super) length: u64,
    /// How many words were lost, of which most are an event.
    pub(super) lost: u64,
}

impl Timeline {
    pub(super) fn of(collected: &Collector, clock: Clock) -> Timeline {
        let mut timeline = Timeline {
            tracks: Vec::new(),
            items: Vec::new(),
            names: BTreeMap::new(),
            length: clock.length,
            lost: collected.lost,
        };
        let mut names: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut stays = Stays::default();
        let mut runtimes = Vec::new();
        let mut reels: Vec<_> = collected.reels.iter().collect();
        reels.retain(|reel| !reel.words.is_empty());
        reels.sort_by_key(|reel| (reel.ring.runtime(), reel.ring.index()));
        for reel in reels {
            let runtime = reel.ring.runtime();
            if !runtimes.contains(&runtime) {
                runtimes.push(runtime);
            }
            let runtime = runtimes.len() as u32;
            let index = reel.ring.index() as u32;
            let name = format!("processor {index}");
            let track = timeline.add(Track {
                runtime,
                index,
                name,
            });
            let decoder = Decoder::new(collected.number, clock, track, &mut timeline.items);
            decoder.run(&reel.words, reel.running, &mut names, &mut stays);
        }
        let outside = Outside::new(collected.number, clock, &mut timeline);
        outside.run(&collected.outside, &mut names, &mut stays);
        let text =
            |(number, name): (u32, Vec<u8>)| (number, String::from_utf8_lossy(&name).into_owned());
        timeline.names = names.into_iter().map(text).collect();
        timeline.name_kernel_tracks();
        stays.pair(&mut timeline);
        // A wake-up comes before the run that it leads to.
        let lasts = |item: &Item| matches!(item.what, What::Ran(_));
        timeline.items.sort_by_key(|item| (item.start, lasts(item)));
        timeline
    }

    pub(super) fn add(&mut self, track: Track) -> u32 {
        self.tracks.push(track);
        self.tracks.len() as u32 - 1
    }

    fn name_kernel_tracks(&mut self) {
        for track in self.tracks.iter_mut().filter(|track| track.runtime == 0) {
            track.name = match self.names.get(&track.index) {
                Some(name) if !name.is_empty() => name.clone(),
                _ if track.index == KERNEL => "the runtime".into(),
                _ => format!("thread {}", track.index & !KERNEL),
            };
        }
    }

    /// A thread, for people.
    pub(super) fn label(&self, thread: u32) -> String {
        let number = thread & (NUMBER & !KERNEL);
        let kind = if thread & KERNEL == 0 {
            "thread"
        } else {
            "kernel thread"
        };
        match self.names.get(&thread) {
            Some(name) if !name.is_empty() => name.clone(),
            _ if thread == 0 => "a thread".into(),
            _ => format!("{kind} {number}"),
        }
    }
}

/// When threads lose their processors, and when they need none any more or have one again. The two are
/// found in different places.
#[derive(Default)]
pub(super) struct Stays(Vec<(u64, bool, u32, u32)>);

impl Stays {
    pub(super) fn begin(&mut self, at: u64, thread: u32, track: u32) {
        self.0.push((at, true, thread, track));
    }

    pub(super) fn end(&mut self, at: u64, thread: u32) {
        self.0.push((at, false, thread, 0));
    }

    fn pair(mut self, timeline: &mut Timeline) {
        self.0.sort_unstable();
        let mut open: HashMap<u32, (u64, u32)> = HashMap::new();
        let (length, items) = (timeline.length, &mut timeline.items);
        let mut add = |thread, (start, track): (u64, u32), end| {
            items.push(Item {
                start,
                end,
                other: 0,
                thread,
                track,
                what: What::Off,
            });
        };
        for (at, begins, thread, track) in self.0 {
            if begins {
                open.insert(thread, (at, track));
            } else if let Some(stay) = open.remove(&thread) {
                add(thread, stay, at);
            }
        }
        for (thread, stay) in open {
            add(thread, stay, length);
        }
    }
}
