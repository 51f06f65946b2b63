//! Runtimes: the default one, others beside it, their knobs and their metrics.
//!
//! A [`Runtime`] is a handle to a cluster: processors, a scheduler, a monitor. The default one
//! starts when it is first needed. In [`Mode::Kernel`] a runtime has no cluster: every thread is a
//! kernel thread behind the same API.

mod builder;
mod choice;
mod config;
#[cfg_attr(not(green), path = "../engine/elsewhere/runtime.rs")]
mod green;
mod kernel;
mod metrics;

use std::fmt;
use std::io;
use std::sync::{Mutex, OnceLock};

pub use self::builder::Builder;
pub(crate) use self::kernel::KernelBackend;
pub use self::metrics::{Metrics, ProcessorMetrics};
use crate::engine::atomic::Ordering;
use crate::engine::current;
use crate::engine::sched::{self, Cluster, resize};
use crate::thread::{self, JoinHandle};

/// How a runtime's threads are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
pub enum Driver {
    /// Calls are tried first, and epoll says when to try again. Asked for by name, it also means
    /// that io_uring is not used at all: what waits for a disk is a call that blocks, and sends of
    /// several threads do not go together.
    Epoll,
    /// What would block is an operation of io_uring. Where the kernel has no io_uring, or forbids
    /// it, this is the same as [`Driver::Epoll`].
    IoUring,
}

/// What runs the threads of a runtime.
#[derive(Clone, Copy)]
pub(crate) enum Backend {
    Green(&'static Cluster),
    Kernel(&'static KernelBackend),
}

/// A runtime: threads spawned on it stay on its processors, and so do the threads that they spawn.
///
/// Most programs need only the default one and never name it. Others are made with
/// [`Runtime::builder`]. Dropping a
/// `Runtime` leaves its threads running, and its kernel threads
/// idle when they have ended; [`Runtime::shutdown`] waits for them.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
/// let runtime = Runtime::builder().processors(1).build()?;
/// let sum = runtime.spawn(|| (1..=10).sum::<u32>());
/// assert_eq!(sum.join().unwrap(), 55);
/// runtime.shutdown();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    backend: Backend,
}

/// The default runtime.
static GLOBAL: OnceLock<Runtime> = OnceLock::new();

impl Runtime {
    /// Starts a runtime with the knobs' defaults: see [`Builder`].
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> io::Result<Runtime> {
        Builder::new().build()
    }

    /// A builder for a runtime with other knobs.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The default runtime; started now if nothing has needed it yet.
    ///
    /// # Panics
    /// If it cannot be started, with the reason: a `GREENTHREAD_*` variable with a bad value, or no
    /// kernel thread to be had.
    pub fn global() -> &'static Runtime {
        match Runtime::try_global() {
            Ok(runtime) => runtime,
            Err(error) => panic!("failed to start the runtime: {error}"),
        }
    }

