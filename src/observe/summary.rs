//! A summary of all threads: counts, and the few that stand out.
//!
//! Each thread is looked at once, and forgotten again unless it is one of the few that have waited longest: the memory
//! does not go with the number of threads. The few are then looked at anew, as a snapshot of their own, for their
//! names and what they wait for; so one of them may have gone on meanwhile, and is left out.
//!
//! *Which threads are busy* is not counted where threads switch. For green threads the client's kernel thread looks, at
//! random moments some 20 ms apart, which thread each processor runs: a thread that was seen in a quarter of the looks
//! has used a quarter of a processor. For kernel threads the system counts CPU time. That takes an entry for each thread
//! that was seen running since the last question, and one for each kernel thread that waits as green threads do. A
//! thread that has taken over an ended one's record is another thread: its identity lies elsewhere.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::runtimes::Runtime;
use super::snapshot::{Depth, Entry, Snapshot};
use crate::engine::door::clock;
use crate::engine::inspect::reason::WaitKind;
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::system::observer::{self, Observer};
use crate::engine::inspect::threads::{Doing, Thread, ThreadSnapshot};
use crate::engine::inspect::workers::{Activity, Processor};
use crate::engine::inspect::{all, kernel};

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
    pub(super) waits: Vec<(&'static WaitKind, u64)>,
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
        runtimes: &[Runtime],
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
        let place = |thread: Thread| {
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
    threads: Vec<Thread>,
}

impl Shown {
    fn add(&mut self, thread: Thread) {
        let is = |other: &Thread| other.record() == thread.record();
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
    threads: Vec<Thread>,
    /// Since when, and the place among `threads`; the shortest on top.
    order: BinaryHeap<Reverse<(u32, usize)>>,
}

impl Longest {
    fn add(&mut self, since: u32, thread: Thread) {
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
    fn count(&mut self, observer: &mut Observer, most: usize) -> Vec<Thread> {
        let mut longest = Longest {
            most,
            threads: Vec::new(),
            order: BinaryHeap::new(),
        };
        let mut questions = QUESTIONS;
        let mut all = all();
        let mut some = Vec::with_capacity(TOGETHER);
        loop {
            some.extend(all.by_ref().take(TOGETHER));
            if some.is_empty() {
                break;
            }
            // Each thread's stack is far from the next one's: they are fetched while others are looked at.
            some.iter().for_each(|thread: &Thread| thread.prefetch());
            for thread in some.drain(..) {
                if let Some(seen) = thread.look() {
                    let waits = self.add(&seen, observer, &mut questions);
                    // A thread that began to wait just now may be ahead of the clock that was read.
                    let is_ahead = seen.since > u32::MAX - 10_000;
                    if waits && !is_ahead {
                        longest.add(seen.since, thread);
                    }
                }
            }
        }
        self.waits.sort_by_key(|(_, count)| Reverse(*count));
        longest.threads
    }

    /// Counts a thread. Whether it waits.
    fn add(
        &mut self,
        seen: &ThreadSnapshot,
        observer: &mut Observer,
        questions: &mut usize,
    ) -> bool {
        match seen.thread {
            Thread::Green(_) => self.green += 1,
            Thread::Kernel(_) => self.kernel += 1,
        }
        match seen.doing {
            Doing::New => self.new += 1,
            Doing::Ready => self.ready += 1,
            Doing::Parked => {
                self.parked += 1;
                if let Some(waiting) = &seen.waiting {
                    self.add_wait(waiting.reason.kind);
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

    fn add_wait(&mut self, kind: &'static WaitKind) {
        let is = |known: &&mut (&'static WaitKind, u64)| known.0.name == kind.name;
        match self.waits.iter_mut().find(is) {
            Some((_, count)) => *count += 1,
            None => self.waits.push((kind, 1)),
        }
    }
}

/// A processor as it was seen.
struct Now {
    processor: &'static Processor,
    state: &'static str,
    queue: usize,
    thread: Option<Thread>,
}

impl Now {
    fn of_all(runtime: &Runtime, observer: &mut Observer) -> Vec<Now> {
        let Some(cluster) = runtime.cluster() else {
            return Vec::new();
        };
        let processors = cluster.processors().filter(|p| !p.is_retired());
        let mut now = |processor: &'static Processor| {
            let (state, thread) = match processor.activity() {
                Activity::Idle => ("idle", None),
                Activity::Scheduling => ("scheduling", None),
                Activity::Running(green, id) => match observer.doing(id) {
                    observer::Doing::Call(_) => ("blocked", Some(Thread::Green(green))),
                    _ => ("running", Some(Thread::Green(green))),
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

    fn with(self, shares: &Shares, place: impl Fn(Thread) -> Option<usize>) -> OfProcessor {
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

/// A thread, and where its identity lies.
type Key = (usize, usize);

/// Looks since the last question.
#[derive(Default)]
pub(super) struct Looks {
    count: u32,
    by_thread: HashMap<Key, (Thread, u32)>,
    by_processor: HashMap<usize, u32>,
    /// The CPU time of each kernel thread when it was last asked for, and when that was.
    cpu_times: HashMap<usize, u64>,
    asked_at: u64,
}

/// How busy a thread was, in thousandths of a processor.
pub(super) struct Share {
    pub(super) thread: Thread,
    pub(super) thousandths: u32,
}

/// What [`Looks::take`] tells.
pub(super) struct Shares {
    /// The busiest first.
    pub(super) threads: Vec<Share>,
    by_processor: HashMap<usize, u32>,
    count: u32,
}

impl Looks {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Looks once.
    pub(super) fn look(&mut self, runtimes: &[Runtime], observer: &mut Observer) {
        self.count += 1;
        for processor in runtimes
            .iter()
            .filter_map(Runtime::cluster)
            .flat_map(|cluster| cluster.processors())
        {
            let Activity::Running(green, thread) = processor.activity() else {
                continue;
            };
            // Its processor may not have been taken yet.
            if let observer::Doing::Call(_) = observer.doing(thread) {
                continue;
            }
            let seen = Thread::Green(green);
            let key = (seen.record(), seen.identity().addr());
            self.by_thread.entry(key).or_insert((seen, 0)).1 += 1;
            *self.by_processor.entry(address(processor)).or_insert(0) += 1;
        }
    }

    /// The `most` busiest threads since the last time. It begins anew.
    pub(super) fn take(&mut self, most: usize) -> Shares {
        let count = self.count.max(1);
        self.count = 0;
        let mut threads: Vec<Share> = self
            .by_thread
            .drain()
            .filter(|(key, (thread, _))| thread.identity().addr() == key.1)
            .map(|(_, (thread, seen))| Share {
                thread,
                thousandths: seen * 1000 / count,
            })
            .collect();
        self.add_kernel_threads(&mut threads);
        threads.sort_by_key(|share| Reverse(share.thousandths));
        threads.truncate(most);
        Shares {
            threads,
            by_processor: core::mem::take(&mut self.by_processor),
            count,
        }
    }

    fn add_kernel_threads(&mut self, to: &mut Vec<Share>) {
        let now = clock::now();
        let passed = now.saturating_sub(self.asked_at).max(1);
        self.asked_at = now;
        let mut times = HashMap::new();
        for thread in kernel::all().filter(|kernel| !kernel.is_helper()) {
            let cpu = clock::cpu_time(kernel_thread::cpu_clock(thread.thread()));
            let thread = Thread::Kernel(thread);
            let before = self.cpu_times.get(&thread.record());
            let used = before.map_or(0, |&before| cpu.saturating_sub(before));
            let thousandths = (used.saturating_mul(1000) / passed).min(1000) as u32;
            times.insert(thread.record(), cpu);
            if thousandths > 0 {
                to.push(Share {
                    thread,
                    thousandths,
                });
            }
        }
        self.cpu_times = times;
    }
}

impl Shares {
    /// In how many thousandths of the looks the processor ran a thread.
    pub(super) fn of_processor(&self, processor: &Processor) -> u32 {
        let seen = self.by_processor.get(&address(processor));
        seen.map_or(0, |seen| seen * 1000 / self.count)
    }
}

fn address(processor: &Processor) -> usize {
    core::ptr::from_ref(processor).addr()
}
