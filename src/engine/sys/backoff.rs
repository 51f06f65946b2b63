//! Pauses between looks at a lock that another processor holds.
//!
//! Each pause is twice as long as the one before: Anderson's exponential backoff ("The Performance of Spin Lock
//! Alternatives for Shared-Memory Multiprocessors", 1990). Threads that look again at once take the lock's cache line,
//! and those of all that it guards, from its holder at every turn. While they pause, the holder may come back several times
//! and find these lines in its cache.

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
