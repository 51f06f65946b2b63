//! The order of all events of a trace: from words (`record`) to runs, sleeps and points in time.
//!
//! *On a processor.* A run is known by its end, when its thread leaves its stack. The run began when the one before ended, or
//! when the processor found the thread. Between two words with times, events are spread evenly.
//!
//! *Outside*, kernel threads have a track each. Green threads that have lost their processors have none: the time until
//! they need none any more, or have one again, is an item of the track that they have left ([`Kind::Off`]).

use core::mem::take;

use super::record::{Event, KERNEL, Kind, NUMBER, bytes_of, value};
use crate::observe::numbers::{NumberMap, order};

/// From ticks to nanoseconds since the beginning of the trace.
#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    begin: u64,
    ticks: u64,
    length: u64,
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
            // Before the beginning, by as much as the CPUs' counters differ; or behind the end.
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

/// Something that happened, once or for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Another thread; or what was waited for, a word of text.
    pub(super) other: u64,
    pub(super) thread: u32,
    pub(super) track: u32,
    pub(super) kind: Kind,
}

/// One line of the picture.
pub(super) struct Track {
    /// Its runtime, from 1; 0 for kernel threads.
    pub(super) runtime: u32,
    /// The processor's index, or the kernel thread's number.
    pub(super) index: u32,
}

/// All that a trace has recorded.
pub(in crate::observe) struct Timeline {
    pub(super) tracks: Vec<Track>,
    /// Sorted by their beginning.
    pub(super) items: Vec<Item>,
    /// The threads' names.
    pub(super) names: NumberMap<String>,
    /// In nanoseconds.
    pub(super) length: u64,
    /// How many words were lost, of which most are an event.
    pub(super) lost: u64,
}

impl Timeline {
    pub(super) fn of(mut reels: Vec<Reel>, outside: &[Event], lost: u64, clock: Clock) -> Timeline {
        let mut decoder = Decoder {
            clock,
            ..Decoder::default()
        };
        reels.retain(|reel| !reel.words.is_empty());
        let by_index = order(&mut reels.iter().map(|reel| reel.index.into()));
        let by_index: Vec<&Reel> = by_index.iter().map(|&place| &reels[place]).collect();
        let (mut runtime, mut last) = (0, None);
        for place in order(&mut by_index.iter().map(|reel| reel.runtime as u64)) {
            let reel = by_index[place];
            runtime += u32::from(last.replace(reel.runtime) != Some(reel.runtime));
            let track = decoder.add_track(runtime, reel.index);
            decoder.processor(track, reel);
        }
        decoder.outside(outside);
        decoder.pair_stays();
        let mut names = NumberMap::default();
        for (number, name) in &decoder.names.entries {
            // The end of a long name is cut, perhaps within a character.
            let name = name.utf8_chunks().next().map_or("", |name| name.valid());
            if !name.is_empty() {
                names.or_insert(*number, name.to_string());
            }
        }
        // A wake-up comes before the run that it leads to.
        let key = |item: &Item| item.start << 1 | u64::from(item.kind.stopped().is_some());
        let order = order(&mut decoder.items.iter().map(key));
        Timeline {
            items: order.iter().map(|&place| decoder.items[place]).collect(),
            tracks: decoder.tracks,
            names,
            length: clock.length,
            lost,
        }
    }

    /// A track, for people.
    pub(super) fn name_of(&self, track: &Track) -> String {
        match track.runtime {
            0 => self.label(track.index),
            _ => format!("processor {}", track.index),
        }
    }

    /// A thread, for people.
    pub(super) fn label(&self, thread: u32) -> String {
        match self.names.get(thread.into()) {
            Some(name) => name.clone(),
            _ if thread == 0 => "a thread".into(),
            _ if thread == KERNEL => "the runtime".into(),
            _ if thread & KERNEL == 0 => format!("thread {thread}"),
            _ => format!("kernel thread {}", thread & !KERNEL),
        }
    }
}

/// Makes a timeline.
#[derive(Default)]
struct Decoder {
    clock: Clock,
    tracks: Vec<Track>,
    items: Vec<Item>,
    names: NumberMap<Vec<u8>>,
    /// The tracks of kernel threads.
    kernel_tracks: NumberMap<u32>,
    /// When threads lose their processors (true), and when they need none any more or have one again: the time, the
    /// thread, and the track that it has left. The two are found in different places.
    stays: Vec<(u64, bool, u32, u32)>,
}

/// A processor, while its words are decoded.
#[derive(Default)]
struct Processor {
    track: u32,
    /// When the run began that has not ended yet.
    since: Option<u64>,
    asleep_since: Option<u64>,
}

impl Decoder {
    fn add_track(&mut self, runtime: u32, index: u32) -> u32 {
        self.tracks.push(Track { runtime, index });
        self.tracks.len() as u32 - 1
    }

    /// The bytes of a thread's name.
    fn name(&mut self, number: u32) -> &mut Vec<u8> {
        self.names.or_insert(number.into(), Vec::new())
    }