    fn try_global() -> io::Result<&'static Runtime> {
        static STARTING: Mutex<()> = Mutex::new(());
        if let Some(runtime) = GLOBAL.get() {
            return Ok(runtime);
        }
        let _starting = STARTING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(runtime) = GLOBAL.get() {
            return Ok(runtime);
        }
        let runtime = Runtime::new()?;
        Ok(GLOBAL.get_or_init(|| runtime))
    }

    /// Where a thread that is spawned here runs: with its spawner, or on the default runtime.
    pub(crate) fn backend_here() -> io::Result<Backend> {
        if sched::fork::is_child() {
            return Ok(Backend::Kernel(KernelBackend::of_forked_child()));
        }
        match current::green() {
            Some(green) => Ok(Backend::Green(green.cluster())),
            None => Runtime::try_global().map(|runtime| runtime.backend),
        }
    }

    /// What runs this runtime's threads; in a forked child, what is there instead.
    fn backend_or_child(&self) -> Backend {
        match sched::fork::is_child() {
            true => Backend::Kernel(KernelBackend::of_forked_child()),
            false => self.backend,
        }
    }

    /// Starts a thread on this runtime.
    ///
    /// # Panics
    /// If the thread cannot be started, with the reason.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match thread::Builder::new().spawn_on(self.backend_or_child(), f) {
            Ok(handle) => handle,
            Err(error) => panic!("failed to spawn thread: {error}"),
        }
    }

    /// How this runtime runs its threads.
    pub fn mode(&self) -> Mode {
        match self.backend {
            Backend::Green(_) => Mode::Green,
            Backend::Kernel(_) => Mode::Kernel,
        }
    }

    /// How many of its threads run at once. In kernel-thread mode: as many as there are CPUs.
    pub fn processors(&self) -> usize {
        match self.backend_or_child() {
            Backend::Green(cluster) => cluster.active(),
            Backend::Kernel(backend) => backend.processors.load(Ordering::Relaxed),
        }
    }

    /// Changes how many of its threads run at once, while they run: 1 to 4096, and fewer than there
    /// may be kernel threads. From then on the number no longer follows the quota of CPU time.
    ///
    /// When this returns, so many run if so many are ready. If there are to be fewer than before,
    /// threads that run on the others go on until they block, give way, or have used their time
    /// slice up; nobody waits for them here. [`Metrics::processors`] shows those that are left. In
    /// kernel-thread mode the number is only remembered.
    ///
    /// # Errors
    /// `InvalidInput`, naming the number and what is accepted. Otherwise, the policy has panicked in
    /// [`Policy::resize`](crate::engine::policy::Policy::resize), and there are as many as before.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    /// let runtime = Runtime::builder().processors(1).build()?;
    /// let worker = runtime.spawn(|| (1..=20).product::<u64>());
    /// runtime.set_processors(4)?;
    /// assert_eq!(runtime.processors(), 4);
    /// runtime.set_processors(2)?;
    /// assert_eq!(worker.join().unwrap(), 2_432_902_008_176_640_000);
    /// assert!(runtime.set_processors(0).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_processors(&self, count: usize) -> io::Result<()> {
        match self.backend_or_child() {
            Backend::Green(cluster) => {
                resize::check(count, Some(cluster.config.max_kernel_threads))?;
                cluster.wish(count)?;
            }
            Backend::Kernel(backend) => {
                resize::check(count, None)?;
                backend.processors.store(count, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// How many threads run at once where the caller is: on its own runtime, or on the default one,
    /// which need not have been started.
    pub(crate) fn parallelism_here() -> io::Result<usize> {
        if let Some(green) = current::green() {
            return Ok(green.cluster().active());
        }
        match GLOBAL.get() {
            Some(runtime) => Ok(runtime.processors()),
            None => Ok(config::processors()?.unwrap_or_else(resize::default_size)),
        }
    }

    /// How green threads wait for sockets and pipes; `None` if there are none, but kernel
    /// threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Driver, Mode, Runtime};
    /// let runtime = Runtime::builder().driver(Driver::Epoll).build()?;
    /// match runtime.mode() {
    ///     Mode::Green => assert_eq!(runtime.driver(), Some(Driver::Epoll)),
    ///     Mode::Kernel => assert_eq!(runtime.driver(), None),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn driver(&self) -> Option<Driver> {
        match self.backend {
            Backend::Green(cluster) => green::driver_of(cluster),
            Backend::Kernel(_) => None,
        }
    }

    /// What the runtime has done so far, and what it is doing. The figures are read one after the
    /// other, while threads run.
    pub fn metrics(&self) -> Metrics {
        match self.backend {
            Backend::Green(cluster) => green::metrics_of(cluster),
            Backend::Kernel(backend) => Metrics::of_kernel_threads(backend),
        }
    }

    /// Waits until all threads of this runtime have ended, those that they spawn meanwhile
    /// included, then ends its kernel threads.
    ///
    /// # Panics
    /// If it is called on a thread of this runtime, which would wait for itself.
    pub fn shutdown(self) {
        let inside = match self.backend {
            Backend::Green(cluster) => {
                current::green().is_some_and(|green| core::ptr::eq(green.cluster(), cluster))
            }
            Backend::Kernel(backend) => backend.owns_this_thread(),
        };
        assert!(
            !inside,
            "Runtime::shutdown was called on one of the runtime's own threads"
        );
        match self.backend {
            Backend::Green(cluster) => cluster.close(),
            Backend::Kernel(backend) => backend.close(),
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("mode", &self.mode())
            .field("processors", &self.processors())
            .finish_non_exhaustive()
    }
}
