//! The events of threads that own no processor: kernel threads', each with a track of its own, and those
//! of green threads that have lost their processors.

use std::collections::HashMap;

use super::common::Event;
use super::timeline::{Clock, Item, Stays, Timeline, Track, What, Why};
use super::words::{KERNEL, Kind, NUMBER, SESSION_SHIFT, bytes_of, value};

pub(super) struct Outside<'a> {
    session: u32,
    clock: Clock,
    timeline: &'a mut Timeline,
    /// The track of each kernel thread, since when it has run, and since when it has waited.
    states: HashMap<u32, State>,
}

#[derive(Clone, Copy)]
struct State {
    track: u32,
    runs_since: Option<u64>,
    waits_since: Option<u64>,
}

impl<'a> Outside<'a> {
    pub(super) fn new(session: u32, clock: Clock, timeline: &'a mut Timeline) -> Outside<'a> {
        Outside {
            session,
            clock,
            timeline,
            states: HashMap::new(),
        }
    }

    pub(super) fn run(
        mut self,
        events: &[Event],
        names: &mut HashMap<u32, Vec<u8>>,
        stays: &mut Stays,
    ) {
        for &[first, ticks, a, _] in events {
            let Some(number) = self.number(value(first) as u32) else {
                continue;
            };
            let now = self.clock.at(ticks);
            match Kind::of(first) {
                Kind::Named => names.entry(number).or_default().clear(),
                Kind::Name => names.entry(number).or_default().extend(bytes_of(a)),
                kind @ (Kind::Woke | Kind::Spawned) => {
                    let by = self.number(a as u32).unwrap_or(KERNEL);
                    let what = match kind {
                        Kind::Woke => What::Woke,
                        _ => What::Spawned,
                    };
                    let at = self.track_of(by);
                    self.push(now, now, by, at, what, number.into());
                }
                Kind::Arrived => {
                    let at = self.track_of(KERNEL);
                    self.push(now, now, number, at, What::Arrived, 0);
                }
                Kind::KernelBegan => self.state(number).runs_since = Some(now),
                Kind::KernelWaits => self.waits(number, now),
                Kind::KernelGoesOn => self.goes_on(number, now),
                Kind::KernelEnded => self.stops(number, now, Why::Ended),
                _ => stays.end(now, number),
            }
        }
        self.end();
    }

    fn number(&self, number: u32) -> Option<u32> {
        (number >> SESSION_SHIFT == self.session).then_some(number & NUMBER)
    }

    fn state(&mut self, number: u32) -> &mut State {
        let timeline = &mut *self.timeline;
        self.states.entry(number).or_insert_with(|| State {
            track: timeline.add(Track {
                runtime: 0,
                index: number,
                name: String::new(),
            }),
            runs_since: None,
            waits_since: None,
        })
    }

    /// A green thread that wakes from outside has no track of its own.
    fn track_of(&mut self, number: u32) -> u32 {
        let is_known = number & KERNEL != 0 || self.states.contains_key(&number);
        self.state(if is_known { number } else { KERNEL }).track
    }

    fn push(&mut self, start: u64, end: u64, thread: u32, track: u32, what: What, other: u64) {
        self.timeline.items.push(Item {
            start,
            end: end.max(start),
            other,
            thread,
            track,
            what,
        });
    }

    fn stops(&mut self, number: u32, now: u64, why: Why) {
        let state = *self.state(number);
        if let Some(start) = state.runs_since {
            self.push(start, now, number, state.track, What::Ran(why), 0);
        }
        self.state(number).runs_since = None;
    }

    fn waits(&mut self, number: u32, now: u64) {
        self.stops(number, now, Why::Waits);
        self.state(number).waits_since = Some(now);
    }

    fn goes_on(&mut self, number: u32, now: u64) {
        let state = *self.state(number);
        if let Some(start) = state.waits_since {
            self.push(start, now, number, state.track, What::Waited, 0);
        }
        let state = self.state(number);
        (state.waits_since, state.runs_since) = (None, Some(now));
    }

    fn end(&mut self) {
        let length = self.clock.length;
        for (number, state) in self.states.clone() {
            if let Some(start) = state.runs_since {
                let what = What::Ran(Why::RunsOn);
                self.push(start, length, number, state.track, what, 0);
            }
            if let Some(start) = state.waits_since {
                self.push(start, length, number, state.track, What::Waited, 0);
            }
        }
    }
}