    fn push(&mut self, start: u64, end: u64, thread: u32, track: u32, kind: Kind, other: u64) {
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
    fn processor(&mut self, track: u32, reel: &Reel) {
        let mut processor = Processor {
            track,
            ..Processor::default()
        };
        // The last time, if nothing was lost since; the events after that; the word that belongs to the next one; and the
        // thread whose name follows.
        let (mut last, mut events, mut more, mut named) = (None, Vec::new(), 0, 0);
        for &word in &reel.words {
            let number = value(word) as u32 & NUMBER;
            match Kind::of(word) {
                Kind::Nothing => {}
                Kind::Lost => {
                    self.spread(&mut processor, last.take(), None, &mut events);
                    (processor.since, processor.asleep_since) = (None, None);
                }
                Kind::Time => {
                    let now = self.clock.at(value(word));
                    self.spread(&mut processor, last.replace(now), Some(now), &mut events);
                }
                Kind::Named => {
                    self.name(number).clear();
                    named = number;
                }
                Kind::Name => self.name(named).extend(bytes_of(word)),
                Kind::By | Kind::To | Kind::Text => more = word,
                kind => events.push((kind, number, take(&mut more))),
            }
        }
        self.spread(&mut processor, last, None, &mut events);
        let end = self.clock.length;
        if let Some(start) = processor.asleep_since {
            self.push(start, end, 0, track, Kind::Idle, 0);
        } else if let (Some(start), true) = (processor.since, reel.running != 0) {
            self.push(start, end, reel.running, track, Kind::RunsOn, 0);
        }
    }

    /// Spreads events evenly between the time before them and the one behind. They are left out if the first is not known.
    fn spread(
        &mut self,
        on: &mut Processor,
        from: Option<u64>,
        to: Option<u64>,
        events: &mut Vec<(Kind, u32, u64)>,
    ) {
        let count = events.len() as u64;
        for (place, (kind, thread, more)) in (0..).zip(events.drain(..)) {
            if let Some(from) = from {
                let length = to.map_or(0, |to| to.saturating_sub(from));
                self.event(on, kind, thread, more, from + length * place / count);
            }
        }
    }

    fn event(&mut self, on: &mut Processor, kind: Kind, thread: u32, more: u64, now: u64) {
        match kind {
            Kind::Woke | Kind::Spawned => {
                let by = value(more) as u32;
                self.push(now, now, by, on.track, kind, thread.into());
            }
            Kind::Fired | Kind::Arrived | Kind::Stole => {
                // The run loop does these: the next run begins later.
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
                    self.stays.push((now, true, thread, on.track));
                }
            }
            // The processor goes to work.
            _ => {
                if let Some(start) = on.asleep_since.take() {
                    self.push(start, now, 0, on.track, Kind::Idle, 0);
                }
                on.since = (kind != Kind::Given).then_some(now);
                if kind == Kind::Resumed {
                    self.stays.push((now, false, thread, 0));
                }
            }
        }
    }

    /// Decodes the events that have happened on no processor.
    fn outside(&mut self, events: &[Event]) {
        // What each kernel thread does, `RunsOn` or `Waited`, and since when.
        let mut doing: NumberMap<Option<(Kind, u64)>> = NumberMap::default();
        for &[first, ticks, more] in events {
            let kind = Kind::of(first);
            let (number, now) = (value(first) as u32, self.clock.at(ticks));
            let (stopped, next) = match kind {
                Kind::KernelBegan | Kind::KernelGoesOn => (Kind::RunsOn, Some(Kind::RunsOn)),
                Kind::KernelWaits => (Kind::Parked, Some(Kind::Waited)),
                Kind::KernelEnded => (Kind::Ended, None),
                _ => {
                    self.event_outside(kind, number, more, now);
                    continue;
                }
            };
            let track = self.track_of(number);
            let now_doing = next.map(|next| (next, now));
            let before = doing.or_insert(number.into(), None);
            if let Some((before, since)) = core::mem::replace(before, now_doing) {
                let is_wait = before == Kind::Waited;
                let was = if is_wait { before } else { stopped };
                self.push(since, now, number, track, was, 0);
            }
        }
        for (number, doing) in doing.entries {
            if let Some((kind, since)) = doing {
                let track = self.track_of(number as u32);
                let end = self.clock.length;
                self.push(since, end, number as u32, track, kind, 0);
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
                let has_track = by & KERNEL != 0 || self.kernel_tracks.get(by.into()).is_some();
                let track = self.track_of(if has_track { by } else { KERNEL });
                self.push(now, now, by, track, kind, number.into());
            }
            Kind::Arrived => {
                let track = self.track_of(KERNEL);
                self.push(now, now, number, track, kind, 0);
            }
            _ => self.stays.push((now, false, number, 0)),
        }
    }

    /// The track of a kernel thread.
    fn track_of(&mut self, number: u32) -> u32 {
        if let Some(&track) = self.kernel_tracks.get(number.into()) {
            return track;
        }
        let track = self.add_track(0, number);
        *self.kernel_tracks.or_insert(number.into(), track)
    }

    fn pair_stays(&mut self) {
        let stays = take(&mut self.stays);
        let mut open: NumberMap<Option<(u64, u32)>> = NumberMap::default();
        for place in order(&mut stays.iter().map(|stay| stay.0 << 1 | u64::from(stay.1))) {
            let (at, begins, thread, track) = stays[place];
            let open = open.or_insert(thread.into(), None);
            if begins {
                *open = Some((at, track));
            } else if let Some((start, track)) = open.take() {
                self.push(start, at, thread, track, Kind::Off, 0);
            }
        }
        for (thread, open) in open.entries {
            if let Some((start, track)) = open {
                self.push(start, self.clock.length, thread as u32, track, Kind::Off, 0);
            }
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
