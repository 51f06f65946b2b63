//! What processors and workers do, as it is seen from outside.
//!
//! Two words are read one after the other, so an answer may mix two moments. It is good for a picture and for
//! counting, and nothing is decided by it.

use crate::engine::atomic::Ordering::{Acquire, Relaxed};
pub(crate) use crate::engine::sched::{Cluster, Processor, Worker};
use crate::engine::sched::{Green, worker};

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
        // Acquire: the worker's record; partner: Release in `Owned::give_to`.
        let Some(worker) = self.worker.load(Acquire) else {
            return Activity::Idle;
        };
        match worker.running() {
            Some(green) => Activity::Running(green, worker.thread()),
            None => Activity::Scheduling,
        }
    }
}

/// A green thread, and the worker that runs it.
pub(crate) struct Run {
    pub(crate) green: &'static Green,
    worker: &'static Worker,
}

/// All green threads that run, or are blocked in the kernel.
pub(crate) fn runs() -> impl Iterator<Item = Run> {
    worker::all().filter_map(|worker| {
        let green = worker.running()?;
        Some(Run { green, worker })
    })
}

impl Run {
    /// The system's number of the kernel thread.
    pub(crate) fn kernel_thread(&self) -> i32 {
        self.worker.thread()
    }

    /// Whether it goes on still.
    pub(crate) fn goes_on(&self) -> bool {
        self.worker.is_running(self.green)
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
