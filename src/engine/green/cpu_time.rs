//! The CPU time of one thread, as far as it is measured: from the first question for it on (`sched::cpu_time`).
//!
//! The kernel thread that runs the thread writes both words, at the switches; any thread reads them:
//!
//! | the end of a run | a reader |
//! |---|---|
//! | `since` = `BUSY`, fence, reads its clock | reads `since` and `used`, reads that clock |
//! | `used` += clock - `since`; `since` = 0 (Release) | fence, reads `since` (Acquire) again: the same, or it looks again |
//!
//! Since both read the same clock, which never goes backwards, a reader whose second look still finds the run has read it
//! before the run's end did: what is read never goes backwards either.

use crate::engine::atomic::{AtomicU64, Ordering, fence};

pub(crate) struct CpuTime {
    /// In nanoseconds, without the run under way.
    used: AtomicU64,
    /// What the clock of the kernel thread showed when the run began; 0: it is not measured.
    since: AtomicU64,
}

const BUSY: u64 = u64::MAX;
/// How often a reader looks: the writer is done in a moment, unless the reader is a handler that has interrupted it.
const TRIES: usize = 64;

impl CpuTime {
    pub(crate) const fn new() -> CpuTime {
        CpuTime {
            used: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// For the next thread.
    #[inline(always)]
    pub(super) fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    /// From now on the run is measured; the kernel thread's clock shows `now`.
    pub(crate) fn begin(&self, now: u64) {
        // Release: the kernel thread that runs the thread; partner: Acquire in `read`.
        self.since.store(now.max(1), Ordering::Release);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// The run is over.
    pub(crate) fn end(&self, clock: impl FnOnce() -> u64) {
        let since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            return;
        }
        self.since.store(BUSY, Ordering::Relaxed);
        // SeqCst: partner: the fence in `read`.
        fence(Ordering::SeqCst);
        let run = clock().saturating_sub(since);
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used + run, Ordering::Relaxed);
        // Release: `used`; partner: Acquire in `read`.
        self.since.store(0, Ordering::Release);
    }

    /// The time used so far. `clock` reads the clock of the kernel thread that runs the thread.
    pub(crate) fn read(&self, clock: impl Fn() -> u64) -> u64 {
        for _ in 0..TRIES {
            // Acquire: partners: Release in `begin` and `end`.
            let since = self.since.load(Ordering::Acquire);
            let used = self.used.load(Ordering::Relaxed);
            if since == 0 {
                return used;
            }
            if since == BUSY {
                continue;
            }
            let now = clock();
            // SeqCst: partner: the fence in `end`.
            fence(Ordering::SeqCst);
            if self.since.load(Ordering::Acquire) == since {
                return used + now.saturating_sub(since);
            }
        }
        self.used.load(Ordering::Relaxed)
    }
}
