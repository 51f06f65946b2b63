//! Runtimes, which run green threads: the default one, and others with knobs of their own.
//!
//! Most programs need only the default runtime, which starts with the first thread and is
//! configured by `GREENTHREAD_*` variables (see [`Builder`]). A program that wants to keep groups
//! of threads apart, to choose a [policy](crate::policy), or to set other knobs, makes a
//! [`Runtime`] of its own.
//!
//! A runtime consists of processors, a scheduler that runs green threads on them, and a monitor. In
//! [`Mode::Kernel`] it has none of these: each thread is a kernel thread behind the same API.
//!
//! # Examples
//!
//! ```
//! use greenthread::runtime::Runtime;
//!
//! let runtime = Runtime::builder().processors(2).build()?;
//! let threads: Vec<_> = (0..100).map(|i| runtime.spawn(move || i)).collect();
//! let sum: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
//! assert_eq!(sum, 4950);
//! assert_eq!(runtime.metrics().spawns, 100);
//! runtime.shutdown();
//! # Ok::<(), std::io::Error>(())
//! ```

mod builder;

use std::{fmt, io, sync::OnceLock};

pub use self::builder::Builder;
use crate::engine::facade::Backend;
pub use crate::engine::public::{
    BlockedCall, BlockedPlace, Bucket, Driver, Histogram, Metrics, Mode, OnDeadlock,
    ProcessorMetrics, QueueWait,
};
#[cfg(feature = "observe")]
use crate::observe::export::metrics_of;
use crate::sync::Mutex;
use crate::thread::{self, JoinHandle};

/// A group of processors and the threads that run on them.
///
/// Threads that are spawned on a runtime stay on its processors, and so do the threads that they
/// spawn. [`Runtime::global`] is the default runtime, which [`spawn`](crate::spawn) uses; others
/// are made with [`Runtime::builder`].
///
/// Dropping a `Runtime` does not stop its threads: they run on. After the last one has ended, the
/// runtime's kernel threads stay, and sleep. [`Runtime::shutdown`] waits for all threads.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
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

    /// Starts a runtime with the default knobs; see [`Builder`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::build`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> io::Result<Runtime> {
        Builder::new().build()
    }

    /// Returns a builder for a runtime with other knobs.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().processors(3).build()?;
    /// assert_eq!(runtime.processors(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the default runtime, and starts it on its first use.
    ///
    /// # Panics
    ///
    /// Panics if the runtime cannot be started, because a `GREENTHREAD_*` variable has a bad value
    /// or because no kernel thread can be made. The message says why.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let thread = greenthread::spawn(|| 6 * 7); // on the default runtime
    /// assert_eq!(thread.join().unwrap(), 42);
    /// assert!(Runtime::global().metrics().spawns >= 1);
    /// ```
    pub fn global() -> &'static Runtime {
        static GLOBAL: OnceLock<Runtime> = OnceLock::new();
        match Backend::global() {
            Ok(backend) => GLOBAL.get_or_init(|| Runtime::of(backend)),
            Err(error) => panic!("failed to start the runtime: {error}"),
        }
    }

    /// Spawns a thread on this runtime.
    ///
    /// # Panics
    ///
    /// Panics if the thread cannot be started. The message says why.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().processors(1).build()?;
    /// let thread = runtime.spawn(|| {
    ///     // This one runs on the same runtime.
    ///     greenthread::spawn(|| 6 * 7).join().unwrap()
    /// });
    /// assert_eq!(thread.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F: FnOnce() -> T + Send + 'static, T: Send + 'static>(
        &self,
        f: F,
    ) -> JoinHandle<T> {
        match thread::Builder::new().spawn_on(self.backend.or_child(), f) {
            Ok(handle) => handle,
            Err(error) => panic!("failed to spawn thread: {error}"),
        }
    }

    /// Returns the kind of threads that this runtime runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Mode, Runtime};
    ///
    /// let runtime = Runtime::builder().mode(Mode::Kernel).build()?;
    /// assert_eq!(runtime.mode(), Mode::Kernel);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn mode(&self) -> Mode {
        self.backend.mode()
    }

    /// Returns the number of threads that can run at once.
    ///
    /// In [`Mode::Kernel`] the system decides that, and this returns the number that was set.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().processors(2).build()?;
    /// assert_eq!(runtime.processors(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn processors(&self) -> usize {
        self.backend.processors()
    }

    /// Changes the number of threads that can run at once, also while threads run.
    ///
    /// The number is 1 to 4096, and less than the runtime's limit of kernel threads
    /// ([`Builder::max_kernel_threads`]). From then on it no longer follows the CPUs that the
    /// process may use.
    ///
    /// When this returns after an increase, all ready threads run, up to the new number. After a
    /// decrease, threads on the processors that are taken away go on until they block, give way or
    /// use up their time slices; this method does not wait for them. [`Metrics::processors`] shows
    /// how many processors are left. In [`Mode::Kernel`] the number is only remembered.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` if the number is not accepted; the message names it and what is
    /// accepted. Any other error means that the policy has panicked in
    /// [`Policy::resize`](crate::policy::Policy::resize); the number is then as before.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
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
        let _resizing = self.resizing.lock().unwrap_or_else(|e| e.into_inner());
        self.backend.set_processors(count)
    }

    /// Returns how green threads wait for sockets and pipes, or `None` in [`Mode::Kernel`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Driver, Mode, Runtime};
    ///
    /// let runtime = Runtime::builder().driver(Driver::Epoll).build()?;
    /// match runtime.mode() {
    ///     Mode::Green => assert_eq!(runtime.driver(), Some(Driver::Epoll)),
    ///     _ => assert_eq!(runtime.driver(), None), // kernel threads wait themselves
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn driver(&self) -> Option<Driver> {
        self.backend.driver()
    }

    /// Returns figures about the runtime: counts since its start, and its present state.
    ///
    /// The figures are read one after the other while threads run, so they need not fit together
    /// exactly.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().processors(2).build()?;
    /// runtime.spawn(|| ()).join().unwrap();
    /// let metrics = runtime.metrics();
    /// assert_eq!(metrics.spawns, 1);
    /// assert_eq!(metrics.processors.len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        #[cfg(feature = "observe")]
        return metrics_of(self.backend);
        #[cfg(not(feature = "observe"))]
        self.backend.metrics()
    }

    /// Cancels all threads of the runtime, and those that are spawned in it from now on, as
    /// [`JoinHandle::cancel`] does.
    ///
    /// With [`shutdown`](Runtime::shutdown) after it, that is the end of a server.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().build()?;
    /// runtime.spawn(greenthread::park);
    /// runtime.cancel_all();
    /// runtime.shutdown();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn cancel_all(&self) {
        self.backend.cancel_all(std::panic::Location::caller());
    }

    /// Waits until all threads of this runtime have ended, and then ends its kernel threads.
    ///
    /// It also waits for threads that are spawned meanwhile.
    ///
    /// # Panics
    ///
    /// Panics if it is called on a thread of this runtime, which would wait for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{channel::unbounded, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder().processors(1).build()?;
    /// let (sender, receiver) = unbounded();
    /// for i in 0..3 {
    ///     let sender = sender.clone();
    ///     runtime.spawn(move || sender.send(i).unwrap()); // nobody joins it
    /// }
    /// runtime.shutdown();
    /// assert_eq!(receiver.len(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
