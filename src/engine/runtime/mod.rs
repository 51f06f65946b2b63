//! The parts that run the threads of a runtime: a cluster of processors, or kernel threads, one for
//! each.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | either of the two; the default one, started when it is first needed; all of the process |
//! | `options` | what a builder or the environment sets; a policy by name |
//! | `start`, `green` | starting a backend; further work for a cluster |
//! | `spawn` | a closure and its result, and who still needs their memory; the life of a green thread |
//! | `kernel` | kernel-thread mode; kernel threads, by std's means or libc's |
//! | `handle` | a thread's shared data: its name, its number, its token, its end |
//! | `scope` | threads that end before the data they borrow |
//! | `pthread` | green threads that C makes, and knows by their control blocks |
//! | `panic_hook` | std's panic message, with the name of the green thread |
//! | `metrics` | figures: counts since the start, and the present state; times |

#[cfg_attr(not(green), path = "../../elsewhere/runtime_green.rs")]
mod green;
pub(crate) mod handle;
mod kernel;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod panic_hook;
#[cfg(hooks)]
pub(crate) mod pthread;
pub(crate) mod scope;
pub(crate) mod spawn;
mod start;

use std::io;
use std::panic::Location;
use std::sync::{Mutex, OnceLock, PoisonError};

use self::kernel::KernelBackend;
use self::metrics::Metrics;
use self::options::{Driver, Mode, RuntimeOptions};
use crate::engine::atomic::Ordering;
use crate::engine::sched::{Cluster, current, size};

/// The part of a runtime that runs its threads. Neither kind is ever freed.
#[derive(Clone, Copy)]
pub(crate) enum Backend {
    Green(&'static Cluster),
    Kernel(&'static KernelBackend),
}

/// The default runtime's backend.
static GLOBAL: OnceLock<Backend> = OnceLock::new();

/// The default runtime is this one.
#[cfg(sim)]
fn adopt_global(backend: Backend) {
    GLOBAL.get_or_init(|| backend);
}

/// A runtime that has started.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// Runtimes are numbered from 0, in the order of their starts.
    pub(crate) number: usize,
    pub(crate) backend: Backend,
    /// The name of its policy, of which kernel threads need none.
    pub(crate) policy: &'static str,
}

/// Every runtime of the process, except those of a forked child.
static ALL: Mutex<Vec<Running>> = Mutex::new(Vec::new());

impl Backend {
    /// Returns the default runtime's backend, and starts it on its first use.
    pub(crate) fn global() -> io::Result<Backend> {
        static STARTING: Mutex<()> = Mutex::new(());
        if current::is_forked_child() {
            return Ok(Backend::Kernel(KernelBackend::of_forked_child()));
        }
        if let Some(backend) = GLOBAL.get() {
            return Ok(*backend);
        }
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = GLOBAL.get() {
            return Ok(*backend);
        }
        let backend = RuntimeOptions::default().start()?;
        Ok(*GLOBAL.get_or_init(|| backend))
    }

    /// Returns the runtimes that have not been shut down.
    pub(crate) fn all() -> Vec<Running> {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter().filter(|running| !running.backend.is_closed());
        open.copied().collect()
    }

    /// Notes that the backend has started.
    fn add(self, policy: &'static str) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, backend) = (all.len(), self);
        all.push(Running {
            number,
            backend,
            policy,
        });
    }

    /// Returns this backend, or in a forked child the one that replaces it.
    pub(crate) fn or_child(self) -> Backend {
        match current::is_forked_child() {
            true => Backend::Kernel(KernelBackend::of_forked_child()),
            false => self,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self.or_child() {
            Backend::Green(_) => Mode::Green,
            Backend::Kernel(_) => Mode::Kernel,
        }
    }

    /// Returns the number of threads that can run at once.
    pub(crate) fn processors(self) -> usize {
        match self.or_child() {
            Backend::Green(cluster) => cluster.active(),
            Backend::Kernel(backend) => backend.processors.load(Ordering::Relaxed),
        }
    }

    /// Changes the number of threads that can run at once.
    pub(crate) fn set_processors(self, count: usize) -> io::Result<()> {
        match self.or_child() {
            Backend::Green(cluster) => cluster.set_size(count),
            Backend::Kernel(backend) => {
                size::check_size(count, None)?;
                backend.processors.store(count, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Returns the number of threads that can run at once on the caller's runtime, or else on the
    /// default one, which need not have been started.
    pub(crate) fn parallelism_here() -> io::Result<usize> {
        if let Some(green) = current::green() {
            return Ok(green.cluster().active());
        }
        if let Some(backend) = GLOBAL.get() {
            return Ok(backend.processors());
        }
        let asked = RuntimeOptions::default().processors()?;
        Ok(asked.unwrap_or_else(size::default_size))
    }

    pub(crate) fn green(self) -> Option<&'static Cluster> {
        match self {
            Backend::Green(cluster) => Some(cluster),
            Backend::Kernel(_) => None,
        }
    }

    /// Returns how the backend's green threads wait for descriptors.
    pub(crate) fn driver(self) -> Option<Driver> {
        self.green().map(Cluster::driver)
    }

    pub(crate) fn metrics(self) -> Metrics {
        match self {
            Backend::Green(cluster) => cluster.metrics(),
            Backend::Kernel(backend) => backend.metrics(),
        }
    }

    /// Returns the signal that preempts its threads, if these are green.
    #[cfg(green)]
    pub(crate) fn preemption_signal(self) -> Option<i32> {
        self.green().map(|cluster| cluster.config.signal)
    }

    /// Returns how many processors sleep, and how many search.
    pub(crate) fn idle(self) -> (usize, usize) {
        self.green().map_or((0, 0), Cluster::idle_counts)
    }

    /// Returns whether the backend was closed.
    pub(crate) fn is_closed(self) -> bool {
        match self {
            Backend::Green(cluster) => cluster.is_closed(),
            Backend::Kernel(backend) => backend.is_closed(),
        }
    }

    /// Returns whether the current thread is one of the backend's threads.
    pub(crate) fn runs_this_thread(self) -> bool {
        match self {
            Backend::Green(cluster) => {
                current::green().is_some_and(|green| core::ptr::eq(green.cluster(), cluster))
            }
            Backend::Kernel(backend) => kernel::OWNER
                .get()
                .is_some_and(|owner| core::ptr::eq(owner, backend)),
        }
    }

    /// Cancels the backend's threads, and those that it starts from now on.
    pub(crate) fn cancel_all(self, at: &'static Location<'static>) {
        match self.or_child() {
            Backend::Green(cluster) => cluster.cancel_all(at),
            Backend::Kernel(backend) => backend.token.cancel(at),
        }
    }

    /// Waits until the backend's threads have ended, and ends its kernel threads. None of its
    /// threads may call it.
    pub(crate) fn close(self) {
        match self.or_child() {
            Backend::Green(cluster) => cluster.close(),
            Backend::Kernel(backend) => backend.close(),
        }
    }
}
