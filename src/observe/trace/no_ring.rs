//! The stand-in for `sched::witness`: the events of kernel threads are all that there are.

#[path = "../../sched/witness/common.rs"]
pub(crate) mod common;
#[path = "../../sched/witness/kernel.rs"]
mod kernel;
#[cfg(feature = "tracing")]
#[path = "../../sched/witness/news.rs"]
pub(crate) mod news;
#[path = "../../sched/witness/queue.rs"]
mod queue;
#[path = "../../sched/witness/scale.rs"]
pub(crate) mod scale;
#[path = "../../sched/witness/words.rs"]
pub(crate) mod words;

pub(crate) use self::kernel::{
    kernel_began, kernel_ended, kernel_goes_on, kernel_spawned, kernel_waits,
};
use crate::engine::atomic::{AtomicU32, Ordering};

/// Who observes: bits, and in the upper four the number of the trace.
pub(crate) static ON: AtomicU32 = AtomicU32::new(0);
pub(crate) const TRACE: u32 = 1;

fn observed() -> u32 {
    ON.load(Ordering::Relaxed)
}

/// Times are not measured: the system schedules.
pub(crate) mod measure {
    use crate::engine::atomic::{AtomicBool, Ordering};

    static ON: AtomicBool = AtomicBool::new(false);

    pub(crate) fn switch(on: bool) {
        ON.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_on() -> bool {
        ON.load(Ordering::Relaxed)
    }
}

/// Rings of processors: there are none.
pub(crate) mod ring {
    use core::convert::Infallible;

    pub(crate) struct Ring(Infallible);

    pub(crate) fn rings() -> impl Iterator<Item = &'static Ring> {
        core::iter::empty()
    }

    impl Ring {
        pub(crate) fn cluster(&self) -> usize {
            match self.0 {}
        }

        pub(crate) fn index(&self) -> usize {
            match self.0 {}
        }

        pub(crate) fn running(&self) -> u32 {
            match self.0 {}
        }

        pub(crate) fn head(&self) -> u64 {
            match self.0 {}
        }

        pub(crate) fn copy(&self, _: u64, _: &mut Vec<u64>) -> (u64, u64) {
            match self.0 {}
        }

        pub(crate) fn populate(&self) {}
        pub(crate) fn forget(&self) {}
    }
}
