//! Kernel-thread mode: no scheduler, only a count of threads.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::green::waiter::Waiter;
use crate::engine::inspect::reason::{self, WaitKind, WaitReason};

thread_local! {
    /// The runtime that this thread belongs to. It has no destructor: the destructors of other
    /// thread-locals may ask for it.
    static OWNER: Cell<Option<&'static KernelBackend>> = const { Cell::new(None) };
}

static CHILD: OnceLock<&'static KernelBackend> = OnceLock::new();

pub(crate) struct KernelBackend {
    pub(crate) stack_size: Option<usize>,
    /// The number of processors that was set; it has no effect.
    pub(crate) processors: AtomicUsize,
    pub(crate) spawns: AtomicU64,
    pub(crate) live: AtomicUsize,
    closing: AtomicBool,
    drained: Waiter,
}

/// For reports: a runtime that is being shut down.
static DRAINED: WaitKind = WaitKind::inside("end of a runtime's threads", reason::nothing);

impl KernelBackend {
    /// Makes a backend, which is never freed: threads hold it without counting.
    pub(crate) fn start(stack_size: Option<usize>, processors: usize) -> &'static KernelBackend {
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
    pub(crate) fn prepare_forked_child(stack_size: Option<usize>, processors: usize) {
        CHILD.get_or_init(|| KernelBackend::start(stack_size, processors));
    }

    /// Returns the backend on which a forked child spawns.
    pub(crate) fn of_forked_child() -> &'static KernelBackend {
        match CHILD.get() {
            Some(backend) => backend,
            None => crate::engine::sys::die("a child was forked from a process without a runtime"),
        }
    }

    /// Notes that this kernel thread belongs to the runtime.
    pub(crate) fn own_this_thread(&'static self) {
        OWNER.set(Some(self));
    }

    pub(crate) fn owns_this_thread(&self) -> bool {
        OWNER.get().is_some_and(|owner| core::ptr::eq(owner, self))
    }

    /// Counts a thread that is about to start.
    pub(crate) fn enter(&self) {
        self.spawns.fetch_add(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts out a thread that has ended, or could not be started.
    pub(crate) fn leave(&self) {
        // SeqCst: pairs with `close`, which stores `closing` before it loads `live`.
        if self.live.fetch_sub(1, Ordering::SeqCst) == 1 && self.closing.load(Ordering::SeqCst) {
            self.drained.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed) && self.live.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        while self.live.load(Ordering::SeqCst) != 0 {
            self.drained.wait(WaitReason::new(&DRAINED, self), None);
        }
    }
}
