//! The stand-in for `sched`: a cluster and a record that no code can make.

pub(crate) mod current;
pub(crate) mod deferred {
    pub(crate) use super::ready as ready_from_anywhere;
}
#[path = "../../sched/hooked.rs"]
pub(crate) mod hooked;
#[path = "../../sched/identity.rs"]
pub(crate) mod identity;
#[allow(dead_code, reason = "records of the scheduler are in stacks")]
#[path = "../../sched/list.rs"]
pub(crate) mod list;
#[path = "../../sched/park.rs"]
pub(crate) mod park;
/// For tests of policies, which do without records in kernel-thread mode.
#[cfg(test)]
pub(crate) mod records {
    pub(crate) fn create() -> std::io::Result<&'static super::Green> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
mod thread;

pub(crate) use self::current::enter;
pub(crate) use self::identity::Identity;
pub(crate) use self::thread::Green;
use core::convert::Infallible;
use std::io;

pub(crate) mod switch {
    /// The action that a green thread would ask of the run loop.
    #[derive(Clone, Copy)]
    pub(crate) enum Action {
        Yield,
        Park,
        HandOver,
    }
}

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

pub(crate) mod spawner {
    use std::io;

    use crate::engine::inspect::kernel::KernelThread;

    pub(crate) const OBSERVER_STACK: usize = 2 << 20;

    pub(crate) fn spawn_helper(
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

pub(crate) mod worker {
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
