//! The stand-in for `sys`: it asks the system by way of std.

#[path = "../../sys/atomic_static.rs"]
pub(crate) mod atomic_static;
#[path = "../../sys/backoff.rs"]
pub(crate) mod backoff;
pub(crate) mod clock;
#[path = "../../sys/fence.rs"]
pub(crate) mod fence;
pub(crate) mod futex;
#[path = "../../sys/lock.rs"]
pub(crate) mod lock;
pub(crate) mod perturb;
pub(crate) mod sanitizer;
#[path = "../../sys/table.rs"]
pub(crate) mod table;
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

    pub(crate) const NAME: usize = 16;

    /// Returns no name: only the system knows it.
    pub(crate) fn own_name(_: &mut [u8; NAME]) -> &str {
        ""
    }
}

/// The patience of a thread that looks at a word that another kernel thread is about to change.
pub(crate) struct Patience(());

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(())
    }

    pub(crate) fn pause(&mut self) {
        std::thread::yield_now();
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
