//! The CPU time of one thread, as far as it is measured: from the first question for it on (`sched::cpu_time`).
//!
//! One word. While the thread does not run it is the time used so far, in nanoseconds; while it runs, the distance from
//! there to the clock of its kernel thread, so that the clock and the word together are the time at any moment. The kernel
//! thread that runs the thread writes it, at the switches; any thread reads it:
//!
//! | the end of a run | a reader |
//! |---|---|
//! | word += `ENDING`, fence, reads its clock | reads the word, and that clock |
//! | word = the time (Release) | fence, reads the word (Acquire) again: the same, or it looks again |
//!
//! Both read the same clock, which never goes backwards. So a reader whose second look finds no end has read it before the
//! end did, and what is read never goes backwards either. A reader that finds the end under way gives way a few times:
//! it may be a handler that has interrupted that end.

use crate::engine::atomic::{AtomicU64, Ordering, fence};
use crate::engine::sys::kernel_thread;

pub(crate) struct CpuTime(AtomicU64);

const RUNNING: u64 = 1 << 63;
const ENDING: u64 = 1 << 62;
/// The bits of a time, or of a distance.
const TIME: u64 = ENDING - 1;
/// How often a reader gives way to an end.
const PATIENCE: usize = 64;

impl CpuTime {
    pub(crate) const fn new() -> CpuTime {
        CpuTime(AtomicU64::new(0))
    }

    /// For the next thread.
    #[inline(always)]
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// From now on the run is measured; the kernel thread's clock shows `now`.
    pub(crate) fn begin(&self, now: u64) {
        let used = self.0.load(Ordering::Relaxed);
        let distance = used.wrapping_sub(now) & TIME;
        // Release: the kernel thread that runs the thread; partner: Acquire in `read`.
        self.0.store(RUNNING | distance, Ordering::Release);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RUNNING != 0
    }

    /// The run is over.
    pub(crate) fn end(&self, clock: impl FnOnce() -> u64) {
        let word = self.0.load(Ordering::Relaxed);
        if word & RUNNING == 0 {
            return;
        }
        self.0.store(word | ENDING, Ordering::Relaxed);
        // SeqCst: partner: the fence in `read`.
        fence(Ordering::SeqCst);
        let used = word.wrapping_add(clock()) & TIME;
        // Release: as in `begin`: the clock was read before.
        self.0.store(used, Ordering::Release);
    }

    /// The time used so far. `clock` reads the clock of the kernel thread that runs the thread.
    pub(crate) fn read(&self, clock: impl Fn() -> u64) -> u64 {
        let mut patience = PATIENCE;
        loop {
            // Acquire: partners: Release in `begin` and `end`.
            let word = self.0.load(Ordering::Acquire);
            if word & RUNNING == 0 {
                return word;
            }
            if word & ENDING != 0 && patience != 0 {
                patience -= 1;
                kernel_thread::give_way();
                continue;
            }
            let now = clock();
            // SeqCst: partner: the fence in `end`.
            fence(Ordering::SeqCst);
            if self.0.load(Ordering::Acquire) == word {
                return word.wrapping_add(now) & TIME;
            }
        }
    }
}
