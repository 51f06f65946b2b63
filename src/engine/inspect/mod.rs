//! Looking into the engine from outside, while it runs: the opening through which observers pull.
//!
//! | file | idea |
//! |---|---|
//! | this one | all threads; which thread each processor and each worker runs now |
//! | `threads` | a snapshot of one thread, and whether it is still true |
//! | `kernel` | records of kernel threads that park as green threads do, and whose record is whose; a word that tells the reporter when threads become quiet |
//! | `hold` | holding a thread that runs for some microseconds, so that its stack can be read |
//! | `notes` | what threads note: their names, and why they wait; read sections, in which what was seen is not freed |
//!
//! Nothing here stops a thread for long, or takes a lock of the scheduler's. The engine itself writes `notes` and
//! `kernel` (and counts in each record how often the thread has left its stack: `sched::switch::Since`), and
//! calls the part of `hold` that runs in a signal's handler; all else is for observers. They see the engine through this
//! module, `probe` and `facade` alone: so what they need of the records ([`layout`]) and of the system ([`system`]) is named
//! here.
//!
//! Where two words are read one after the other, as of a processor and its worker, an answer may mix two moments. It is good
//! for a picture and for counting, and nothing is decided by it.

#[cfg(green)]
pub(crate) mod hold;
pub(crate) mod kernel;
pub(crate) mod notes;
#[cfg(green)]
pub(crate) mod threads;

#[cfg(green)]
pub(crate) use self::looks::*;
pub(crate) use crate::engine::sched::Identity;

/// What observers need of the system, beyond what `facade` has.
#[cfg(green)]
pub(crate) mod system {
    pub(crate) use crate::engine::arch::plain_address;
    #[cfg(test)]
    pub(crate) use crate::engine::arch::{fresh_stack, switch};
    pub(crate) use crate::engine::sched::fork::OnlyHere;
    pub(crate) use crate::engine::sys::{kernel_thread, libraries, print};
}

/// Types whose layout a debugger has to know.
#[cfg(green)]
pub(crate) mod layout {
    pub(crate) use crate::engine::sched::park::{ParkState, Parking, Waiter};
    pub(crate) use crate::engine::sched::thread::{self, Roster};
    pub(crate) use crate::engine::sched::{Green, Identity, ThreadFlags, Worker};
    pub(crate) use crate::engine::sched::{start::ThreadStack, switch::Bounds};
}

/// All there is to look at: threads, and what processors and workers do.
#[cfg(green)]
mod looks {
    use super::kernel;
    use super::threads::Thread;
    use crate::engine::atomic::Ordering::Acquire;
    use crate::engine::sched::thread::{Records, SystemName};
    pub(crate) use crate::engine::sched::{Cluster, Processor, Worker};
    use crate::engine::sched::{Green, cpu_time, current, fork};
    use crate::engine::sys::signal;

    /// Every thread but the kernel threads that keep runtimes going: those are no concern of the program's.
    pub(crate) fn all() -> impl Iterator<Item = Thread> {
        // In a forked child green threads are the parent's.
        let green = Records::all().filter(|_| !fork::is_child());
        let others = kernel::all().filter(|kernel| !kernel.is_helper());
        green.map(Thread::Green).chain(others.map(Thread::Kernel))
    }

    /// Whether something other than a thread that is seen may wake one: a processor is awake, or a signal's handler
    /// may run.
    pub(crate) fn may_be_woken() -> bool {
        let is_awake = |cluster: &Cluster| cluster.idle.awake() != 0;
        Worker::clusters().any(is_awake) || current::handlers_exist() || signal::are_caught()
    }

    /// All green threads that run, or are blocked in the kernel, with the workers that run them.
    pub(crate) fn runs() -> impl Iterator<Item = (&'static Green, &'static Worker)> {
        Worker::all().filter_map(|worker| Some((worker.running()?, worker)))
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
}
