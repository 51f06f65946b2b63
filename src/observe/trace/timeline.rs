//! The order of all events of a trace: from words (`record`) to runs, sleeps and points in time.
//!
//! *On a processor.* A run is known by its end, when its thread leaves its stack. The run began when the one before ended, or
//! when the processor found the thread. Between two words with times, events are spread evenly.
//!
//! *Outside*, kernel threads have a track each. Green threads that have lost their processors have none: the time until
//! they need none any more, or have one again, is an item of the track that they have left ([`Kind::Off`]).

use core::mem::{replace, take};

use super::record::{Event, KERNEL, Kind, NUMBER, bytes_of, value};
use crate::observe::numbers::{NumberMap, order};

/// From ticks to nanoseconds since the beginning of the trace.
#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    begin: u64,
    ticks: u64,
    /// In nanoseconds.
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
    fn at(self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.begin) << 8 >> 8;
        if since > self.ticks {
            // The time is before the beginning, by as much as the CPUs' counters differ, or it is after the end.
            let is_before = since >> 55 != 0;
            return if is_before { 0 } else { self.length };
        }
        (u128::from(since) * u128::from(self.length) / u128::from(self.ticks)) as u64
    }
}

/// What was recorded on one processor.
#[derive(Default)]
pub(super) struct Reel {
    /// By these the runtime and the processor in it are known.
    pub(super) runtime: usize,
    pub(super) index: u32,
    pub(super) words: Vec<u64>,
    /// The thread that the processor ran at the end, or 0.
    pub(super) running: u32,
}

/// One line of the picture: the numbers of its process and thread in the JSON. A runtime is a process, from 1, and its
/// processors are threads, from 1; kernel threads keep their numbers.
pub(super) type Track = (u32, u32);

/// The process of kernel threads.
pub(super) const KERNEL_THREADS: u32 = 1000;

/// Something that happened, once or for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Another thread; or what was waited for, a word of text.
    pub(super) other: u64,
    pub(super) thread: u32,
    pub(super) track: Track,
    pub(super) kind: Kind,
}

/// All that a trace has recorded.
#[derive(Default)]
pub(in crate::observe) struct Timeline {
    pub(super) clock: Clock,
    pub(super) tracks: NumberMap<Track>,
    /// Sorted by their beginning.
    pub(super) items: Vec<Item>,
    /// The threads' names.
    names: NumberMap<Vec<u8>>,
    /// How many words were lost, of which most are an event.
    pub(super) lost: u64,
}

/// A processor, while its words are decoded.
#[derive(Default)]
struct Processor {
    track: Track,
    /// When the run began that has not ended yet.
    since: Option<u64>,
    asleep_since: Option<u64>,
    /// The last time, if nothing was lost since, and the events after that.
    last: Option<u64>,
    events: Vec<(Kind, u32, u64)>,
}

impl Timeline {
    pub(super) fn of(reels: Vec<Reel>, outside: &[Event], lost: u64, clock: Clock) -> Timeline {
        let mut timeline = Timeline::default();
        (timeline.clock, timeline.lost) = (clock, lost);
        let mut runtimes = NumberMap::default();
        for reel in reels.iter().filter(|reel| !reel.words.is_empty()) {
            let runtime = runtimes.place(reel.runtime as u64, |()| true, || ());
            let track = timeline.track(runtime as u32 + 1, reel.index + 1);
            timeline.processor(track, reel);
        }
        timeline.outside(outside);
        // A wake-up comes before the run that it leads to, and a thread is back before it leaves again.
        let is_late = |kind: Kind| kind == Kind::Off || kind.stopped().is_some();
        let key = |item: &Item| item.start << 1 | u64::from(is_late(item.kind));
        let order = order(&mut timeline.items.iter().map(key));
        let items = order.iter().map(|&place| timeline.items[place]);
        timeline.items = items.collect();
        timeline.end_stays();
        timeline
    }

    /// Ends the stays of threads without a processor: where they begin and where they end was found in different places.
    fn end_stays(&mut self) {
        let mut open: NumberMap<Option<usize>> = NumberMap::default();
        for place in 0..self.items.len() {
            let item = self.items[place];
            let next = match item.kind {
                Kind::Off => Some(place),
                Kind::Resumed => None,
                _ => continue,
            };
            let open = open.or_insert(item.thread.into(), None);
            if let Some(before) = replace(open, next) {
                self.items[before].end = item.start;
            }
        }
    }

