//! The ideas of work stealing that can be switched off, each by itself.

use super::WorkStealing;
use crate::engine::policy::tuning::GLOBAL_INTERVAL;

/// The ideas that are switched on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) stealing: bool,
    pub(super) next_slot: bool,
    pub(super) last_in_first_out: bool,
    pub(super) global_interval: u32,
}

impl Options {
    pub(super) const fn new() -> Options {
        Options {
            stealing: true,
            next_slot: true,
            last_in_first_out: false,
            global_interval: GLOBAL_INTERVAL,
        }
    }
}

impl WorkStealing {
    /// Sets whether processors without work take threads from others. Default: yes.
    ///
    /// Without stealing they get only threads from the global queue: those spawned from outside,
    /// preempted ones, and the overflow of other processors. All others stay on their processor, those
    /// that yield too.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().stealing(false)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn stealing(mut self, on: bool) -> WorkStealing {
        self.options.stealing = on;
        self
    }

    /// Sets whether a thread that the running one has just spawned or woken runs next. Default:
    /// yes.
    ///
    /// Without the slot the thread goes to the end of the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().next_slot(false)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn next_slot(mut self, on: bool) -> WorkStealing {
        self.options.next_slot = on;
        self
    }

    /// Sets whether the local queues are last in, first out. Default: no.
    ///
    /// Such queues run threads whose data is more likely to be in the caches. But as long as other
    /// threads ready each other, those at the bottom wait until a thief takes them. The older half
    /// of the threads is where thieves find it, and runs first in, first out.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().last_in_first_out(true)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn last_in_first_out(mut self, on: bool) -> WorkStealing {
        self.options.last_in_first_out = on;
        self
    }

    /// Sets how often the global queue comes first: at every `picks`th pick of a processor.
    /// Default: 61. Beside threads that only yield, fresh threads of the global queue do not wait
    /// for so long.
    ///
    /// With 0 it never comes first, and the threads in it wait until a processor has nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::WorkStealing, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().policy(WorkStealing::new().global_interval(16)).build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn global_interval(mut self, picks: u32) -> WorkStealing {
        self.options.global_interval = picks;
        self
    }
}
