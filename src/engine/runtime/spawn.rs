//! Starting a thread, green or kernel: [`Backend::spawn`].

use core::mem::ManuallyDrop;
use core::panic::Location;
use std::cell::RefCell;
use std::io;

use super::handle::{self, Shared, Thread};
use super::pthread::{self, Pthread};
use super::{Backend, KernelBackend, life};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::policy::Priority;
use crate::engine::probe::{self, Kernel as Does};

/// The configuration of a thread.
pub(crate) struct Wishes {
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) priority: Priority,
    /// The place in the program that spawns the thread.
    pub(crate) spawned_at: &'static Location<'static>,
}

/// The work of a thread: its share of a packet whose closure has not been taken yet. A job that is dropped drops the
/// closure.
pub(crate) struct Job(Thread);

impl Job {
    /// # Safety
    /// The closure behind the thread is there, may be sent, and outlives the thread; nobody else takes it.
    pub(super) unsafe fn of(thread: Thread) -> Job {
        Job(thread)
    }

    pub(super) fn thread(&self) -> &Thread {
        &self.0
    }

    /// Turns the job into the thread's share of its data, by which it is to be [run](Shared::run), once.
    pub(super) fn into_thread(self) -> Thread {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, and never dropped.
        unsafe { core::ptr::read(&this.0) }
    }
}

impl Drop for Job {
    /// The joiner sees to the rest.
    fn drop(&mut self) {
        // SAFETY: the closure was not taken.
        unsafe { Shared::cancel(self.0.as_ptr()) };
    }
}

impl Backend {
    /// Starts a thread that runs `job`; a kernel thread can be joined.
    pub(super) fn spawn(self, wishes: &Wishes, job: Job) -> io::Result<Option<Pthread>> {
        match self {
            Backend::Green(cluster) => life::start(cluster, wishes, job).map(|()| None),
            Backend::Kernel(backend) => start_kernel(backend, wishes, job).map(Some),
        }
    }
}

fn start_kernel(backend: &'static KernelBackend, wishes: &Wishes, job: Job) -> io::Result<Pthread> {
    let stack_size = wishes.stack_size.or(backend.stack_size);
    backend.enter();
    probe::kernel(Some(job.thread().shared().identity()), Does::Spawned);
    let named = job.thread().clone();
    let main = move || {
        /// Says that the thread has ended, and counts it out, after all thread-local destructors
        /// that were registered later. (Destructors that a waker registers now run after this.)
        struct Last(&'static KernelBackend, Thread);
        impl Drop for Last {
            fn drop(&mut self) {
                probe::kernel(Some(self.1.shared().identity()), Does::Ended);
                let _ = self.1.shared().end();
                KernelThread::end();
                self.0.leave();
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        backend.own_this_thread();
        probe::kernel(Some(job.thread().shared().identity()), Does::Began);
        let thread = job.into_thread();
        LAST.set(Some(Last(backend, thread.clone())));
        KernelThread::begin(false);
        let share = thread.as_ptr();
        handle::set_kernel_thread(thread);
        // SAFETY: the job's share, which this thread keeps until it ends.
        unsafe { Shared::run(share) };
    };
    pthread::spawn(named.name(), stack_size, main).inspect_err(|_| backend.leave())
}
