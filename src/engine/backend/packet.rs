//! A thread's closure and its result: the road of a spawned closure, from `spawn` to `join`.
//!
//! `spawn` puts the closure into a packet, and starts a green thread or a kernel thread
//! (`engine::backend::spawn`) that runs the closure and leaves its result in the packet.
//!
//! Invariant: code that frees memory (the packet, the handle) runs on the thread itself, with
//! preemption on, before the thread leaves its stack for the last time.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use std::io;
#[cfg(unix)]
use std::os::unix::thread::RawPthread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use super::scope::{Members, Scope};
use super::{Backend, Job, Kernel, Wishes};
use crate::engine::backend::handle::{self, End, Shared, Thread};
use crate::engine::sys::die;

type Result<T> = std::thread::Result<T>;

/// The place where a thread finds its closure and leaves its result. Only the thread knows the type
/// `W` of its closure: to everybody else it is memory ([`Stowed`]).
struct Packet<T, W: ?Sized = dyn Stowed> {
    result: UnsafeCell<Option<Result<T>>>,
    scope: Option<Arc<Members>>,
    work: W,
}

/// Memory that holds a closure until the thread takes it.
type Stow<F> = UnsafeCell<MaybeUninit<F>>;

trait Stowed {}
impl<F> Stowed for Stow<F> {}

// SAFETY: the thread takes the closure, which may be sent, and writes the result before it gives up
// its count of the packet; the joiner reads the result when the thread has ended.
unsafe impl<T: Send, W: ?Sized> Sync for Packet<T, W> {}
// SAFETY: as above.
unsafe impl<T: Send, W: ?Sized> Send for Packet<T, W> {}

impl<T, W: ?Sized> Drop for Packet<T, W> {
    fn drop(&mut self) {
        let result = self.result.get_mut().take();
        let unhandled = matches!(result, Some(Err(_)));
        if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
            die("a thread's result panicked while it was dropped");
        }
        if let Some(scope) = &self.scope {
            scope.leave(unhandled);
        }
    }
}

/// The common part of all join handles.
pub(crate) struct Joiner<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
    /// In kernel-thread mode, the kernel thread. It is joined too, so that C's work at a thread's
    /// end is over.
    kernel: Option<Kernel>,
}

// SAFETY: as std's. A joiner is made only for a result that may be sent, and gives it out once.
unsafe impl<T> Send for Joiner<T> {}
// SAFETY: as above; a shared joiner gives out nothing of the result.
unsafe impl<T> Sync for Joiner<T> {}

impl<T> Joiner<T> {
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    pub(crate) fn is_finished(&self) -> bool {
        Arc::strong_count(&self.packet) == 1
    }

    fn end(&self) -> &End {
        &self.thread.shared().end
    }

    fn forbid_self(&self) {
        assert!(
            !handle::is_current(self.thread.shared()),
            "failed to join thread: it would wait for itself"
        );
    }

    pub(crate) fn join(self) -> Result<T> {
        self.forbid_self();
        // A kernel thread, too: so reports know whom the caller waits for.
        self.end().wait(None);
        self.after_end()
    }

    /// Waits until `deadline` at most (monotonic nanoseconds), and returns the handle if the thread
    /// has not ended by then.
    pub(crate) fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.forbid_self();
        if self.end().wait(Some(deadline)) {
            Ok(self.after_end())
        } else {
            Err(self)
        }
    }

    /// Returns the `pthread_t` that libc has for the thread.
    #[cfg(unix)]
    pub(crate) fn pthread(&self) -> RawPthread {
        match &self.kernel {
            Some(kernel) => kernel.pthread(),
            None => self.thread.shared().pthread(),
        }
    }

    #[cfg(unix)]
    pub(crate) fn into_pthread(self) -> RawPthread {
        match self.kernel {
            Some(kernel) => kernel.into_pthread(),
            None => self.pthread(),
        }
    }

    /// Returns whether the thread has ended; if not, `waker` is called when it has. After `true`,
    /// [`Joiner::after_end`] does not wait.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        self.end().poll(waker)
    }

    pub(crate) fn forget_waker(&self) {
        self.end().forget_waker();
    }

    /// Returns the result of the thread, which has ended. In kernel-thread mode it may still run
    /// the destructors of pthread keys; this waits for them.
    pub(crate) fn after_end(mut self) -> Result<T> {
        if let Some(kernel) = self.kernel.take() {
            kernel.join();
        }
        match Arc::get_mut(&mut self.packet).and_then(|packet| packet.result.get_mut().take()) {
            Some(result) => result,
            None => die("a thread has ended without a result"),
        }
    }
}

