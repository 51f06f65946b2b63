//! Stands in for the library's `sys`: its lock and its table, and a futex in virtual time.

#[path = "../../../../src/engine/sys/atomic_static.rs"]
pub(crate) mod atomic_static;
#[path = "../../../../src/engine/sys/lock.rs"]
pub(crate) mod lock;
#[path = "../../../../src/engine/sys/table.rs"]
pub(crate) mod table;

/// A flat machine: all processors are equally near.
pub(crate) mod topology {
    pub(crate) const RINGS: usize = 4;
}

pub(crate) mod clock {
    pub(crate) fn now() -> u64 {
        crate::virtual_time::ticks()
    }
}

/// Nobody is resized while a simulation runs, so there is nobody to be seen by.
pub(crate) mod kernel_thread {
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}
}

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
