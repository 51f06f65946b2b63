//! Looking into the engine from outside, while it runs: the opening through which observers pull.
//!
//! | file | idea |
//! |---|---|
//! | `threads` | a snapshot of one thread, and whether it is still true |
//! | `kernel`, `places` | records of kernel threads that park as green threads do; whose record is whose; a word that tells the reporter when threads become quiet |
//! | `workers` | all threads; which thread each processor and each worker runs now |
//! | `hold` | holding a thread that runs for some microseconds, so that its stack can be read |
//! | `reason` | why a thread waits: it is stored where the thread parks |
//! | `epoch` | read sections: while one is open, what it has seen is not freed |
//!
//! Nothing here stops a thread for long, or takes a lock of the scheduler's. The engine itself writes `reason` and
//! `kernel` (and counts in each record how often the thread has left its stack: `sched::switch::Since`), enters `epoch`, and
//! calls the part of `hold` that runs in a signal's handler; all else is for observers. They see the engine through this
//! module, `probe` and `facade` alone: so what they need of the records ([`layout`]) and of the system ([`system`]) is named
//! here.

pub(crate) mod epoch;
#[cfg(green)]
pub(crate) mod hold;
pub(crate) mod kernel;
pub(crate) mod places;
pub(crate) mod reason;
#[cfg(green)]
pub(crate) mod threads;
#[cfg(green)]
pub(crate) mod workers;

#[cfg(green)]
pub(crate) use self::workers::{all, may_be_woken};
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
    pub(crate) use crate::engine::sched::records::{self, Roster};
    pub(crate) use crate::engine::sched::{Green, Identity, ThreadFlags, Worker};
    pub(crate) use crate::engine::sched::{start::ThreadStack, switch::Bounds};
}