    /// A thread, for people.
    pub(super) fn label(&self, thread: u32) -> String {
        // The end of a long name is cut, perhaps within a character.
        let name = self.names.get(thread.into());
        let name = name.and_then(|name| name.utf8_chunks().next());
        match name.map_or("", |name| name.valid()) {
            "" if thread == 0 => "a thread".into(),
            "" if thread == KERNEL => "the runtime".into(),
            "" if thread & KERNEL == 0 => format!("thread {thread}"),
            "" => format!("kernel thread {}", thread & !KERNEL),
            name => name.into(),
        }
    }

    /// A track, which is there from now on.
    fn track(&mut self, process: u32, thread: u32) -> Track {
        let key = u64::from(process) << 32 | u64::from(thread);
        *self.tracks.or_insert(key, (process, thread))
    }

    /// The bytes of a thread's name.
    fn name(&mut self, number: u32) -> &mut Vec<u8> {
        self.names.or_insert(number.into(), Vec::new())
    }

    fn push(&mut self, start: u64, end: u64, thread: u32, track: Track, kind: Kind, other: u64) {
        self.items.push(Item {
            start,
            end: end.max(start),
            other,
            thread,
            track,
            kind,
        });
    }

    /// Decodes what was recorded on a processor.
    fn processor(&mut self, track: Track, reel: &Reel) {
        let mut processor = Processor {
            track,
            ..Processor::default()
        };
        // The word that belongs to the next event, and the thread whose name follows.
        let (mut more, mut named) = (0, 0);
        for &word in &reel.words {
            let number = value(word) as u32 & NUMBER;
            match Kind::of(word) {
                Kind::Nothing => {}
                Kind::Lost => {
                    self.spread(&mut processor, None);
                    (processor.since, processor.asleep_since) = (None, None);
                }
                Kind::Time => {
                    let now = self.clock.at(value(word));
                    self.spread(&mut processor, Some(now));
                }
                Kind::Named => {
                    self.name(number).clear();
                    named = number;
                }
                Kind::Name => self.name(named).extend(bytes_of(word)),
                Kind::By | Kind::To | Kind::Text => more = word,
                kind => processor.events.push((kind, number, take(&mut more))),
            }
        }
        self.spread(&mut processor, None);
        let end = self.clock.length;
        if let Some(start) = processor.asleep_since {
            self.push(start, end, 0, track, Kind::Idle, 0);
        } else if let (Some(start), true) = (processor.since, reel.running != 0) {
            self.push(start, end, reel.running, track, Kind::RunsOn, 0);
        }
    }

    /// Spreads events evenly between the time before them and the one behind. They are left out if the first is not known.
    fn spread(&mut self, on: &mut Processor, to: Option<u64>) {
        let (from, mut events) = (replace(&mut on.last, to), take(&mut on.events));
        let count = events.len() as u64;
        for (place, (kind, thread, more)) in (0..).zip(events.drain(..)) {
            if let Some(from) = from {
                let length = to.map_or(0, |to| to.saturating_sub(from));
                self.event(on, kind, thread, more, from + length * place / count);
            }
        }
        // The next events need no memory of their own.
        on.events = events;
    }

    fn event(&mut self, on: &mut Processor, kind: Kind, thread: u32, more: u64, now: u64) {
        match kind {
            Kind::Woke | Kind::Spawned => {
                let by = value(more) as u32;
                self.push(now, now, by, on.track, kind, thread.into());
            }
            Kind::Fired | Kind::Arrived | Kind::Stole => {
                // The run loop does these between two runs, so the next run begins after them.
                on.since = on.since.map(|_| now);
                self.push(now, now, thread, on.track, kind, 0);
            }
            Kind::Idle => {
                on.asleep_since.get_or_insert(now);
                on.since = None;
            }
            _ if kind.stopped().is_some() => {
                let other = match kind {
                    Kind::HandedOver => value(more),
                    _ => more,
                };
                if let Some(start) = on.since {
                    self.push(start, now, thread, on.track, kind, other);
                }
                on.since = (kind != Kind::HandedOff).then_some(now);
                if kind == Kind::HandedOff {
                    let end = self.clock.length;
                    self.push(now, end, thread, on.track, Kind::Off, 0);
                }
            }
            // Any other event says that the processor goes to work.
            _ => {
                if let Some(start) = on.asleep_since.take() {
                    self.push(start, now, 0, on.track, Kind::Idle, 0);
                }
                on.since = (kind != Kind::Given).then_some(now);
                if kind == Kind::Resumed {
                    self.push(now, now, thread, on.track, kind, 0);
                }
            }
        }
    }

