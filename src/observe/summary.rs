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

use super::snapshot::{Depth, Entry, Snapshot};
use crate::engine::facade::{Backend, clock, runtimes::Running};
use crate::engine::inspect::reason::WaitKind;
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::system::observer::{self, Observer};
use crate::engine::inspect::threads::{Doing, Thread, ThreadSnapshot};
use crate::engine::inspect::workers::{Activity, Cluster, Processor};
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
    /// In how many thousandths of the looks the processor ran a thread.
    pub(super) busy: u32,
    /// The place of the thread that the processor runs, in the snapshot.
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
    /// How long the summary took, in nanoseconds.
    pub(super) took: u64,
}

impl Summary {
    /// Looks at all threads, and shows `most` of each kind.
    pub(super) fn take(
        runtimes: &[Running],
        looks: &mut Looks,
        observer: &mut Observer,
        most: usize,
    ) -> Summary {
        let started = clock::now();
        let mut counts = Counts::default();
        let longest = counts.count(observer, most);
        let mut processors = Vec::new();
        for runtime in runtimes {
            processors.push(looks.at_processors(runtime, observer));
        }
        let busiest = looks.take(most);
        let running = processors.iter().flatten().filter_map(|one| one.seen);
        let busy = busiest.iter().map(|&(thread, _)| thread);
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
        longest.retain(|&place| {
            let entry = &snapshot.threads[place];
            !matches!(entry.doing, Doing::Running(_)) || entry.call.is_some()
        });
        longest.sort_by_key(|&place| {
            let entry = &snapshot.threads[place];
            (Reverse(entry.since), entry.id)
        });
        let busiest = busiest.into_iter();
        let busiest = busiest.filter_map(|(thread, share)| Some((place(thread)?, share)));
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
        let mut some: Vec<Thread> = Vec::with_capacity(TOGETHER);
        loop {
            some.extend(all.by_ref().take(TOGETHER));
            if some.is_empty() {
                break;
            }
            // Each thread's stack is far from the next one's: they are fetched while others are looked at.
            some.iter().for_each(|thread| thread.prefetch());
            for seen in some.drain(..).filter_map(|thread| thread.look()) {
                let waits = self.add(&seen, observer, &mut questions);
                // A thread that began to wait just now may be ahead of the clock that was read.
                let is_ahead = seen.since > u32::MAX - 10_000;
                if waits && !is_ahead && most > 0 {
                    longest.push((seen.since, seen.thread));
                    if longest.len() >= 2 * most {
                        cut(&mut longest);
                    }
                }
            }
        }
        self.waits.sort_by_key(|(_, count)| Reverse(*count));
        cut(&mut longest);
        longest.into_iter().map(|(_, thread)| thread).collect()
    }

    /// Counts a thread. Returns whether the thread waits.
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
                if !asks || !is_in_call(observer, id) {
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

fn is_in_call(observer: &mut Observer, kernel_thread: i32) -> bool {
    matches!(observer.doing(kernel_thread), observer::Doing::Call(_))
}

/// The processors of a runtime that are in use; kernel threads have none.
fn processors_of(runtime: &Running) -> impl Iterator<Item = &'static Processor> {
    let cluster = match runtime.backend {
        Backend::Green(cluster) => Some(cluster),
        Backend::Kernel(_) => None,
    };
    let all = cluster.into_iter().flat_map(Cluster::processors);
    all.filter(|processor| !processor.is_retired())
}

/// Looks since the last question.
#[derive(Default)]
pub(super) struct Looks {
    pub(super) count: u32,
    /// In how many of them a thread ran: by its record, and where its identity lies.
    by_thread: HashMap<(usize, usize), (Thread, u32)>,
    /// In how many of them a processor ran a thread: by its address.
    by_processor: HashMap<usize, u32>,
    /// The CPU time of each kernel thread at the last question, and when that was.
    cpu_times: HashMap<usize, u64>,
    asked_at: u64,
}

impl Looks {
    /// Looks once.
    pub(super) fn look(&mut self, runtimes: &[Running], observer: &mut Observer) {
        self.count += 1;
        for processor in runtimes.iter().flat_map(processors_of) {
            // In a call, the thread's processor may not have been taken yet.
            if let Activity::Running(green, id) = processor.activity()
                && !is_in_call(observer, id)
            {
                let seen = Thread::Green(green);
                let key = (seen.record(), seen.identity().addr());
                self.by_thread.entry(key).or_insert((seen, 0)).1 += 1;
                let place = core::ptr::from_ref(processor).addr();
                *self.by_processor.entry(place).or_insert(0) += 1;
            }
        }
    }

    /// The processors of a runtime now, and how busy they were.
    fn at_processors(&self, runtime: &Running, observer: &mut Observer) -> Vec<OfProcessor> {
        let of = |processor: &'static Processor| {
            let (state, seen) = match processor.activity() {
                Activity::Idle => ("idle", None),
                Activity::Scheduling => ("scheduling", None),
                Activity::Running(green, id) if is_in_call(observer, id) => {
                    ("blocked", Some(Thread::Green(green)))
                }
                Activity::Running(green, _) => ("running", Some(Thread::Green(green))),
            };
            let place = core::ptr::from_ref(processor).addr();
            let ran = self.by_processor.get(&place).copied().unwrap_or(0);
            OfProcessor {
                index: processor.index,
                state,
                queue: processor.cluster().policy.len(Some(processor.index)),
                switches: processor.switches.get(),
                busy: ran * 1000 / self.count.max(1),
                thread: None,
                seen,
            }
        };
        processors_of(runtime).map(of).collect()
    }

    /// The `most` busiest threads since the last question, the busiest first, and how busy they were, in thousandths of a
    /// processor. The count of looks begins anew.
    fn take(&mut self, most: usize) -> Vec<(Thread, u32)> {
        let count = core::mem::take(&mut self.count).max(1);
        self.by_processor.clear();
        let seen = self.by_thread.drain();
        let seen = seen.filter(|(key, (thread, _))| thread.identity().addr() == key.1);
        let mut shares: Vec<_> = seen
            .map(|(_, (thread, ran))| (thread, ran * 1000 / count))
            .collect();
        self.add_kernel_threads(&mut shares);
        shares.sort_by_key(|&(_, share)| Reverse(share));
        shares.truncate(most);
        shares
    }

    fn add_kernel_threads(&mut self, shares: &mut Vec<(Thread, u32)>) {
        let now = clock::now();
        let passed = now.saturating_sub(self.asked_at).max(1);
        self.asked_at = now;
        let before = core::mem::take(&mut self.cpu_times);
        for thread in kernel::all().filter(|kernel| !kernel.is_helper()) {
            let cpu = clock::cpu_time(kernel_thread::cpu_clock(thread.thread()));
            let thread = Thread::Kernel(thread);
            let before = before.get(&thread.record());
            let used = before.map_or(0, |&before| cpu.saturating_sub(before));
            let share = (used.saturating_mul(1000) / passed).min(1000) as u32;
            self.cpu_times.insert(thread.record(), cpu);
            if share > 0 {
                shares.push((thread, share));
            }
        }
    }
}
