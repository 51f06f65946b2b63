//! The stand-in for `sys`: it asks the system by way of std.

#[path = "../../sys/backoff.rs"]
pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod futex;
#[path = "../../sys/lock.rs"]
pub(crate) mod lock;
pub(crate) mod perturb;
pub(crate) mod sanitizer;
#[path = "../../sys/statics.rs"]
pub(crate) mod statics;
pub(crate) mod variable;

/// Words of the program's memory are not read: no handler would end a fault.
pub(crate) mod word {
    pub(crate) fn read(_: usize) -> Option<usize> {
        None
    }
}

/// A flat machine: all processors are equally near.
pub(crate) mod topology {
    pub(crate) const RINGS: usize = 4;
}

pub(crate) mod kernel_thread {
    /// A number for the calling kernel thread. The system's is not to be had by way of std.
    pub(crate) fn id() -> i32 {
        static NEXT: AtomicI32 = AtomicI32::new(1);
        NEXT.fetch_add(1, Relaxed)
    }

    /// Whether there is a kernel thread with this number; it may have ended.
    pub(crate) fn exists(_: i32) -> bool {
        true
    }

    use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

    /// Registers no barrier: the runtime preempts no thread, so none is needed.
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}

    pub(crate) use std::thread::yield_now as give_way;

    pub(crate) fn rest(nanos: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(nanos));
    }

    pub(crate) const NAME: usize = 16;

    /// Returns no name: only the system knows it.
    pub(crate) fn own_name(_: &mut [u8; NAME]) -> &str {
        ""
    }
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, and going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    eprintln!("greenthread: internal invariant broken: {message}");
    std::process::abort()
}
