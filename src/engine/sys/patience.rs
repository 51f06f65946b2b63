//! Waiting for another kernel thread's next few instructions.

use core::time::Duration;

/// How long somebody has looked at a word that another kernel thread is about to change.
///
/// First it spins. If that thread is not running, it gives way to it; and if that does not help
/// either (its priority is lower than ours) it sleeps.
pub(crate) struct Patience(u32);

const SPINS: u32 = 100;
const YIELDS: u32 = 20;
const SLEEP: Duration = Duration::from_micros(100);

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(0)
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        if self.0 < SPINS {
            core::hint::spin_loop();
        } else if self.0 < SPINS + YIELDS {
            // SAFETY: takes nothing.
            let _ = unsafe { super::call(libc::SYS_sched_yield, &[]) };
        } else {
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: SLEEP.as_nanos() as libc::c_long,
            };
            // SAFETY: a valid time; where it ends early we look early.
            let _ = unsafe { super::call(libc::SYS_nanosleep, &[&raw const time as usize, 0]) };
            return;
        }
        self.0 += 1;
    }
}
