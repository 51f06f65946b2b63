//! Waiting a little for another kernel thread: pauses between looks at a lock ([`Backoff`]), and waiting for a
//! thread's next few instructions ([`Patience`]).
//!
//! Each pause of a backoff is twice as long as the one before: Anderson's exponential backoff ("The Performance of Spin Lock
//! Alternatives for Shared-Memory Multiprocessors", 1990). Threads that look again at once take the lock's cache line,
//! and those of all that it guards, from its holder at every turn. While they pause, the holder may come back several times
//! and find these lines in its cache.

use super::kernel_thread;

/// The pauses of one caller at one lock. A pause is an instruction of the processor, of 5 to 50 ns.
pub(crate) struct Backoff {
    next: u32,
    longest: u32,
}

impl Backoff {
    const FIRST: u32 = 8;

    /// For a lock whose holder runs. The caller pauses for some microseconds in all, and is to block then.
    pub(crate) const fn while_it_runs() -> Backoff {
        Backoff {
            next: Backoff::FIRST,
            longest: 64,
        }
    }

    /// For a lock whose holder may wait for something itself: half as long.
    pub(crate) const fn as_it_may_wait() -> Backoff {
        Backoff {
            next: Backoff::FIRST,
            longest: 32,
        }
    }

    /// Pauses. False: the caller has paused for long enough, and this time it did not.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        if self.next > self.longest {
            return false;
        }
        (0..self.next).for_each(|_| core::hint::spin_loop());
        self.next *= 2;
        true
    }
}

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
            kernel_thread::rest(SLEEP);
            return;
        }
        self.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn it_ends() {
        let times = |mut backoff: Backoff| (0..10).filter(|_| backoff.pause()).count();
        assert_eq!(times(Backoff::while_it_runs()), 4);
        assert_eq!(times(Backoff::as_it_may_wait()), 3);
    }
}
