//! The stand-in for `sched`: a cluster that no code can make.

#[path = "../../sched/announce.rs"]
pub(crate) mod announce;
pub(crate) mod enter;
pub(crate) mod handed {
    pub(crate) use super::ready as ready_from_anywhere;
}
#[path = "../../sched/hooked.rs"]
pub(crate) mod hooked;
#[path = "../../sched/park.rs"]
pub(crate) mod park;

pub(crate) use self::enter::enter;
use core::convert::Infallible;
use std::io;

use crate::engine::green::Green;

pub(crate) struct Cluster {
    pub(crate) config: Config,
    never: Infallible,
}

pub(crate) struct Config {
    pub(crate) max_kernel_threads: usize,
}

impl Cluster {
    pub(crate) fn never(&self) -> ! {
        match self.never {}
    }

    pub(crate) fn active(&self) -> usize {
        self.never()
    }

    pub(crate) fn wish(&self, _: usize) -> io::Result<()> {
        self.never()
    }

    pub(crate) fn close(&self) {
        self.never()
    }
}

/// A policy's preference; no policy is asked here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ideas {
    pub(crate) spinning: bool,
    pub(crate) hand_off: bool,
    pub(crate) preemption: bool,
}

impl Ideas {
    pub(crate) const ALL: Ideas = Ideas {
        spinning: true,
        hand_off: true,
        preemption: true,
    };
}

pub(crate) fn ready(green: &'static Green) {
    match green.never {}
}

pub(crate) mod timers {
    use super::Green;

    pub(crate) fn disarm(green: &'static Green) {
        match green.never {}
    }
}

/// Threads that are locked to a kernel thread: here every thread is a kernel thread.
pub(crate) mod locked {
    pub(crate) fn lock() {}
    pub(crate) fn unlock() {}
}

pub(crate) mod helper {
    use std::io;

    use crate::engine::inspect::kernel::KernelThread;

    pub(crate) const OBSERVER_STACK: usize = 2 << 20;

    pub(crate) fn spawn(
        name: &str,
        stack_size: usize,
        work: Box<dyn FnOnce() + Send>,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        let started = builder.stack_size(stack_size).spawn(move || {
            KernelThread::begin_helper();
            work();
            KernelThread::end();
        });
        started.map(drop)
    }
}

pub(crate) mod machine {
    /// The largest number of kernel threads that a builder accepts, here as elsewhere.
    pub(crate) const MAX: usize = 1 << 16;
}

pub(crate) mod resize {
    use std::io;

    /// The largest number of processors that a builder accepts, here as elsewhere.
    pub(crate) const MAX: usize = 4096;

    pub(crate) fn default_size() -> usize {
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX))
    }

    pub(crate) fn check(processors: usize, _: Option<usize>) -> io::Result<()> {
        match processors {
            1..=MAX => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{processors} processors: accepted are 1 to {MAX}"),
            )),
        }
    }
}

pub(crate) mod fork {
    /// Whether this is a forked child. Here std's threads do not work in a forked child.
    pub(crate) fn is_child() -> bool {
        false
    }

    pub(crate) fn register() {}
}
