//! A summary of all threads: counts, and the few that stand out.
//!
//! Each thread is looked at once, and forgotten again unless it is one of the few that have waited longest: the memory
//! does not go with the number of threads. The few are then looked at anew, as a snapshot of their own
//! (`collect`), for their names and what they wait for; so one of them may have gone on meanwhile, and is left out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::busy::{Looks, Shares};
use super::collect::{self, Depth, Entry, Snapshot};
use super::runtimes::Runtime;
use crate::engine::green::subject::Subject;
use crate::engine::sched::sight::{Doing, Seen, Sight};
use crate::engine::sched::{Activity, Processor};
use crate::engine::sys::clock;
use crate::engine::sys::observer::{self, Observer};

/// So many threads that run are asked about at the system: does the call that they are in block?
const QUESTIONS: usize = 1000;

/// So many threads are fetched together.
const TOGETHER: usize = 32;

/// How many threads do what.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) green: u64,
    pub(super) kernel: u64,
    pub(super) new: u64,
    pub(super) ready: u64,
    pub(super) running: u64,
    pub(super) blocked: u64,
    pub(super) parked: u64,
    /// What the parked ones wait for.
    pub(super) waits: Vec<(&'static Subject, u64)>,
}

/// A processor at one moment.
pub(super) struct OfProcessor {
    pub(super) index: usize,
    pub(super) state: &'static str,
    pub(super) queue: usize,
    pub(super) switches: u64,
    pub(super) busy: u32,
    /// The thread that it runs: its place in the snapshot.
    pub(super) thread: Option<usize>,
}

pub(super) struct Summary {
    pub(super) counts: Counts,
    /// For each runtime.
    pub(super) processors: Vec<Vec<OfProcessor>>,
    /// Places in the snapshot, and thousandths of a processor.
    pub(super) busiest: Vec<(usize, u32)>,
    pub(super) longest: Vec<usize>,
    pub(super) snapshot: Snapshot,
    /// How long it took, in nanoseconds.
    pub(super) took: u64,
}

impl Summary {
    /// Looks at all threads, and shows `most` of each kind.
    pub(super) fn take(
        runtimes: &[Arc<Runtime>],
        looks: &mut Looks,
        observer: &mut Observer,
        most: usize,
    ) -> Summary {
        let started = clock::now();
        let shares = looks.take(most);
        let mut counts = Counts::default();
        let longest = counts.count(observer, most);
        let current: Vec<Vec<Now>> = runtimes
            .iter()
            .map(|runtime| Now::of_all(runtime, observer))
            .collect();
        let mut shown = Shown::default();
        shares
            .threads
            .iter()
            .for_each(|share| shown.add(share.thread));
        longest.iter().for_each(|&thread| shown.add(thread));
        for now in current.iter().flatten() {
            now.thread.into_iter().for_each(|thread| shown.add(thread));
        }
        let mut snapshot = Snapshot::of(shown.threads.into_iter(), Depth::Waits);
        snapshot.add_holders();
        let place = |thread: Seen| {
            let is = |entry: &Entry| entry.thread.record() == thread.record();
            snapshot.threads.iter().position(is)
        };
        let mut longest: Vec<usize> = longest.into_iter().filter_map(place).collect();
        longest.retain(|&place| waits(&snapshot.threads[place]));
        longest.sort_by_key(|&place| {
            let entry = &snapshot.threads[place];
            (Reverse(entry.since), entry.id)
        });
        let busiest = shares.threads.iter();
        let busiest = busiest.filter_map(|share| Some((place(share.thread)?, share.thousandths)));
        let of = |now: Now| now.with(&shares, place);
        Summary {
            busiest: busiest.collect(),
            processors: current
                .into_iter()
                .map(|all| all.into_iter().map(of).collect())
                .collect(),
            counts,
            longest,
            snapshot,
            took: clock::now() - started,
        }
    }
}

/// Threads that are to be shown, each once.
#[derive(Default)]
struct Shown {
    threads: Vec<Seen>,
}

impl Shown {
    fn add(&mut self, thread: Seen) {
        let is = |other: &Seen| other.record() == thread.record();
        if !self.threads.iter().any(is) {
            self.threads.push(thread);
        }
    }
}

fn waits(entry: &Entry) -> bool {
    !matches!(entry.doing, Doing::Running(_)) || entry.call.is_some()
}

