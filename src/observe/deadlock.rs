//! Finds deadlocks: threads that wait for each other, and programs in which every thread waits.
//!
//! *A cycle.* A thread that waits for a lock leads to the thread that holds the lock, and one that joins leads to the
//! other thread. A cycle among these is a deadlock, whatever else the program does. The threads were not looked at
//! at one moment, so each is looked at again (`stands`): if none has run since, and each still waits for the next, the
//! cycle stood all the while.
//!
//! *All.* Every thread waits, without a deadline, for what only threads of the process end; and the process has no other
//! thread, and no signal handler, that could. Two passes that find the same waits make sure that all waited at
//! once, between the two. Where anything is not known, there is no alarm:
//!
//! | what could wake a thread | how it is seen |
//! |---|---|
//! | another green thread | it runs, or is ready, or waits for something from outside |
//! | a timer | the wait has a deadline |
//! | a socket, a file, a child, another process | the kind of wait is one from outside, or the thread is blocked in the kernel |
//! | a kernel thread that holds a handle | it is not known to wait |
//! | a signal | the program has handlers |
//! | a future's waker | the kind of wait is one from outside |

use core::hash::{Hash, Hasher};
use std::collections::HashSet;
use std::hash::DefaultHasher;

use super::snapshot::Snapshot;
use super::text::Named;
use crate::engine::inspect::layout::Parking;
use crate::engine::inspect::threads::{Doing, Thread, ThreadSnapshot};
use crate::engine::inspect::{all, kernel, may_be_woken};
use crate::sys::clock;

impl Snapshot {
    /// The threads that wait for each other, each for the next and the last for the first: places among the entries.
    pub(crate) fn cycles(&self) -> Vec<Vec<u32>> {
        let next = |place: u32| -> Option<u32> {
            let entry = &self.threads[place as usize];
            entry.wait.as_ref().filter(|wait| wait.left.is_none())?.whom
        };
        const UNSEEN: u32 = u32::MAX;
        // In which walk a thread was first met.
        let mut walk_of = vec![UNSEEN; self.threads.len()];
        let mut found = Vec::new();
        for start in 0..self.threads.len() as u32 {
            let mut at = Some(start).filter(|&place| walk_of[place as usize] == UNSEEN);
            while let Some(place) = at.filter(|&place| walk_of[place as usize] == UNSEEN) {
                walk_of[place as usize] = start;
                at = next(place);
            }
            if let Some(entry) = at.filter(|&place| walk_of[place as usize] == start) {
                let around = core::iter::successors(Some(entry), |&place| {
                    next(place).filter(|&next| next != entry)
                });
                found.push(around.collect::<Vec<u32>>());
            }
        }
        found.retain(|cycle| self.stands(cycle));
        found
    }

    /// Whether the threads still wait for each other. That a thread has not run does not suffice: the lock that the thread
    /// waits for may have got another holder, while the first holder went on and waits elsewhere by now.
    fn stands(&self, cycle: &[u32]) -> bool {
        let entry = |&place: &u32| &self.threads[place as usize];
        let followers = cycle.iter().cycle().skip(1);
        let mut steps = cycle.iter().zip(followers);
        // None has run between the looks of the dump and the last question, so all steps are true at once: a thread
        // that does not run gives no lock away.
        cycle.iter().all(|place| entry(place).stands())
            && steps.all(|(place, next)| entry(place).waits_still_for(entry(next)))
            && cycle.iter().all(|place| entry(place).stands())
    }

    /// A cycle in words, a line for each thread.
    pub(crate) fn describe_cycle(&self, cycle: &[u32]) -> String {
        let line = |&place: &u32| {
            let entry = &self.threads[place as usize];
            let wait = entry.wait.as_ref().map(|wait| self.describe_wait(wait));
            let wait = wait.unwrap_or_default();
            format!("  {} waits for {wait}\n", Named(entry))
        };
        cycle.iter().map(line).collect()
    }
}

/// A digest of all waits, if every thread waits for another: if a second look finds the same digest, all threads waited at
/// once in between. `None`: a thread can go on, or something from outside can wake one.
pub(crate) fn all_wait(own_thread: i32) -> Option<u64> {
    if may_be_woken() {
        return None;
    }
    // It differs if any wait does.
    let (mut digest, mut threads) = (DefaultHasher::new(), 0);
    let mut add = |record: usize, seen: &ThreadSnapshot| {
        (record, seen.turns).hash(&mut digest);
        threads += 1;
    };
    let mut known = HashSet::from([own_thread]);
    for thread in kernel::all() {
        if thread.is_helper() {
            known.insert(thread.thread());
            continue;
        }
        match Thread::Kernel(thread).look() {
            Some(seen) if waits_inside(&seen) => {
                known.insert(thread.thread());
                add(seen.thread.record(), &seen);
            }
            Some(_) => return None,
            // The thread has ended. Should it be there after all, it is among the tasks, and not known.
            None => {}
        }
    }
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let name = task.ok()?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        if !thread.is_some_and(|thread: i32| known.contains(&thread)) {
            return None;
        }
    }
    for thread in all().filter(|thread| matches!(thread, Thread::Green(_))) {
        if let Some(seen) = thread.look() {
            if !waits_inside(&seen) {
                return None;
            }
            add(thread.record(), &seen);
        }
    }
    (threads != 0).then(|| digest.finish())
}

fn waits_inside(seen: &ThreadSnapshot) -> bool {
    let is_inside =
        |parking: Parking| parking.deadline == clock::NEVER && parking.reason.kind.is_inside;
    seen.doing == Doing::Parked && seen.waiting.is_some_and(is_inside)
}
