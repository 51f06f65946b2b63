//! What runs the threads of a runtime: a cluster of processors, or kernel threads, one each.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | either of the two; the default one, started when it is first needed |
//! | `start`, `config`, `choice` | starting one: knobs, the environment, a policy by name |
//! | `green`, `kernel` | what a cluster needs beyond the knobs; counting kernel threads |
//! | `life` | a green thread's beginning and end, as far as it runs them itself |
//! | `packet`, `scope` | a closure and its result; threads that end before what they borrow |
//! | `spawn`, `bare` | starting a thread; kernel threads without std, for a forked child |
//! | `metrics` | what it has done so far |

#[cfg_attr(not(green), path = "../elsewhere/bare.rs")]
mod bare;
mod choice;
pub(crate) mod config;
#[cfg_attr(not(green), path = "../elsewhere/backend_green.rs")]
mod green;
mod kernel;
#[cfg_attr(not(green), path = "../elsewhere/life.rs")]
mod life;
mod metrics;
pub(crate) mod packet;
pub(crate) mod scope;
mod spawn;
mod start;

use std::io;
use std::sync::{Mutex, OnceLock};

pub(crate) use self::choice::Choice;
pub(crate) use self::kernel::KernelBackend;
pub use self::metrics::{Metrics, ProcessorMetrics};
pub(crate) use self::spawn::{Job, Kernel, Wishes};
pub(crate) use self::start::Knobs;
use crate::engine::atomic::Ordering;
use crate::engine::green::current;
use crate::engine::sched::{self, Cluster, resize};

/// How a runtime's threads are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// As green threads: many on each kernel thread.
    Green,
    /// As kernel threads, one each. Same API, same results, heavier. It is what remains where
    /// thread-locals cannot be isolated (other processors, systems or C libraries), and what
    /// `GREENTHREAD_MODE=kernel` asks for.
    Kernel,
}

/// How the green threads of a runtime wait for sockets, pipes and files.
///
/// The results are the same. Kernel threads, and all threads in [`Mode::Kernel`], wait in the kernel
/// themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Driver {
    /// Calls are tried first, and epoll says when to try again. Asked for by name, it also means
    /// that io_uring is not used at all: what waits for a disk is a call that blocks, and sends of
    /// several threads do not go together.
    Epoll,
    /// What would block is an operation of io_uring. Where the kernel has no io_uring, or forbids
    /// it, this is the same as [`Driver::Epoll`].
    IoUring,
}

/// What runs the threads of a runtime. Neither is ever freed.
#[derive(Clone, Copy)]
pub(crate) enum Backend {
    Green(&'static Cluster),
    Kernel(&'static KernelBackend),
}

/// The default runtime's.
static GLOBAL: OnceLock<Backend> = OnceLock::new();

impl Backend {
    /// The default runtime's; started now if nothing has needed it yet.
    pub(crate) fn global() -> io::Result<Backend> {
        static STARTING: Mutex<()> = Mutex::new(());
        if let Some(backend) = GLOBAL.get() {
            return Ok(*backend);
        }
        let _starting = STARTING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(backend) = GLOBAL.get() {
            return Ok(*backend);
        }
        let backend = Knobs::default().start()?;
        Ok(*GLOBAL.get_or_init(|| backend))
    }

    /// Where a thread that is spawned here runs: with its spawner, or on the default runtime.
    pub(crate) fn here() -> io::Result<Backend> {
        if sched::fork::is_child() {
            return Ok(Backend::Kernel(KernelBackend::of_forked_child()));
        }
        match current::green() {
            Some(green) => Ok(Backend::Green(green.cluster())),
            None => Backend::global(),
        }
    }

    /// This one; in a forked child, what is there instead.
    pub(crate) fn or_child(self) -> Backend {
        match sched::fork::is_child() {
            true => Backend::Kernel(KernelBackend::of_forked_child()),
            false => self,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Backend::Green(_) => Mode::Green,
            Backend::Kernel(_) => Mode::Kernel,
        }
    }

    /// How many of its threads run at once.
    pub(crate) fn processors(self) -> usize {
        match self.or_child() {
            Backend::Green(cluster) => cluster.active(),
            Backend::Kernel(backend) => backend.processors.load(Ordering::Relaxed),
        }
    }

    /// Changes that. One thread at a time may ask for it.
    pub(crate) fn set_processors(self, count: usize) -> io::Result<()> {
        match self.or_child() {
            Backend::Green(cluster) => {
                resize::check(count, Some(cluster.config.max_kernel_threads))?;
                cluster.wish(count)
            }
            Backend::Kernel(backend) => {
                resize::check(count, None)?;
                backend.processors.store(count, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// How many threads run at once where the caller is: on its own runtime, or on the default one,
    /// which need not have been started.
    pub(crate) fn parallelism_here() -> io::Result<usize> {
        if let Some(green) = current::green() {
            return Ok(green.cluster().active());
        }
        match GLOBAL.get() {
            Some(backend) => Ok(backend.processors()),
            None => Ok(config::processors()?.unwrap_or_else(resize::default_size)),
        }
    }

    /// How its green threads wait for descriptors.
    pub(crate) fn driver(self) -> Option<Driver> {
        match self {
            Backend::Green(cluster) => Some(green::driver_of(cluster)),
            Backend::Kernel(_) => None,
        }
    }

    pub(crate) fn metrics(self) -> Metrics {
        match self {
            Backend::Green(cluster) => green::metrics_of(cluster),
            Backend::Kernel(backend) => Metrics::of_kernel_threads(backend),
        }
    }

    /// Whether the calling thread is one of its own.
    pub(crate) fn runs_this_thread(self) -> bool {
        match self {
            Backend::Green(cluster) => {
                current::green().is_some_and(|green| core::ptr::eq(green.cluster(), cluster))
            }
            Backend::Kernel(backend) => backend.owns_this_thread(),
        }
    }

    /// Waits until its threads have ended, and ends its kernel threads. Not called by one of its own.
    pub(crate) fn close(self) {
        match self {
            Backend::Green(cluster) => cluster.close(),
            Backend::Kernel(backend) => backend.close(),
        }
    }
}