/// The threads that have waited longest.
struct Longest {
    most: usize,
    threads: Vec<Seen>,
    /// Since when, and the place among `threads`; the shortest on top.
    order: BinaryHeap<Reverse<(u32, usize)>>,
}

impl Longest {
    fn add(&mut self, since: u32, thread: Seen) {
        if self.threads.len() < self.most {
            self.order.push(Reverse((since, self.threads.len())));
            self.threads.push(thread);
            return;
        }
        // The one that goes leaves its place.
        if let Some(mut shortest) = self.order.peek_mut()
            && since > shortest.0.0
        {
            let place = shortest.0.1;
            *shortest = Reverse((since, place));
            self.threads[place] = thread;
        }
    }
}

impl Counts {
    /// Counts all threads. Returns the `most` that have waited longest.
    fn count(&mut self, observer: &mut Observer, most: usize) -> Vec<Seen> {
        let mut longest = Longest {
            most,
            threads: Vec::new(),
            order: BinaryHeap::new(),
        };
        let mut questions = QUESTIONS;
        let mut all = collect::everybody();
        let mut some = Vec::with_capacity(TOGETHER);
        loop {
            some.extend(all.by_ref().take(TOGETHER));
            if some.is_empty() {
                break;
            }
            // Each thread's stack is far from the next one's: they are fetched while others are looked at.
            some.iter().for_each(|thread: &Seen| thread.prefetch());
            for thread in some.drain(..) {
                if let Some(sight) = thread.look() {
                    let waits = self.add(&sight, observer, &mut questions);
                    // A thread that began to wait just now may be ahead of the clock that was read.
                    let is_ahead = sight.since > u32::MAX - 10_000;
                    if waits && !is_ahead {
                        longest.add(sight.since, thread);
                    }
                }
            }
        }
        self.waits.sort_by_key(|(_, count)| Reverse(*count));
        longest.threads
    }

    /// Counts a thread. Whether it waits.
    fn add(&mut self, sight: &Sight, observer: &mut Observer, questions: &mut usize) -> bool {
        match sight.thread {
            Seen::Green(_) => self.green += 1,
            Seen::Kernel(_) => self.kernel += 1,
        }
        match sight.doing {
            Doing::New => self.new += 1,
            Doing::Ready => self.ready += 1,
            Doing::Parked => {
                self.parked += 1;
                if let Some(waiting) = &sight.waiting {
                    self.add_wait(waiting.about.subject);
                }
            }
            Doing::Running(id) => {
                let asks = *questions > 0;
                *questions = questions.saturating_sub(1);
                if !asks || !matches!(observer.doing(id), observer::Doing::Call(_)) {
                    self.running += 1;
                    return false;
                }
                self.blocked += 1;
            }
        }
        true
    }

    fn add_wait(&mut self, subject: &'static Subject) {
        let is = |known: &&mut (&'static Subject, u64)| known.0.name == subject.name;
        match self.waits.iter_mut().find(is) {
            Some((_, count)) => *count += 1,
            None => self.waits.push((subject, 1)),
        }
    }
}

/// A processor as it was seen.
struct Now {
    processor: &'static Processor,
    state: &'static str,
    queue: usize,
    thread: Option<Seen>,
}

impl Now {
    fn of_all(runtime: &Runtime, observer: &mut Observer) -> Vec<Now> {
        let Some(cluster) = runtime.cluster else {
            return Vec::new();
        };
        let processors = cluster.processors().filter(|p| !p.is_retired());
        let mut now = |processor: &'static Processor| {
            let (state, thread) = match processor.activity() {
                Activity::Idle => ("idle", None),
                Activity::Scheduling => ("scheduling", None),
                Activity::Running(green, id) => match observer.doing(id) {
                    observer::Doing::Call(_) => ("blocked", Some(Seen::Green(green))),
                    _ => ("running", Some(Seen::Green(green))),
                },
            };
            Now {
                processor,
                state,
                queue: cluster.policy.len(Some(processor.index)),
                thread,
            }
        };
        processors.map(&mut now).collect()
    }

    fn with(self, shares: &Shares, place: impl Fn(Seen) -> Option<usize>) -> OfProcessor {
        OfProcessor {
            index: self.processor.index,
            state: self.state,
            queue: self.queue,
            switches: self.processor.switches.get(),
            busy: shares.of_processor(self.processor),
            thread: self.thread.and_then(place),
        }
    }
}
