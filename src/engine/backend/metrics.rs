//! [`Metrics`]: figures about a runtime.

use super::KernelBackend;
use crate::engine::atomic::Ordering;

/// Figures about a runtime: counts since its start, and its present state.
///
/// They are returned by [`Runtime::metrics`](crate::runtime::Runtime::metrics). In
/// [`Mode::Kernel`](super::Mode::Kernel) most of them are 0.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// greenthread::spawn(|| ()).join().unwrap();
/// assert!(Runtime::global().metrics().spawns >= 1);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of times that a processor left a green thread, for whatever reason.
    pub switches: u64,
    /// The number of times that a processor took threads from another processor's queue.
    pub steals: u64,
    /// The number of times that a thread was interrupted because its time slice was over.
    pub preemptions: u64,
    /// The number of times that a processor was taken from a thread that was blocked in the kernel,
    /// or that could not be interrupted.
    pub hand_offs: u64,
    /// The number of times that a blocking call of libc, made by code that knows nothing of green
    /// threads, has parked the thread that made it.
    pub parked_calls: u64,
    /// The system calls in which threads were blocked when their processor was taken from them: the ten
    /// most frequent ones, the most frequent first. Each such thread keeps a kernel thread until its
    /// call returns.
    pub blocked_calls: Vec<BlockedCall>,
    /// The number of threads that were started.
    pub spawns: u64,
    /// The number of times that a sleeping kernel thread was woken because there was work.
    pub wake_ups: u64,
    /// The number of threads that have been started and have not ended.
    pub live_threads: usize,
    /// The number of kernel threads for green threads, blocked ones and idle ones included.
    pub kernel_threads: usize,
    /// The number of those kernel threads that are idle.
    pub parked_kernel_threads: usize,
    /// The number of ready threads that wait in the global queue and not at a processor.
    pub global_queue_len: usize,
    /// The figures of each processor. Processors that are being taken away
    /// ([`Runtime::set_processors`]) but still run a thread come last.
    ///
    /// [`Runtime::set_processors`]: crate::runtime::Runtime::set_processors
    pub processors: Vec<ProcessorMetrics>,
}

/// Figures about one processor.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// let runtime = Runtime::builder().processors(1).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// for processor in runtime.metrics().processors {
///     println!("{} switches, {} threads wait", processor.switches, processor.queue_len);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorMetrics {
    /// The number of ready threads that wait in the processor's queue.
    pub queue_len: usize,
    /// The number of times that the processor left a green thread.
    pub switches: u64,
}

/// A system call that has blocked kernel threads.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// for call in Runtime::global().metrics().blocked_calls {
///     println!("{}: {} times", call.name, call.count);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedCall {
    /// The name of the system call, such as `flock`; for a call that is not known to block,
    /// `system call` and its number.
    pub name: String,
    /// The number of times that a thread in this call has lost its processor.
    pub count: u64,
}

impl Metrics {
    pub(super) fn of_kernel_threads(backend: &KernelBackend) -> Metrics {
        let live = backend.live.load(Ordering::Relaxed);
        Metrics {
            spawns: backend.spawns.load(Ordering::Relaxed),
            live_threads: live,
            kernel_threads: live,
            processors: vec![
                ProcessorMetrics::default();
                backend.processors.load(Ordering::Relaxed)
            ],
            ..Metrics::default()
        }
    }
}
