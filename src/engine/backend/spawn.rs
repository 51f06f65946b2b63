//! Starting a thread, green or kernel: [`Backend::spawn`].

use core::panic::Location;
use std::io;
#[cfg(unix)]
use std::os::unix::thread::{JoinHandleExt, RawPthread};

use super::{Backend, KernelBackend, bare, life};
use crate::engine::backend::handle::{self, Shared, Thread};
use crate::engine::green::resident::Resident;
use crate::engine::policy::Priority;
use crate::engine::probe::{self, Kernel as Does};
use crate::engine::{sched, stack};

/// The configuration of a thread.
pub(crate) struct Wishes {
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) priority: Priority,
    /// The place in the program that spawns the thread.
    pub(crate) spawned_at: &'static Location<'static>,
}

/// The work of a thread, which it runs once.
///
/// # Safety
/// `run` does not unwind.
pub(crate) unsafe trait Job: Send + Sized {
    /// The thread that it is for.
    fn thread(&self) -> &Thread;

    /// Turns the job into the thread's share of its data, by which it can be run, once.
    fn into_thread(self) -> Thread;

    /// Runs the job. Memory is freed now, on the thread itself and with preemption on.
    ///
    /// # Safety
    /// `share` is that of a job of this type, which was not run yet; it is not given up meanwhile.
    unsafe fn run(share: *const Shared);
}

/// A kernel thread: std's, or, in a forked child, one without std.
pub(crate) enum Kernel {
    Std(std::thread::JoinHandle<()>),
    Bare(bare::Handle),
}

impl Kernel {
    /// Waits until the thread has ended, including C's work at its end.
    pub(crate) fn join(self) {
        match self {
            Kernel::Std(kernel) => drop(kernel.join()),
            Kernel::Bare(kernel) => kernel.join(),
        }
    }

    #[cfg(unix)]
    pub(crate) fn pthread(&self) -> RawPthread {
        match self {
            Kernel::Std(kernel) => kernel.as_pthread_t(),
            Kernel::Bare(kernel) => kernel.pthread(),
        }
    }

    /// Gives the caller the right to join or to detach the thread.
    #[cfg(unix)]
    pub(crate) fn into_pthread(self) -> RawPthread {
        match self {
            Kernel::Std(kernel) => kernel.into_pthread_t(),
            Kernel::Bare(kernel) => kernel.into_pthread(),
        }
    }
}

impl Backend {
    /// Starts a thread that runs `job`; a kernel thread can be joined.
    ///
    /// # Safety
    /// All that `job` borrows outlives the thread.
    pub(crate) unsafe fn spawn<J: Job>(
        self,
        wishes: &Wishes,
        job: J,
    ) -> io::Result<Option<Kernel>> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Backend::Green(cluster) => life::start(cluster, wishes, job).map(|()| None),
                Backend::Kernel(backend) => start_kernel(backend, wishes, job).map(Some),
            }
        }
    }
}

/// # Safety
/// As [`Backend::spawn`].
unsafe fn start_kernel<J: Job>(
    backend: &'static KernelBackend,
    wishes: &Wishes,
    job: J,
) -> io::Result<Kernel> {
    let stack_size = wishes.stack_size.or(backend.stack_size);
    if let Some(size) = stack_size {
        stack::check_size(size)?;
    }
    backend.enter();
    probe::kernel(Some(job.thread().shared().identity()), Does::Spawned);
    let (forked, named) = (sched::fork::is_child(), job.thread().clone());
    let main = move || {
        /// Says that the thread has ended, and counts it out, after all thread-local destructors
        /// that were registered later. (Destructors that a waker registers now run after this.)
        struct Last(&'static KernelBackend, Thread);
        impl Drop for Last {
            fn drop(&mut self) {
                probe::kernel(Some(self.1.shared().identity()), Does::Ended);
                let _ = self.1.shared().end();
                Resident::end();
                self.0.leave();
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
        }
        let thread = job.thread();
        if let (true, Some(name)) = (forked, thread.name()) {
            bare::set_name(name);
        }
        backend.own_this_thread();
        probe::kernel(Some(thread.shared().identity()), Does::Began);
        let thread = job.into_thread();
        LAST.set(Some(Last(backend, thread.clone())));
        Resident::begin();
        let share = thread.as_ptr();
        handle::set_kernel_thread(thread);
        // SAFETY: the job's share, which this thread keeps until it ends.
        unsafe { J::run(share) };
    };
    let started = if forked {
        // SAFETY: lifetimes are the caller's promise; `run` catches panics.
        unsafe { bare::spawn(stack_size, main) }.map(Kernel::Bare)
    } else {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = named.name() {
            builder = builder.name(name.into());
        }
        if let Some(size) = stack_size {
            builder = builder.stack_size(size);
        }
        // SAFETY: lifetimes are the caller's promise.
        unsafe { builder.spawn_unchecked(main) }.map(Kernel::Std)
    };
    started.inspect_err(|_| backend.leave())
}
