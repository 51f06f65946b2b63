//! The stand-in for `sys`: it asks the system by way of std.

#[path = "../../sys/atomic_static.rs"]
pub(crate) mod atomic_static;
pub(crate) mod clock;
pub(crate) mod futex;
#[path = "../../sys/lock.rs"]
pub(crate) mod lock;
pub(crate) mod perturb;
#[path = "../../sys/table.rs"]
pub(crate) mod table;

/// A flat machine: all processors are equally near.
pub(crate) mod topology {
    pub(crate) const RINGS: usize = 4;
}

pub(crate) mod kernel_thread {
    /// Registers no barrier: the runtime preempts no thread, so none is needed.
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}
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
