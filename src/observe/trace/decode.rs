//! From the words of a processor's ring to runs, sleeps and points in time.
//!
//! A run is known by its end, when its thread leaves its stack. It began when the run before it ended, or
//! when the processor found the thread. Between two words with times, events are spread evenly.

use std::collections::HashMap;

use super::timeline::{Clock, Item, Stays, What, Why};
use super::words::{Kind, NUMBER, SESSION_SHIFT, bytes_of, value};

pub(super) struct Decoder<'a> {
    session: u32,
    clock: Clock,
    track: u32,
    items: &'a mut Vec<Item>,
    /// When the run began that has not ended yet.
    since: Option<u64>,
    asleep_since: Option<u64>,
    /// The last word of each kind that belongs to the next event.
    by: u32,
    to: u32,
    what_for: u64,
    spread: Spread,
}

/// Events between two times.
#[derive(Clone, Copy, Default)]
struct Spread {
    from: u64,
    to: u64,
    count: u64,
    next: u64,
}

impl Spread {
    fn next(&mut self) -> u64 {
        let at = self.from + (self.to - self.from) * self.next / self.count.max(1);
        self.next += 1;
        at
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        session: u32,
        clock: Clock,
        track: u32,
        items: &'a mut Vec<Item>,
    ) -> Decoder<'a> {
        Decoder {
            session,
            clock,
            track,
            items,
            since: None,
            asleep_since: None,
            by: 0,
            to: 0,
            what_for: 0,
            spread: Spread::default(),
        }
    }

    /// Decodes `words`. `running`: the thread that runs there now, or 0.
    pub(super) fn run(
        mut self,
        words: &[u64],
        running: u32,
        names: &mut HashMap<u32, Vec<u8>>,
        stays: &mut Stays,
    ) {
        let (mut has_time, mut named) = (false, 0);
        for (at, &word) in words.iter().enumerate() {
            let number = self.number(value(word) as u32);
            match Kind::of(word) {
                Kind::Nothing => {}
                Kind::Lost => {
                    (self.since, self.asleep_since, has_time) = (None, None, false);
                }
                Kind::Time => {
                    self.spread = self.spread(value(word), &words[at + 1..]);
                    has_time = true;
                }
                Kind::Named => {
                    names.entry(number).or_default().clear();
                    named = number;
                }
                Kind::Name => names.entry(named).or_default().extend(bytes_of(word)),
                Kind::By => self.by = number,
                Kind::To => self.to = number,
                Kind::Text => self.what_for = word,
                kind if has_time => {
                    let now = self.spread.next();
                    self.event(kind, number, now, stays);
                }
                _ => {}
            }
        }
        let end = self.clock.length;
        if let Some(start) = self.asleep_since {
            self.push(start, end, 0, What::Idle, 0);
        } else if let (Some(start), true) = (self.since, running != 0) {
            let running = self.number(running);
            self.push(start, end, running, What::Ran(Why::RunsOn), 0);
        }
    }

    /// The number of a thread; 0 if it is not of this trace.
    fn number(&self, number: u32) -> u32 {
        match number >> SESSION_SHIFT == self.session {
            true => number & NUMBER,
            false => 0,
        }
    }

    /// The events that follow a time, up to the next one.
    fn spread(&self, ticks: u64, rest: &[u64]) -> Spread {
        let from = self.clock.at(ticks);
        let (mut count, mut to) = (0, from);
        for &word in rest {
            match Kind::of(word) {
                Kind::Time => {
                    to = self.clock.at(value(word)).max(from);
                    break;
                }
                Kind::Lost => break,
                kind if kind as u8 >= Kind::Yielded as u8 => count += 1,
                _ => {}
            }
        }
        Spread {
            from,
            to,
            count,
            next: 0,
        }
    }

    fn push(&mut self, start: u64, end: u64, thread: u32, what: What, other: u64) {
        self.items.push(Item {
            start,
            end: end.max(start),
            other,
            thread,
            track: self.track,
            what,
        });
    }

    fn event(&mut self, kind: Kind, number: u32, now: u64, stays: &mut Stays) {
        let point = |what| Some(what);
        let (why, what) = match kind {
            Kind::Yielded => (Some(Why::Yielded), None),
            Kind::Preempted => (Some(Why::Preempted), None),
            Kind::Parked => (Some(Why::Waits), None),
            Kind::ParkedUntil => (Some(Why::WaitsUntil), None),
            Kind::HandedOver => (Some(Why::HandedOver), None),
            Kind::Ended => (Some(Why::Ended), None),
            Kind::HandedOff => (Some(Why::HandedOff), None),
            Kind::Woke => (None, point(What::Woke)),
            Kind::Spawned => (None, point(What::Spawned)),
            Kind::Fired => (None, point(What::Fired)),
            Kind::Arrived => (None, point(What::Arrived)),
            Kind::Stole => (None, point(What::Stole)),
            _ => (None, None),
        };
        if let Some(what) = what {
            match what {
                What::Woke | What::Spawned => self.push(now, now, self.by, what, number.into()),
                _ => {
                    // The run loop does these: the next run begins later.
                    self.since = self.since.map(|_| now);
                    self.push(now, now, number, what, 0);
                }
            }
        } else if let Some(why) = why {
            self.stops(why, number, now, stays);
        } else {
            self.changes(kind, number, now, stays);
        }
    }

    /// A thread has stopped.
    fn stops(&mut self, why: Why, thread: u32, now: u64, stays: &mut Stays) {
        let other = match why {
            Why::HandedOver => self.to.into(),
            Why::Waits | Why::WaitsUntil => core::mem::take(&mut self.what_for),
            _ => 0,
        };
        if let Some(start) = self.since {
            self.push(start, now, thread, What::Ran(why), other);
        }
        self.since = (why != Why::HandedOff).then_some(now);
        if why == Why::HandedOff {
            stays.begin(now, thread, self.track);
        }
    }

    /// The processor goes to sleep, or to work.
    fn changes(&mut self, kind: Kind, thread: u32, now: u64, stays: &mut Stays) {
        if kind == Kind::Idle {
            self.asleep_since.get_or_insert(now);
            self.since = None;
            return;
        }
        if let Some(start) = self.asleep_since.take() {
            self.push(start, now, 0, What::Idle, 0);
        }
        self.since = (kind != Kind::Given).then_some(now);
        if kind == Kind::Resumed {
            stays.end(now, thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::trace::words::word;

    const SESSION: u32 = 3;
    const LENGTH: u64 = 1_000_000;

    fn decode(words: &[u64]) -> Vec<Item> {
        let clock = Clock::new((0, 0), (LENGTH, LENGTH));
        let mut items = Vec::new();
        let decoder = Decoder::new(SESSION, clock, 0, &mut items);
        decoder.run(words, 0, &mut HashMap::new(), &mut Stays::default());
        items
    }

    fn of_thread(kind: Kind, number: u32) -> u64 {
        word(kind, (SESSION << SESSION_SHIFT | number).into())
    }

    fn runs(items: &[Item]) -> Vec<(u64, u64, u32)> {
        let runs = items
            .iter()
            .filter(|item| matches!(item.what, What::Ran(_)));
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
