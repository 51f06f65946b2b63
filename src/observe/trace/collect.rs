//! The collector: a kernel thread that copies what is new in the rings, every millisecond or so, into
//! memory, until the trace is over. What is copied beyond [`MOST_WORDS`] is counted and not kept, so a trace shows
//! the beginning of a long run.

use std::time::Duration;

use super::common;
use super::ring::{Ring, rings};
use super::timeline::{Clock, Timeline};
use super::words::{Kind, word};
use crate::arch::ticks;
use crate::observe::observer::{self, TRACE};
use crate::sys::clock;
#[cfg(green)]
use crate::sys::signal;

/// The words of a trace that are kept: 64 MiB.
const MOST_WORDS: usize = 8 << 20;
/// How soon it looks again: if there was something, and if there was not.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(4);

/// What was copied from one ring.
pub(super) struct Reel {
    pub(super) ring: &'static Ring,
    /// Where the next copy begins.
    next: u64,
    pub(super) words: Vec<u64>,
    /// The thread that the processor ran at the end, or 0.
    pub(super) running: u32,
    /// There was no room for some of its words.
    is_cut: bool,
}

pub(super) struct Collector {
    pub(super) number: u32,
    pub(super) reels: Vec<Reel>,
    pub(super) outside: Vec<common::Event>,
    /// Words and events that are not in the above.
    pub(super) lost: u64,
    kept: usize,
    begin: (u64, u64),
}

impl Collector {
    /// Forgets what the rings still have of earlier traces.
    pub(super) fn begin(number: u32) -> Collector {
        #[cfg(green)]
        signal::set_mask(!0);
        while common::take().is_some() {}
        common::take_lost();
        let reels = rings().map(|ring| Reel::new(ring, ring.head())).collect();
        Collector {
            number,
            reels,
            outside: Vec::new(),
            lost: 0,
            kept: 0,
            begin: (ticks(), clock::now()),
        }
    }

    /// Copies until `is_over` says so, which waits for a given time.
    pub(super) fn collect(mut self, is_over: impl Fn(Duration) -> bool) -> Timeline {
        let mut pause = SOON;
        while !is_over(pause) {
            pause = if self.copy() { SOON } else { LATER };
        }
        let running = |reel: &Reel| (reel.ring.head(), reel.ring.running());
        let at_end: Vec<_> = self.reels.iter().map(running).collect();
        observer::remove(TRACE);
        self.copy();
        for (reel, (head, running)) in self.reels.iter_mut().zip(at_end) {
            // Without an event since, the thread has not stopped.
            let is_known = reel.next == head && !reel.is_cut;
            reel.running = if is_known { running } else { 0 };
        }
        let clock = Clock::new(self.begin, (ticks(), clock::now()));
        let timeline = Timeline::of(&self, clock);
        self.reels.iter().for_each(|reel| reel.ring.forget());
        timeline
    }

    /// Copies what is new. True: there was something.
    fn copy(&mut self) -> bool {
        let known = |reels: &[Reel], ring| reels.iter().any(|reel| core::ptr::eq(reel.ring, ring));
        for ring in rings() {
            if !known(&self.reels, ring) {
                self.reels.push(Reel::new(ring, 0));
            }
        }
        let before = self.kept;
        for reel in &mut self.reels {
            let room = MOST_WORDS.saturating_sub(self.kept);
            let (kept, lost) = reel.copy(room);
            self.kept += kept;
            self.lost += lost;
        }
        while let Some(event) = common::take() {
            if self.kept + event.len() <= MOST_WORDS {
                self.outside.push(event);
                self.kept += event.len();
            } else {
                self.lost += 1;
            }
        }
        self.lost += common::take_lost();
        self.kept != before
    }
}

impl Reel {
    fn new(ring: &'static Ring, next: u64) -> Reel {
        ring.populate();
        Reel {
            ring,
            next,
            words: Vec::new(),
            running: 0,
            is_cut: false,
        }
    }

    /// Copies what is new, as far as there is room. Returns how many words were kept, and how many lost.
    fn copy(&mut self, room: usize) -> (usize, u64) {
        let before = self.words.len();
        let (next, mut lost) = self.ring.copy(self.next, &mut self.words);
        self.next = next;
        if lost != 0 {
            self.words.insert(before, word(Kind::Lost, lost));
        }
        let new = self.words.len() - before;
        let kept = new.min(room);
        if kept < new {
            lost += (new - kept) as u64;
            self.words.truncate(before + kept);
            // Whatever ran then is not known to have run on.
            if !self.is_cut {
                self.words.push(word(Kind::Lost, lost));
            }
            self.is_cut = true;
        }
        (kept, lost)
    }
}

#[cfg(test)]
#[cfg(green)]
mod tests {
    use super::*;
    use crate::observe::trace::ring::pen;

    /// What does not fit is counted; the first of it is marked, and nothing is kept after the mark.
    #[test]
    fn a_full_trace_is_cut_once() {
        let Some((mut pen, ring)) = pen() else { return };
        let of = |values: core::ops::Range<u64>| values.map(|value| word(Kind::Found, value));
        let mut reel = Reel::new(ring, ring.head());
        pen.write(of(0..50));
        assert_eq!(reel.copy(80), (50, 0));
        pen.write(of(50..100));
        assert_eq!(reel.copy(30), (30, 20));
        pen.write(of(100..110));
        assert_eq!(reel.copy(0), (0, 10));
        let (mark, kept) = reel.words.split_last().unwrap();
        assert_eq!(*mark, word(Kind::Lost, 20));
        assert!(kept.iter().copied().eq(of(0..80)));
        assert!(reel.is_cut);
    }
}
