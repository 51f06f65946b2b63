//! Looking into the engine from outside, while it runs: the opening through which observers pull.
//!
//! | file | idea |
//! |---|---|
//! | `threads` | a snapshot of one thread, and whether it is still true |
//! | `kernel`, `places` | records of kernel threads that park as green threads do; whose record is whose |
//! | `workers` | which thread each processor and each worker runs now |
//! | `hold` | holding a thread that runs for some microseconds, so that its stack can be read |
//! | `reason` | why a thread waits: it is stored where the thread parks |
//! | `since` | how often a green thread has left its stack, and since when it is as it is |
//! | `epoch` | read sections: while one is open, what it has seen is not freed |
//! | `quiet` | a word on which an observer sleeps until threads become quiet |
//!
//! Nothing here stops a thread for long, or takes a lock of the scheduler's. The engine itself writes `reason`,
//! `since`, `kernel` and `quiet`, enters `epoch`, and calls the part of `hold` that runs in a signal's handler; all
//! else is for observers. They see the engine through this module, `probe` and `facade` alone: so what they need of the
//! records ([`layout`]) and of the system ([`system`]) is named here.

pub(crate) mod epoch;
#[cfg(green)]
pub(crate) mod hold;
pub(crate) mod kernel;
pub(crate) mod places;
pub(crate) mod quiet;
pub(crate) mod reason;
#[cfg(green)]
pub(crate) mod since;
#[cfg(green)]
pub(crate) mod threads;
#[cfg(green)]
pub(crate) mod workers;

#[cfg(green)]
pub(crate) use self::observed::{all, may_be_woken};
pub(crate) use crate::engine::sched::Identity;

/// What observers need of the system, beyond what `facade` has.
#[cfg(green)]
pub(crate) mod system {
    pub(crate) use crate::engine::arch::plain_address;
    #[cfg(test)]
    pub(crate) use crate::engine::arch::{fresh_stack, switch};
    pub(crate) use crate::engine::sched::fork::OnlyHere;
    pub(crate) use crate::engine::sys::{elf, kernel_thread, libraries, observer, print, syscalls};
}

/// Types whose layout a debugger has to know.
#[cfg(green)]
pub(crate) mod layout {
    pub(crate) use crate::engine::sched::Worker;
    pub(crate) use crate::engine::sched::park::Ticket;
    pub(crate) use crate::engine::sched::park::{Parking, Waiter};
    pub(crate) use crate::engine::sched::records;
    pub(crate) use crate::engine::sched::records::Roster;
    pub(crate) use crate::engine::sched::switch::Bounds;
    pub(crate) use crate::engine::sched::thread_stack::ThreadStack;
    pub(crate) use crate::engine::sched::{Green, Identity, ThreadFlags};
}

#[cfg(green)]
mod observed {
    use super::kernel;
    use super::threads::Thread;
    use crate::engine::sched::records;
    use crate::engine::sched::thread_stack::{SystemName, ThreadStack};
    use crate::engine::sched::{cpu_time, fork, handlers, worker};
    use crate::engine::sys::handler;

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
        worker::any_is_awake() || handlers::exist() || handler::is_used()
    }

    impl Thread {
        /// The name that a green thread has given itself by a call of libc.
        pub(crate) fn own_name(self) -> Option<SystemName> {
            match self {
                Thread::Green(green) => green.stack().and_then(ThreadStack::own_name),
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
}
