//! All there is to look at: threads, and what processors and workers do.
//!
//! Two words are read one after the other, so an answer may mix two moments. It is good for a picture and for
//! counting, and nothing is decided by it.

use super::kernel;
use super::threads::Thread;
use crate::engine::atomic::Ordering::Acquire;
pub(crate) use crate::engine::sched::{Cluster, Processor, Worker};
use crate::engine::sched::{Green, cpu_time, fork, handlers, records, thread::SystemName, worker};
use crate::engine::sys::signal;

/// Every thread but the kernel threads that keep runtimes going: those are no concern of the program's.
pub(crate) fn all() -> impl Iterator<Item = Thread> {
    // In a forked child green threads are the parent's.
    let green = records::all().filter(|_| !fork::is_child());
    let others = kernel::all().filter(|kernel| !kernel.is_helper());
    green.map(Thread::Green).chain(others.map(Thread::Kernel))
}

/// Whether something other than a thread that is seen may wake one: a processor is awake, or a signal's handler
/// may run.
pub(crate) fn may_be_woken() -> bool {
    let is_awake = |cluster: &Cluster| cluster.idle.awake() != 0;
    worker::clusters().any(is_awake) || handlers::exist() || signal::are_caught()
}

/// All green threads that run, or are blocked in the kernel, with the workers that run them.
pub(crate) fn runs() -> impl Iterator<Item = (&'static Green, &'static Worker)> {
    worker::all().filter_map(|worker| Some((worker.running()?, worker)))
}

impl Thread {
    /// The name that a green thread has given itself by a call of libc.
    pub(crate) fn own_name(self) -> Option<SystemName> {
        match self {
            Thread::Green(green) => green.stack()?.own_name(),
            Thread::Kernel(_) => None,
        }
    }

    /// The CPU time of a green thread, in nanoseconds, if somebody has asked for it.
    pub(crate) fn cpu_time(self) -> Option<u64> {
        match self {
            Thread::Green(green) => cpu_time::known(green),
            Thread::Kernel(_) => None,
        }
    }
}

/// What a processor does.
pub(crate) enum Activity {
    /// It has no worker: it sleeps.
    Idle,
    /// Its worker is between two threads, or searches.
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
