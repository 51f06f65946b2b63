//! Which threads are busy: what one client has seen of that since it last asked.
//!
//! Nothing is counted where threads switch. For green threads the client's kernel thread looks, at random moments some
//! 20 ms apart, which thread each processor runs: a thread that was seen in a quarter of the looks has used a
//! quarter of a processor. For kernel threads the system counts CPU time.
//!
//! Memory: an entry for each thread that was seen running since the last question, and one for each kernel thread that
//! waits as green threads do. A thread that has taken over an ended one's record is another thread: its identity
//! lies elsewhere.

use std::collections::HashMap;

use super::runtimes::Runtime;
use crate::engine::green::resident;
use crate::engine::sched::sight::Seen;
use crate::engine::sched::{Activity, Processor};
use crate::engine::sys::observer::{self, Observer};
use crate::engine::sys::{clock, kernel_thread};
use std::sync::Arc;

/// A thread, and where its identity lies.
type Key = (usize, usize);

/// Looks since the last question.
#[derive(Default)]
pub(super) struct Looks {
    count: u32,
    by_thread: HashMap<Key, (Seen, u32)>,
    by_processor: HashMap<usize, u32>,
    /// The CPU time of each kernel thread when it was last asked for, and when that was.
    cpu_times: HashMap<usize, u64>,
    asked_at: u64,
}

/// How busy a thread was, in thousandths of a processor.
pub(super) struct Share {
    pub(super) thread: Seen,
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
    pub(super) fn look(&mut self, runtimes: &[Arc<Runtime>], observer: &mut Observer) {
        self.count += 1;
        for processor in runtimes
            .iter()
            .filter_map(|runtime| runtime.cluster)
            .flat_map(|cluster| cluster.processors())
        {
            let Activity::Running(green, thread) = processor.activity() else {
                continue;
            };
            // Its processor may not have been taken yet.
            if let observer::Doing::Call(_) = observer.doing(thread) {
                continue;
            }
            let seen = Seen::Green(green);
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
        threads.sort_by_key(|share| core::cmp::Reverse(share.thousandths));
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
        for resident in resident::all().filter(|resident| !resident.is_staff()) {
            let cpu = clock::cpu_time(kernel_thread::cpu_clock(resident.thread()));
            let thread = Seen::Kernel(resident);
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
