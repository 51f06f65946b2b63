//! Runtimes: the default one, others beside it, their knobs and their metrics.
//!
//! A [`Runtime`] is a handle to a cluster: processors, a scheduler, a monitor. The default one
//! starts when it is first needed. In [`Mode::Kernel`] a runtime has no cluster: every thread is a
//! kernel thread behind the same API.

mod builder;

use std::fmt;
use std::io;
use std::sync::OnceLock;

pub use self::builder::Builder;
use crate::engine::door::Backend;
pub use crate::engine::door::{Driver, Metrics, Mode, ProcessorMetrics};
use crate::sync::Mutex;
use crate::thread::{self, JoinHandle};

/// A runtime: threads spawned on it stay on its processors, and so do the threads that they spawn.
///
/// Most programs need only the default one and never name it. Others are made with
/// [`Runtime::builder`]. Dropping a
/// `Runtime` leaves its threads running, and its kernel threads
/// idle when they have ended; [`Runtime::shutdown`] waits for them.
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
    /// Held by the thread that changes the number of processors.
    resizing: Mutex<()>,
}

impl Runtime {
    fn of(backend: Backend) -> Runtime {
        Runtime {
            backend,
            resizing: Mutex::new(()),
        }
    }

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
        static GLOBAL: OnceLock<Runtime> = OnceLock::new();
        match Backend::global() {
            Ok(backend) => GLOBAL.get_or_init(|| Runtime::of(backend)),
            Err(error) => panic!("failed to start the runtime: {error}"),
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
        match thread::Builder::new().spawn_on(self.backend.or_child(), f) {
            Ok(handle) => handle,
            Err(error) => panic!("failed to spawn thread: {error}"),
        }
    }

    /// How this runtime runs its threads.
    pub fn mode(&self) -> Mode {
        self.backend.mode()
    }

    /// How many of its threads run at once. In kernel-thread mode: as many as there are CPUs.
    pub fn processors(&self) -> usize {
        self.backend.processors()
    }

    /// Changes how many of its threads run at once, while they run: 1 to 4096, and fewer than there
    /// may be kernel threads. From then on the number no longer follows the quota of CPU time.
    ///
    /// When this returns, so many run if so many are ready. If there are to be fewer than before,
    /// threads that run on the others go on until they block, give way, or have used their time
    /// slice up; nobody waits for them here. [`Metrics::processors`] shows those that are left. In
    /// kernel-thread mode the number is only remembered.
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
    ///
    /// # Errors
    /// `InvalidInput`, naming the number and what is accepted. Otherwise, the policy has panicked in
    /// [`Policy::resize`](crate::policy::Policy::resize), and there are as many as before.
    pub fn set_processors(&self, count: usize) -> io::Result<()> {
        let _resizing = self.resizing.lock().unwrap_or_else(|e| e.into_inner());
        self.backend.set_processors(count)
    }

    /// How green threads wait for sockets and pipes; `None` if there are none, but kernel
    /// threads.
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
        self.backend.driver()
    }

    /// What the runtime has done so far, and what it is doing. The figures are read one after the
    /// other, while threads run.
    pub fn metrics(&self) -> Metrics {
        self.backend.metrics()
    }

    /// Waits until all threads of this runtime have ended, those that they spawn meanwhile
    /// included, then ends its kernel threads.
    ///
    /// # Panics
    /// If it is called on a thread of this runtime, which would wait for itself.
    pub fn shutdown(self) {
        assert!(
            !self.backend.runs_this_thread(),
            "Runtime::shutdown was called on one of the runtime's own threads"
        );
        self.backend.close();
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