    /// Decodes the events that have happened on no processor.
    fn outside(&mut self, events: &[Event]) {
        // The place of the item in which each kernel thread is now: `RunsOn` or `Waited`.
        let mut doing: NumberMap<Option<usize>> = NumberMap::default();
        for &[first, ticks, more] in events {
            let kind = Kind::of(first);
            let (number, now) = (value(first) as u32, self.clock.at(ticks));
            let (stopped, next) = match kind {
                Kind::KernelRuns => (Kind::RunsOn, Some(Kind::RunsOn)),
                Kind::KernelWaits => (Kind::Parked, Some(Kind::Waited)),
                Kind::KernelEnded => (Kind::Ended, None),
                _ => {
                    self.event_outside(kind, number, more, now);
                    continue;
                }
            };
            let place = next.map(|kind| {
                let (track, end) = (self.track(KERNEL_THREADS, number), self.clock.length);
                self.push(now, end, number, track, kind, 0);
                self.items.len() - 1
            });
            if let Some(before) = replace(doing.or_insert(number.into(), None), place) {
                let before = &mut self.items[before];
                before.end = now.max(before.start);
                if before.kind == Kind::RunsOn {
                    before.kind = stopped;
                }
            }
        }
    }

    fn event_outside(&mut self, kind: Kind, number: u32, more: u64, now: u64) {
        match kind {
            Kind::Named => self.name(number).clear(),
            Kind::Name => self.name(number).extend(bytes_of(more)),
            Kind::Woke | Kind::Spawned => {
                let by = match value(more) as u32 {
                    0 => KERNEL,
                    by => by,
                };
                // A green thread that wakes from outside has no track of its own.
                let key = u64::from(KERNEL_THREADS) << 32 | u64::from(by);
                let has_track = by & KERNEL != 0 || self.tracks.get(key).is_some();
                let track = self.track(KERNEL_THREADS, if has_track { by } else { KERNEL });
                self.push(now, now, by, track, kind, number.into());
            }
            Kind::Arrived => {
                let track = self.track(KERNEL_THREADS, KERNEL);
                self.push(now, now, number, track, kind, 0);
            }
            // A thread that had lost its processor has stopped, and needs none any more.
            _ => self.push(now, now, number, (0, 0), Kind::Resumed, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::trace::record::word;

    const LENGTH: u64 = 1_000_000;

    fn decode(words: &[u64]) -> Vec<Item> {
        let clock = Clock::new((0, 0), (LENGTH, LENGTH));
        let reel = Reel {
            words: words.into(),
            ..Reel::default()
        };
        Timeline::of(vec![reel], &[], 0, clock).items
    }

    fn of_thread(kind: Kind, number: u32) -> u64 {
        word(kind, number.into())
    }

    fn runs(items: &[Item]) -> Vec<(u64, u64, u32)> {
        let runs = items.iter().filter(|item| item.kind.stopped().is_some());
        runs.map(|item| (item.start, item.end, item.thread))
            .collect()
    }

    #[test]
    fn events_without_a_time_are_spread() {
        let words = [
            word(Kind::Time, 100),
            word(Kind::Found, 0),
            of_thread(Kind::Yielded, 1),
            of_thread(Kind::Yielded, 2),
            word(Kind::Time, 400),
            of_thread(Kind::Parked, 1),
        ];
        assert_eq!(
            runs(&decode(&words)),
            [(100, 200, 1), (200, 300, 2), (300, 400, 1)]
        );
    }

    #[test]
    fn nothing_is_said_of_what_was_lost() {
        let words = [
            of_thread(Kind::Yielded, 9),
            word(Kind::Time, 100),
            word(Kind::Found, 0),
            word(Kind::Time, 200),
            of_thread(Kind::Parked, 1),
            word(Kind::Lost, 7),
            of_thread(Kind::Yielded, 2),
            word(Kind::Time, 500),
            of_thread(Kind::Yielded, 3),
            word(Kind::Time, 600),
            of_thread(Kind::Ended, 4),
        ];
        assert_eq!(runs(&decode(&words)), [(100, 200, 1), (500, 600, 4)]);
    }

    /// Any words make a picture: words that a signal handler has disturbed, too.
    #[test]
    fn any_words_will_do() {
        let seed = 0x5EED;
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let mut now = 0;
            let words: Vec<u64> = (0..500)
                .map(|_| match random.u8(..) {
                    ..64 => {
                        now += random.u64(..2_000);
                        word(Kind::Time, now)
                    }
                    64..80 => random.u64(..),
                    _ => of_thread(Kind::of(random.u64(..32)), random.u32(..20)),
                })
                .collect();
            let runs = runs(&decode(&words));
            for run in runs {
                assert!(run.0 <= run.1 && run.1 <= LENGTH, "seed {seed}: {run:?}");
            }
        }
    }
}
