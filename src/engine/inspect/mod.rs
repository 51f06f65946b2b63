//! Looking into the engine from outside, while it runs: the opening through which observers pull.
//!
//! | file | idea |
//! |---|---|
//! | `threads` | a snapshot of one thread, and whether it is still true; all threads; which thread each processor and each worker runs now |
//! | `kernel` | records of kernel threads that park as green threads do, and whose record is whose; a word that tells the reporter when threads become quiet |
//! | `hold` | holding a thread that runs for some microseconds, so that its stack can be read |
//! | `notes` | what threads note: their names, and why they wait; read sections, in which what was seen is not freed |
//!
//! Nothing here stops a thread for long, or takes a lock of the scheduler's. The engine itself writes `notes` and
//! `kernel` (and counts in each record how often the thread has left its stack: `sched::switch::Since`), and
//! calls the part of `hold` that runs in a signal's handler; all else is for observers. They see the engine through this
//! module, `probe` and `facade` alone: so what they need of the records ([`layout`]) and of the system ([`system`]) is named
//! here.

#[cfg(green)]
pub(crate) mod hold;
pub(crate) mod kernel;
pub(crate) mod notes;
#[cfg(green)]
pub(crate) mod threads;

#[cfg(green)]
pub(crate) use self::threads::{Activity, all, may_be_woken, runs};
#[cfg(green)]
pub(crate) use crate::engine::sched::{Cluster, Processor};
pub(crate) use crate::engine::sched::{Identity, frames::Seen};

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