/// Starts a thread.
pub(crate) fn spawn<F, T>(backend: Backend, wishes: Wishes, f: F) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: both types are 'static.
    unsafe { start(backend, wishes, None, f) }
}

/// Starts a thread in a scope.
pub(crate) fn spawn_scoped<'scope, F, T>(
    backend: Backend,
    wishes: Wishes,
    scope: &'scope Scope<'scope, '_>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    // SAFETY: the scope ends only when its threads have dropped their closures and results.
    unsafe { start(backend, wishes, Some(scope.members()), f) }
}

/// Starts a thread that may borrow anything.
///
/// # Safety
/// `f` and its result outlive the thread.
pub(crate) unsafe fn spawn_unchecked<F, T>(
    backend: Backend,
    wishes: Wishes,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // SAFETY: the caller's promise.
    unsafe { start(backend, wishes, None, f) }
}

/// # Safety
/// `f` and its result outlive the thread: they are `'static`, or a scope sees to it.
unsafe fn start<F, T>(
    backend: Backend,
    mut wishes: Wishes,
    scope: Option<Arc<Members>>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let shared = Shared::new(wishes.name.take(), Some(wishes.spawned_at));
    if let Some(scope) = &scope {
        scope.enter();
    }
    let work = Work(Arc::new(Packet {
        result: UnsafeCell::new(None),
        scope,
        work: Stow::new(MaybeUninit::new(f)),
    }));
    let mut joiner = Joiner {
        thread: Thread::new(shared.clone()),
        packet: work.packet(),
        kernel: None,
    };
    // SAFETY: the caller's promise; the job runs the closure once, and catches its panic.
    joiner.kernel = unsafe { backend.spawn(shared, &wishes, work) }?;
    Ok(joiner)
}

/// The work of a thread: a packet whose closure has not been taken yet.
struct Work<F, T>(Arc<Packet<T, Stow<F>>>);

// SAFETY: `start` demands that the closure may be sent, and the result.
unsafe impl<F, T> Send for Work<F, T> {}

impl<F, T> Work<F, T> {
    /// Returns the packet, for the joiner.
    fn packet(&self) -> Arc<Packet<T>> {
        let packet: Arc<Packet<T, dyn Stowed + '_>> = self.0.clone();
        // SAFETY: only the lifetime changes. Nothing of a closure is reached by way of a `Stowed`,
        // which has no methods, and whose destructor does nothing.
        unsafe { core::mem::transmute(packet) }
    }

    /// Returns the packet; the caller may take the closure, once.
    fn into_packet(self) -> Arc<Packet<T, Stow<F>>> {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is not used again.
        unsafe { core::ptr::read(&this.0) }
    }
}

// SAFETY: `run` catches the panic of the closure.
unsafe impl<F: FnOnce() -> T, T> Job for Work<F, T> {
    fn into_raw(self) -> *const () {
        Arc::into_raw(self.into_packet()).cast()
    }

    unsafe fn from_raw(work: *const ()) -> Self {
        // SAFETY: the caller's promise.
        Work(unsafe { Arc::from_raw(work.cast()) })
    }

    /// Runs the closure and leaves its result, or its panic, in the packet.
    fn run(self) {
        let packet = self.into_packet();
        // SAFETY: the closure is there still, and nobody else reaches it.
        let call = || unsafe { __rust_begin_short_backtrace(packet.work.get().cast::<F>()) };
        let result = catch_unwind(AssertUnwindSafe(call));
        // SAFETY: nobody reads it before this thread has given up the packet.
        unsafe { *packet.result.get() = Some(result) };
    }
}

/// Takes `f` and calls it. Since it is taken where it is called, a large closure lies on a small
/// stack only once. A backtrace in std's short form ends here; std knows the frame by its name.
///
/// # Safety
/// As `f.read()`.
#[inline(never)]
unsafe fn __rust_begin_short_backtrace<F: FnOnce() -> T, T>(f: *const F) -> T {
    // SAFETY: the caller's promise.
    let result = unsafe { f.read() }();
    // No tail call, which would leave no frame.
    core::hint::black_box(());
    result
}

impl<F, T> Drop for Work<F, T> {
    /// Drops the closure, which was not run.
    fn drop(&mut self) {
        // SAFETY: it is there still, and nobody else reaches it.
        unsafe { (*self.0.work.get()).assume_init_drop() }
    }
}
