//! Stands in for `sys`: what the system is asked for, by way of std.

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
    /// Nobody is preempted by us, so nobody needs one.
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}
}

/// How long somebody has looked at a word that another kernel thread is about to change.
pub(crate) struct Patience(());

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(())
    }

    pub(crate) fn pause(&mut self) {
        std::thread::yield_now();
    }
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    eprintln!("greenthread: internal invariant broken: {message}");
    std::process::abort()
}
