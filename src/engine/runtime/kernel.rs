//! Kernel-thread mode: no scheduler, only a count of threads, each of which is a kernel thread (`runtime::pthread`).

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::OnceLock;

use super::handle::{self, Thread};
use super::metrics::{Metrics, ProcessorMetrics};
use super::packet::{Job, ThreadOptions};
use super::pthread::{self, Pthread};
use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::inspect::notes::{self, WaitKind, WaitReason};
use crate::engine::probe::{self, Kernel as Does};
use crate::engine::sched::park::Waiter;
use crate::engine::sys::die;

thread_local! {
    /// The runtime that this thread belongs to. It has no destructor: the destructors of other
    /// thread-locals may ask for it.
    static OWNER: Cell<Option<&'static KernelBackend>> = const { Cell::new(None) };
}

static CHILD: OnceLock<&'static KernelBackend> = OnceLock::new();

pub(crate) struct KernelBackend {
    pub(super) stack_size: Option<usize>,
    /// The number of processors that was set; it has no effect.
    pub(super) processors: AtomicUsize,
    spawns: AtomicU64,
    live: AtomicUsize,
    closing: AtomicBool,
    drained: Waiter,
}

/// For reports: a runtime that is being shut down.
static DRAINED: WaitKind = WaitKind::inside("end of a runtime's threads", notes::nothing);

impl KernelBackend {
    /// Makes a backend, which is never freed: threads hold it without counting.
    pub(super) fn start(stack_size: Option<usize>, processors: usize) -> &'static KernelBackend {
        Box::leak(Box::new(KernelBackend {
            stack_size,
            processors: AtomicUsize::new(processors),
            spawns: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            drained: Waiter::new(),
        }))
    }

    /// Makes the backend of forked children, when the process makes its first runtime. If a child
    /// made it, the child might find it half made by a thread that is not there.
    pub(super) fn prepare_forked_child(stack_size: Option<usize>, processors: usize) {
        CHILD.get_or_init(|| KernelBackend::start(stack_size, processors));
    }

    /// Returns the backend on which a forked child spawns.
    pub(super) fn of_forked_child() -> &'static KernelBackend {
        CHILD
            .get()
            .unwrap_or_else(|| die("a child was forked from a process without a runtime"))
    }

    /// Returns whether the current thread is one of the runtime's.
    pub(super) fn owns_this_thread(&self) -> bool {
        OWNER.get().is_some_and(|owner| core::ptr::eq(owner, self))
    }

    /// Starts a kernel thread that runs `job`.
    pub(super) fn spawn(&'static self, options: &ThreadOptions, job: Job) -> io::Result<Pthread> {
        /// Says that the thread has ended, and counts it out, after all thread-local destructors
        /// that were registered later. (Destructors that a waker registers now run after this.)
        struct Last(&'static KernelBackend, Thread);
        impl Drop for Last {
            fn drop(&mut self) {
                probe::kernel(Some(&self.1.shared().identity), Does::Ended);
                let _ = self.1.shared().end();
                KernelThread::end();
                self.0.leave();
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        self.spawns.fetch_add(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
        let thread = job.thread().clone();
        probe::kernel(Some(&thread.shared().identity), Does::Spawned);
        let main = move || {
            OWNER.set(Some(self));
            probe::kernel(Some(&job.thread().shared().identity), Does::Began);
            LAST.set(Some(Last(self, job.thread().clone())));
            KernelThread::begin(false);
            handle::set_kernel_thread(job.thread().clone());
            drop(job.run());
        };
        let stack_size = options.stack_size.or(self.stack_size);
        pthread::spawn(thread.name(), stack_size, main).inspect_err(|_| self.leave())
    }

    /// Counts out a thread that has ended, or could not be started.
    fn leave(&self) {
        // SeqCst: pairs with `close`, which stores `closing` before it loads `live`.
        if self.live.fetch_sub(1, Ordering::SeqCst) == 1 && self.closing.load(Ordering::SeqCst) {
            self.drained.wake();
        }
    }

    pub(super) fn metrics(&self) -> Metrics {
        let live = self.live.load(Ordering::Relaxed);
        Metrics {
            spawns: self.spawns.load(Ordering::Relaxed),
            live_threads: live,
            kernel_threads: live,
            processors: vec![ProcessorMetrics::default(); self.processors.load(Ordering::Relaxed)],
            ..Metrics::default()
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed) && self.live.load(Ordering::Relaxed) == 0
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        while self.live.load(Ordering::SeqCst) != 0 {
            self.drained.wait(WaitReason::new(&DRAINED, self), None);
        }
    }
}
