//! Stands in for the library's `sys`: its lock, its stack of records and its table, and a futex in virtual time.

pub(crate) mod shared {
    use core::{
        cell::{Cell, UnsafeCell},
        marker::PhantomData,
        mem::ManuallyDrop,
        ops::{Deref, DerefMut},
        ptr,
    };
    use std::sync::{Mutex, PoisonError};

    pub(crate) use super::pauses::{Backoff, Patience};
    use super::{die, futex, perturb};
    use crate::engine::atomic::{
        AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence, const_fn,
    };

    include!(concat!(env!("OUT_DIR"), "/shared.rs"));
}

/// The packages of the simulated machine; each is one complex of cores, and one node.
pub(crate) mod topology {
    use crate::virtual_time::are_apart;

    pub(crate) const RINGS: usize = 4;

    pub(crate) struct Topology;

    pub(crate) fn machine() -> Option<Topology> {
        are_apart(0, 0).map(|_| Topology)
    }

    impl Topology {
        pub(crate) fn ring(&self, from: usize, to: usize) -> usize {
            // A processor that nobody has run yet is nowhere.
            let is_somewhere = from != usize::MAX && to != usize::MAX;
            match is_somewhere && are_apart(from, to) == Some(false) {
                true => 0,
                false => RINGS - 1,
            }
        }
    }
}

pub(crate) mod clock {
    pub(crate) const NEVER: u64 = u64::MAX;

    pub(crate) fn now() -> u64 {
        crate::virtual_time::ticks()
    }

    /// Once a millisecond; nobody reads it here.
    pub(crate) fn note(_: u64) {}
}

/// Nobody is resized while a simulation runs, so there is nobody to be seen by.
pub(crate) mod kernel_thread {
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}

    pub(crate) fn has_children() -> bool {
        false
    }

    pub(crate) fn give_way() {
        crate::virtual_time::system_call();
    }
}

/// As the library's, in virtual time.
pub(crate) mod pauses {
    /// Waiting for another's next few instructions: it always runs.
    pub(crate) struct Patience(());

    impl Patience {
        pub(crate) fn new() -> Patience {
            Patience(())
        }

        pub(crate) fn pause(&mut self) {
            crate::virtual_time::pause();
        }
    }

    pub(crate) struct Backoff(u32);

    impl Backoff {
        pub(crate) const WHILE_IT_RUNS: Backoff = Backoff(8);

        pub(crate) fn pause(&mut self) -> bool {
            if self.0 > 64 {
                return false;
            }
            crate::virtual_time::pause_for(self.0);
            self.0 *= 2;
            true
        }
    }
}

/// Nobody is perturbed: all is in virtual time.
pub(crate) mod perturb {
    pub(crate) fn point(_: &str) {}
}

pub(crate) fn die(message: &str) -> ! {
    panic!("{message}");
}

pub(crate) mod futex {
    use crate::atomic::AtomicU32;
    use crate::virtual_time;

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _deadline: Option<u64>) {
        let address = core::ptr::from_ref(word).addr();
        virtual_time::futex_wait(address, || {
            word.load(crate::atomic::Ordering::Relaxed) == expected
        });
    }

    pub(crate) fn wake(word: *const AtomicU32, count: u32) {
        virtual_time::futex_wake(word.addr(), count);
    }
}
