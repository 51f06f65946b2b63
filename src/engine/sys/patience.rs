//! Waiting for another kernel thread's next few instructions.

use super::{clock, kernel_thread};

/// How long the caller has looked at a word that another kernel thread is about to change.
///
/// First the caller spins. If that thread is not running, the caller gives way to it; and if that does
/// not help either (its priority is lower than ours), the caller sleeps.
pub(crate) struct Patience(u32);

const SPINS: u32 = 100;
const YIELDS: u32 = 20;
/// In nanoseconds.
const SLEEP: u64 = 100_000;

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(0)
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        if self.0 < SPINS {
            core::hint::spin_loop();
        } else if self.0 < SPINS + YIELDS {
            kernel_thread::give_way();
        } else {
            // Where it ends early we look early.
            clock::sleep(SLEEP);
            return;
        }
        self.0 += 1;
    }
}
