//! Kernel-thread mode: no scheduler, only a count of threads, each of which is a kernel thread: std's, but in a forked child
//! libc's.
//!
//! Every thread of std takes, at its start and at its end, a lock of the whole process: under it
//! std notes where the thread's guard page lies. (`std::process::exit` takes it too.) If a kernel
//! thread of the parent holds the lock at the fork, it stays locked in the child for ever. The lock
//! is short, but this is not rare: memory is allocated under it, and while a `fork` is under way
//! malloc makes all threads wait. A plain std program has the same problem; this is why POSIX
//! allows a child so little.
//!
//! libc puts its own locks right in the child, so a pthread is possible there. Such a thread lacks
//! the part that std does under the lock: the message when its stack overflows.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, OnceLock};
#[cfg(green)]
use std::{ffi::c_void, mem::ManuallyDrop, os::unix::thread::JoinHandleExt};

use super::handle::{self, Thread};
use super::metrics::{Metrics, ProcessorMetrics};
use super::options::default_stack_size;
use super::spawn::{Builder, Job};
use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::inspect::notes::{WaitKind, WaitReason};
use crate::engine::probe::{self, Kernel as Does};
#[cfg(green)]
use crate::engine::sched::current;
use crate::engine::sched::frames::{self, What};
use crate::engine::sched::{cancel::Token, park::Waiter};
use crate::engine::sys::{clock::NEVER, die, kernel_thread};

thread_local! {
    /// The runtime that this thread belongs to. It has no destructor: the destructors of other
    /// thread-locals may ask for it.
    pub(super) static OWNER: Cell<Option<&'static KernelBackend>> = const { Cell::new(None) };
}

/// The backend of forked children. It is made when the process makes its first runtime: a child might find it half made by a
/// thread that is not there.
pub(super) static CHILD: OnceLock<&'static KernelBackend> = OnceLock::new();

#[derive(Default)]
pub(crate) struct KernelBackend {
    pub(super) stack_size: Option<usize>,
    /// The number of processors that was set; it has no effect.
    pub(super) processors: AtomicUsize,
    spawns: AtomicU64,
    /// All threads are in its frames: they are cancelled by it.
    pub(super) token: Arc<Token>,
    running: AtomicUsize,
    all_done: Waiter,
    closing: AtomicBool,
}

/// For reports: a runtime that is being shut down.
static DRAINED: WaitKind = WaitKind::inside("end of a runtime's threads");

impl KernelBackend {
    /// Makes a backend, which is never freed: threads hold it without counting.
    pub(super) fn start(stack_size: Option<usize>, processors: usize) -> &'static KernelBackend {
        Box::leak(Box::new(KernelBackend {
            stack_size,
            processors: AtomicUsize::new(processors),
            ..KernelBackend::default()
        }))
    }

    /// Returns the backend on which a forked child spawns.
    pub(super) fn of_forked_child() -> &'static KernelBackend {
        let backend = CHILD.get();
        backend.unwrap_or_else(|| die("a child was forked from a process without a runtime"))
    }

    /// Starts a kernel thread that runs `job`.
    pub(super) fn spawn(&'static self, options: &Builder, job: Job) -> io::Result<Pthread> {
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
        self.running.fetch_add(1, Ordering::Relaxed);
        let thread = job.thread().clone();
        probe::kernel(Some(&thread.shared().identity), Does::Spawned);
        let main = move || {
            OWNER.set(Some(self));
            probe::kernel(Some(&job.thread().shared().identity), Does::Began);
            LAST.set(Some(Last(self, job.thread().clone())));
            KernelThread::begin(false);
            handle::set_kernel_thread(job.thread().clone());
            frames::begin(&job.thread().shared().node, &self.token.reason);
            frames::within(NEVER, What::token(&self.token), || drop(job.run()));
            frames::end();
        };
        let stack_size = options.stack_size.or(self.stack_size);
        spawn(thread.name(), stack_size, main).inspect_err(|_| self.leave())
    }

    pub(super) fn metrics(&self) -> Metrics {
        let live = self.running.load(Ordering::Relaxed);
        Metrics {
            spawns: self.spawns.load(Ordering::Relaxed),
            live_threads: live,
            kernel_threads: live,
            processors: vec![ProcessorMetrics::default(); self.processors.load(Ordering::Relaxed)],
            ..Metrics::default()
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed) && self.running.load(Ordering::Relaxed) == 0
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // Acquire: pairs with the Release in `leave`.
        while self.running.load(Ordering::Acquire) != 0 {
            (self.all_done).wait(WaitReason::new(&DRAINED, self), None);
        }
    }

    fn leave(&self) {
        // Release: pairs with the Acquire in `close`.
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            self.all_done.wake();
        }
    }
}

