//! The deadline that some sleeper of a cluster watches: a machine without a processor, or the monitor.
//!
//! A sleeper watches the earliest deadline unless another one watches one as early. So while everybody
//! sleeps, somebody watches the earliest: of two sleepers, one that has set a timer and then goes to sleep,
//! and one that wakes up and then looks at the timers again, either the first finds that nobody watches, or
//! the second sees the timer.

use crate::engine::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    const_fn, fence,
};
use crate::engine::sys::clock::NEVER;

pub(crate) struct Watched(AtomicU64);

impl Watched {
    const_fn! {
        /// Nobody watches.
        pub(crate) const fn new() -> Watched {
            Watched(AtomicU64::new(NEVER))
        }
    }

    /// The caller, who is about to sleep, watches `earliest`, unless another sleeper watches a deadline as
    /// early (`None`).
    pub(crate) fn watch(&self, earliest: u64) -> Option<u64> {
        // SeqCst: a timer was set before; partner: the fence in `watch_no_more`. So one of two that watch in
        // turn sees the earlier deadline.
        fence(SeqCst);
        let watched = self.0.fetch_min(earliest, Relaxed);
        (earliest < watched).then_some(earliest)
    }

    /// The caller, who watched, is awake.
    pub(crate) fn watch_no_more(&self) {
        self.0.store(NEVER, Relaxed);
        // SeqCst: the caller's next look at the timers comes after it; partner: the fence in `watch`.
        fence(SeqCst);
    }
}
