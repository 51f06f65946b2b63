//! What a runtime has done so far.

use super::KernelBackend;
use crate::engine::atomic::Ordering;

/// Figures of a runtime: counts since its start, and what is so now.
///
/// ```
/// use greenthread::runtime::Runtime;
/// greenthread::spawn(|| ()).join().unwrap();
/// assert!(Runtime::global().metrics().spawns >= 1);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Times a green thread was left, for whatever reason.
    pub switches: u64,
    /// Times a processor took threads from another one's queue.
    pub steals: u64,
    /// Times a thread was interrupted because its time slice was over.
    pub preemptions: u64,
    /// Times a processor was taken from a thread that was blocked in the kernel, or could not be
    /// interrupted.
    pub hand_offs: u64,
    /// Threads started.
    pub spawns: u64,
    /// Times a sleeping kernel thread was woken because there was work.
    pub wake_ups: u64,
    /// Threads that have been started and have not ended.
    pub live_threads: usize,
    /// Kernel threads that run green threads, blocked ones and idle ones included.
    pub kernel_threads: usize,
    /// Those of them that are idle.
    pub parked_kernel_threads: usize,
    /// Ready threads that wait in the global queue.
    pub global_queue_len: usize,
    /// Figures of each processor; those that are to go ([`Runtime::set_processors`]) and still run a
    /// thread are the last.
    ///
    /// [`Runtime::set_processors`]: super::Runtime::set_processors
    pub processors: Vec<ProcessorMetrics>,
}

/// Figures of one processor.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorMetrics {
    /// Ready threads that wait in its queue.
    pub queue_len: usize,
    /// Times a green thread on it was left.
    pub switches: u64,
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
