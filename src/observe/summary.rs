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
use std::collections::HashMap;

use super::runtimes::Runtime;
use super::snapshot::{Depth, Entry, Snapshot};
use crate::engine::inspect::reason::WaitKind;
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::system::observer::{self, Observer};
use crate::engine::inspect::threads::{Doing, Thread, ThreadSnapshot};
use crate::engine::inspect::workers::{Activity, Processor};
use crate::engine::inspect::{all, kernel};
use crate::sys::clock;

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
    seen: Option<Thread>,
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
        let of_runtime = |runtime: &Runtime| OfProcessor::all(runtime, &shares, observer);
        let mut processors: Vec<Vec<OfProcessor>> = runtimes.iter().map(of_runtime).collect();
        let running = processors.iter().flatten().filter_map(|one| one.seen);
        let busy = shares.threads.iter().map(|share| share.thread);
        let mut shown: Vec<Thread> = Vec::new();
        for thread in busy.chain(longest.iter().copied()).chain(running) {
            // Each once.
            if !shown.iter().any(|other| other.record() == thread.record()) {
                shown.push(thread);
            }
        }
        let mut snapshot = Snapshot::of(shown.into_iter(), Depth::Waits);
        snapshot.add_holders();
        let place = |thread: Thread| {
            let is = |entry: &Entry| entry.thread.record() == thread.record();
            snapshot.threads.iter().position(is)
        };
        for one in processors.iter_mut().flatten() {
            one.thread = one.seen.and_then(place);
        }
        let mut longest: Vec<usize> = longest.into_iter().filter_map(place).collect();
        longest.retain(|&place| waits(&snapshot.threads[place]));
        longest.sort_by_key(|&place| {
            let entry = &snapshot.threads[place];
            (Reverse(entry.since), entry.id)
        });
        let busiest = shares.threads.iter();
        let busiest = busiest.filter_map(|share| Some((place(share.thread)?, share.thousandths)));
        Summary {
            busiest: busiest.collect(),
            processors,
            counts,
            longest,
            snapshot,
            took: clock::now() - started,
        }
    }
}

fn waits(entry: &Entry) -> bool {
    !matches!(entry.doing, Doing::Running(_)) || entry.call.is_some()
}

impl Counts {
    /// Counts all threads. Returns the `most` that have waited longest.
    fn count(&mut self, observer: &mut Observer, most: usize) -> Vec<Thread> {
        // Twice as many at most; then the shorter half goes.
        let mut longest: Vec<(u32, Thread)> = Vec::new();
        let cut = |longest: &mut Vec<(u32, Thread)>| {
            longest.sort_unstable_by_key(|&(since, _)| Reverse(since));
            longest.truncate(most);
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
                    if waits && !is_ahead && most > 0 {
                        longest.push((seen.since, thread));
                        if longest.len() >= 2 * most {
                            cut(&mut longest);
                        }
                    }
                }
            }
        }
        self.waits.sort_by_key(|(_, count)| Reverse(*count));
        cut(&mut longest);
        longest.into_iter().map(|(_, thread)| thread).collect()
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

impl OfProcessor {
    fn all(runtime: &Runtime, shares: &Shares, observer: &mut Observer) -> Vec<OfProcessor> {
        let Some(cluster) = runtime.cluster() else {
            return Vec::new();
        };
        let processors = cluster.processors().filter(|p| !p.is_retired());
        let seen = |processor: &'static Processor| {
            let (state, seen) = match processor.activity() {
                Activity::Idle => ("idle", None),
                Activity::Scheduling => ("scheduling", None),
                Activity::Running(green, id) => match observer.doing(id) {
                    observer::Doing::Call(_) => ("blocked", Some(Thread::Green(green))),
                    _ => ("running", Some(Thread::Green(green))),
                },
            };
            OfProcessor {
                index: processor.index,
                state,
                queue: cluster.policy.len(Some(processor.index)),
                switches: processor.switches.get(),
                busy: shares.of_processor(processor),
                thread: None,
                seen,
            }
        };
        processors.map(seen).collect()
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
