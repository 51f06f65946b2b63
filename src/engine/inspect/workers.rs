//! What processors and workers do, as it is seen from outside.
//!
//! Two words are read one after the other, so an answer may mix two moments. It is good for a picture and for
//! counting, and nothing is decided by it.

use crate::engine::atomic::Ordering::{Acquire, Relaxed};
use crate::engine::green::Green;
use crate::engine::sched::machine;
pub(crate) use crate::engine::sched::{Cluster, Machine, Processor};

pub(crate) enum Activity {
    /// Nobody owns it: it sleeps.
    Idle,
    /// Its kernel thread is between two threads, or searches.
    Scheduling,
    /// It runs this thread, on this kernel thread of the system's.
    Running(&'static Green, i32),
}

impl Processor {
    pub(crate) fn activity(&self) -> Activity {
        // Acquire: the machine's record; partner: Release in `Owned::give_to`.
        let Some(machine) = self.machine.load(Acquire) else {
            return Activity::Idle;
        };
        match machine.running() {
            Some(green) => Activity::Running(green, machine.thread()),
            None => Activity::Scheduling,
        }
    }
}

/// A green thread, and the worker that runs it.
pub(crate) struct Run {
    pub(crate) green: &'static Green,
    machine: &'static Machine,
}

/// All green threads that run, or are blocked in the kernel.
pub(crate) fn runs() -> impl Iterator<Item = Run> {
    machine::all().filter_map(|machine| {
        let green = machine.running()?;
        Some(Run { green, machine })
    })
}

impl Run {
    /// The system's number of the kernel thread.
    pub(crate) fn kernel_thread(&self) -> i32 {
        self.machine.thread()
    }

    /// Whether it goes on still.
    pub(crate) fn goes_on(&self) -> bool {
        self.machine.is_running(self.green)
    }

    /// Whether the thread has said that it blocks, or that it may.
    pub(crate) fn is_announced(&self) -> bool {
        self.green.announced.load(Relaxed) || self.green.in_call.load(Relaxed)
    }

    /// Whether other threads of its cluster wait for a processor.
    pub(crate) fn keeps_others_waiting(&self) -> bool {
        self.green.cluster().has_work()
    }
}
