//! What a processor does, as it is seen from outside, for reports.
//!
//! Two words are read one after the other, so the answer may mix two moments. It is good for a picture and for
//! counting, and nothing is decided by it.

use super::Processor;
use crate::engine::atomic::Ordering;
use crate::engine::green::Green;

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
        let Some(machine) = self.machine.load(Ordering::Acquire) else {
            return Activity::Idle;
        };
        match machine.running() {
            Some(green) => {
                let thread = machine.kernel_thread.load(Ordering::Relaxed);
                Activity::Running(green, thread as i32)
            }
            None => Activity::Scheduling,
        }
    }
}
