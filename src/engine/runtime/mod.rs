//! The parts that run the threads of a runtime: a cluster of processors, or kernel threads, one for
//! each.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | either of the two; the default one, started when it is first needed |
//! | `options`, `choice` | what a builder or the environment sets; a policy by name |
//! | `start`, `green`, `kernel` | starting a backend; further work for a cluster; counting kernel threads |
//! | `life` | the beginning and end of a green thread: the parts that the thread itself runs |
//! | `packet`, `scope` | a closure and its result; threads that end before the data they borrow |
//! | `spawn`, `pthread` | starting a thread; kernel threads, by std's means or libc's |
//! | `handle/` | a thread's shared data: its name, its number, its token, its end |
//! | `metrics`, `histogram` | figures: counts since the start, and the present state; times |
//! | `runtimes` | every runtime of the process |
//! | `unobserved` | the stand-in for `observe::start` |

mod choice;
#[cfg_attr(not(green), path = "../../elsewhere/runtime_green.rs")]
mod green;
pub(crate) mod handle;
mod histogram;
mod kernel;
#[cfg_attr(not(green), path = "../../elsewhere/life.rs")]
mod life;
mod metrics;
pub(crate) mod options;
pub(crate) mod packet;
#[cfg_attr(not(green), path = "../../elsewhere/pthread.rs")]
mod pthread;
pub(crate) mod runtimes;
pub(crate) mod scope;
mod spawn;
mod start;
#[cfg(not(feature = "observe"))]
mod unobserved;

use std::io;
use std::sync::{Mutex, OnceLock};

pub(crate) use self::choice::Choice;
#[cfg(green)]
pub(crate) use self::histogram::{BUCKETS, bucket};
pub use self::histogram::{Bucket, Histogram};
pub(crate) use self::kernel::KernelBackend;
pub use self::metrics::{BlockedCall, BlockedPlace, Metrics, ProcessorMetrics, QueueWait};
pub(crate) use self::metrics::{FIGURES, Figure, Value};
pub(crate) use self::options::{Knobs, check_stack_size};
pub(crate) use self::spawn::Wishes;
use crate::engine::atomic::Ordering;
use crate::engine::sched::{self, Cluster, current, resize};

/// The kind of threads that a runtime runs.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Mode, Runtime};
///
/// match Runtime::global().mode() {
///     Mode::Green => println!("a million threads are fine"),
///     _ => println!("a few thousand threads are fine"),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Green threads: many of them share a kernel thread.
    Green,
    /// Kernel threads: one for each thread. The API and the results are the same, and each thread
    /// costs more. This is the only mode on systems where thread-locals cannot be isolated (other
    /// architectures, operating systems and C libraries). `GREENTHREAD_MODE=kernel` asks for it.
    Kernel,
}

/// How the green threads of a runtime wait for sockets, pipes and files.
///
/// The results are the same with each. Kernel threads, and all threads in [`Mode::Kernel`], wait in
/// the kernel themselves.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Driver, Runtime};
///
/// let runtime = Runtime::builder().driver(Driver::IoUring).build()?;
/// let read = runtime.spawn(|| greenthread::fs::read("Cargo.toml"));
/// assert!(read.join().unwrap()?.starts_with(b"[package]"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Driver {
    /// A call is tried first; if it would block, epoll says when to try again. A runtime that is
    /// built with this driver makes no use of io_uring at all: a call that waits for a disk blocks
    /// its kernel thread, and the sends of several threads are not submitted together.
    Epoll,
    /// A call that would block becomes an operation of io_uring. Where the kernel has no io_uring,
    /// or forbids it, or where the crate lacks its feature `io-uring`, this is the same as
    /// [`Driver::Epoll`].
    IoUring,
}

/// What the process does when it finds that every thread waits for another, and that nothing outside can wake one.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Builder, OnDeadlock};
///
/// # if !cfg!(feature = "observe") { return Ok(()) }
/// let runtime = Builder::new().on_deadlock(OnDeadlock::Abort).build()?;
/// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnDeadlock {
    /// It says so, once, with a dump of all threads, and goes on.
    Report,
    /// It says so, and aborts.
    Abort,
    /// Nothing: it does not look for deadlocks.
    Ignore,
}

/// The part of a runtime that runs its threads. Neither kind is ever freed.
#[derive(Clone, Copy)]
pub(crate) enum Backend {
    Green(&'static Cluster),
    Kernel(&'static KernelBackend),
}

/// The default runtime's backend.
static GLOBAL: OnceLock<Backend> = OnceLock::new();

impl Backend {
    /// Returns the default runtime's backend, and starts it on its first use.
    pub(crate) fn global() -> io::Result<Backend> {
        static STARTING: Mutex<()> = Mutex::new(());
        if sched::fork::is_child() {
            return Ok(Backend::Kernel(KernelBackend::of_forked_child()));
        }
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

    /// Returns the backend of a thread that is spawned here: its spawner's, or the default
    /// runtime's.
    #[inline]
    pub(crate) fn here() -> io::Result<Backend> {
        match current::green().filter(|_| !sched::fork::is_child()) {
            Some(green) => Ok(Backend::Green(green.cluster())),
            None => Backend::global(),
        }
    }

    /// Returns this backend, or in a forked child the one that replaces it.
    pub(crate) fn or_child(self) -> Backend {
        match sched::fork::is_child() {
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

    /// Changes the number of threads that can run at once. One thread at a time may call it.
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

    /// Returns the number of threads that can run at once on the caller's runtime, or else on the
    /// default one, which need not have been started.
    pub(crate) fn parallelism_here() -> io::Result<usize> {
        if let Some(green) = current::green() {
            return Ok(green.cluster().active());
        }
        match GLOBAL.get() {
            Some(backend) => Ok(backend.processors()),
            None => Ok(Knobs::default()
                .processors()?
                .unwrap_or_else(resize::default_size)),
        }
    }

    /// Returns how the backend's green threads wait for descriptors.
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

    /// Returns the signal that preempts its threads, if these are green.
    #[cfg(green)]
    pub(crate) fn preemption_signal(self) -> Option<i32> {
        match self {
            Backend::Green(cluster) => Some(cluster.config.signal),
            Backend::Kernel(_) => None,
        }
    }

    /// Returns how many processors sleep, and how many search.
    pub(crate) fn idle(self) -> (usize, usize) {
        match self {
            Backend::Green(cluster) => green::idle_of(cluster),
            Backend::Kernel(_) => (0, 0),
        }
    }

    /// Returns whether the backend was closed.
    pub(crate) fn is_closed(self) -> bool {
        match self {
            Backend::Green(cluster) => green::is_closed(cluster),
            Backend::Kernel(backend) => backend.is_closed(),
        }
    }

    /// Returns whether the current thread is one of the backend's threads.
    pub(crate) fn runs_this_thread(self) -> bool {
        match self {
            Backend::Green(cluster) => {
                current::green().is_some_and(|green| core::ptr::eq(green.cluster(), cluster))
            }
            Backend::Kernel(backend) => backend.owns_this_thread(),
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