// ==== a kernel thread that runs a closure ====

/// The space that libc takes on a thread's stack: for guard, control block and thread-locals.
#[cfg(green)]
const EXTRA: usize = 64 << 10;

/// The right to wait for a kernel thread. Dropping it detaches the thread.
#[cfg(not(green))]
pub(crate) type Pthread = std::thread::JoinHandle<()>;
/// The right to wait for a kernel thread. Dropping it detaches the thread.
#[cfg(green)]
pub(crate) struct Pthread(libc::pthread_t);

#[cfg(green)]
impl Pthread {
    pub(crate) fn as_pthread_t(&self) -> libc::pthread_t {
        self.0
    }

    /// Gives the caller the right to join or to detach the thread.
    pub(crate) fn into_pthread_t(self) -> libc::pthread_t {
        ManuallyDrop::new(self).0
    }

    /// Waits until the thread has ended, including C's work at its end.
    pub(crate) fn join(self) -> std::thread::Result<()> {
        // SAFETY: the right was there, so the thread is neither joined nor detached yet.
        unsafe { libc::pthread_join(self.into_pthread_t(), core::ptr::null_mut()) };
        Ok(())
    }
}

#[cfg(green)]
impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Starts a kernel thread that runs `main`, which does not unwind.
fn spawn(
    name: Option<&str>,
    stack_size: Option<usize>,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<Pthread> {
    let size = stack_size.unwrap_or_else(default_stack_size);
    #[cfg(green)]
    if current::is_forked_child() {
        return spawn_in_child(name.map(Into::into), size, main);
    }
    let mut builder = std::thread::Builder::new().stack_size(size);
    if let Some(name) = name {
        builder = builder.name(name.into());
    }
    let thread = kernel_thread::making(|| builder.spawn(main))?;
    #[cfg(green)]
    let thread = Pthread(thread.into_pthread_t());
    Ok(thread)
}

#[cfg(green)]
fn spawn_in_child<F: FnOnce() + Send + 'static>(
    name: Option<Box<str>>,
    size: usize,
    main: F,
) -> io::Result<Pthread> {
    extern "C" fn start<F: FnOnce()>(main: *mut c_void) -> *mut c_void {
        // SAFETY: the box comes from below, and belongs to this thread alone.
        let (name, main) = *unsafe { Box::from_raw(main.cast::<(Option<Box<str>>, F)>()) };
        if let Some(name) = name {
            kernel_thread::set_name(format_args!("{name}"));
        }
        main();
        core::ptr::null_mut()
    }
    let size = size.saturating_add(EXTRA);
    let main = Box::into_raw(Box::new((name, main)));
    // SAFETY: `start` gets what it expects.
    let started = unsafe {
        kernel_thread::start(size, libc::PTHREAD_CREATE_JOINABLE, start::<F>, main.cast())
    };
    started.map(Pthread).map_err(|number| {
        // SAFETY: there is no thread to own the box, and it is ours again.
        drop(unsafe { Box::from_raw(main) });
        io::Error::from_raw_os_error(number)
    })
}
