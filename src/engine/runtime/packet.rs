//! A thread's closure and its result: the road of a spawned closure, from `spawn` to `join`.
//!
//! `spawn` puts the closure into a packet, and starts a green thread or a kernel thread
//! (`engine::runtime::spawn`) that runs the closure and leaves its result in the packet. The packet begins with
//! what the thread's handles share: all that a thread needs is one piece of memory, in which the thread, its joiner
//! and each handle own a share (`handle::shares`).
//!
//! | part | until … it is | from then on |
//! |---|---|---|
//! | the closure | the thread takes it: the spawner's | nobody's |
//! | the result | the thread has ended: the thread's | the joiner's; or, if the joiner goes first, as `shares` says |
//! | the kernel thread | it is started: the spawner's | the joiner's |
//! | the scope | the result is gone: theirs who drop it, or give it out | nobody's |
//!
//! The memory of a packet is freed with the last handle, long after the closure has run. So a large closure has
//! memory of its own ([`LARGE`]), which its call frees.
//!
//! Invariant: code that frees memory runs on the thread itself, with preemption on, before the thread leaves its
//! stack for the last time.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::io;
#[cfg(unix)]
use std::os::unix::thread::RawPthread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use super::Backend;
use super::handle::{self, End, Left, Shared, Thread, Verbs};
use super::pthread::Pthread;
use super::scope::{Members, Scope};
use super::spawn::{Job, Wishes};
use crate::engine::sys::die;

type Result<T> = std::thread::Result<T>;

/// The greatest closure, in bytes, whose memory stays as long as there are handles of its thread.
const LARGE: usize = 4 << 10;

/// All that a thread needs outside its stack. Only the thread knows the type `F` of its closure, which lies
/// behind all other parts: for everybody else it is `()`.
#[repr(C)]
struct Packet<T, F = ()> {
    shared: Shared,
    scope: UnsafeCell<Option<Arc<Members>>>,
    /// In kernel-thread mode, the kernel thread. It is joined too, so that C's work at a thread's
    /// end is over.
    kernel: UnsafeCell<Option<Box<Pthread>>>,
    result: UnsafeCell<Option<Result<T>>>,
    work: UnsafeCell<MaybeUninit<F>>,
}

impl<T, F> Packet<T, F> {
    /// The packet that begins at the address of a share.
    ///
    /// # Safety
    /// There is such a packet, and the share is not given up in `'a`.
    #[inline(always)]
    unsafe fn of<'a>(share: *const Shared) -> &'a Packet<T, F> {
        // SAFETY: the caller's promise.
        unsafe { &*share.cast() }
    }

    /// Drops the result, if there is one.
    ///
    /// # Safety
    /// It is the caller's, by the table.
    unsafe fn drop_result(&self) {
        // SAFETY: the caller's promise.
        let (result, scope) = unsafe { ((*self.result.get()).take(), (*self.scope.get()).take()) };
        let unhandled = matches!(result, Some(Err(_)));
        if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
            die("a thread's result panicked while it was dropped");
        }
        if let Some(scope) = scope {
            scope.leave(unhandled);
        }
    }
}

/// The common part of all join handles.
pub(crate) struct Joiner<T> {
    /// The joiner's own share. It is given up by hand.
    thread: ManuallyDrop<Thread>,
    packet: PhantomData<Arc<Packet<T>>>,
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
        self.thread.shared().is_finished()
    }

    fn end(&self) -> &End {
        &self.thread.shared().end
    }

    fn packet(&self) -> &Packet<T> {
        // SAFETY: a joiner is made for the thread of a packet with a `T`, and owns a share.
        unsafe { Packet::of(self.thread.as_ptr()) }
    }

    fn kernel(&self) -> Option<&Pthread> {
        // SAFETY: the joiner's, by the table, who takes it only when it goes.
        unsafe { (*self.packet().kernel.get()).as_deref() }
    }

    fn take_kernel(&mut self) -> Option<Box<Pthread>> {
        // SAFETY: as above; nothing is borrowed of it.
        unsafe { (*self.packet().kernel.get()).take() }
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
        match self.kernel() {
            Some(kernel) => kernel.pthread(),
            None => self.thread.shared().pthread(),
        }
    }

    #[cfg(unix)]
    pub(crate) fn into_pthread(mut self) -> RawPthread {
        match self.take_kernel() {
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
    pub(crate) fn after_end(self) -> Result<T> {
        let mut this = ManuallyDrop::new(self);
        if let Some(kernel) = this.take_kernel() {
            kernel.join();
        }
        let packet = this.packet();
        // SAFETY: the thread has ended, and it leaves both to the joiner, which is used no more.
        let (result, scope) =
            unsafe { ((*packet.result.get()).take(), (*packet.scope.get()).take()) };
        if let Some(scope) = scope {
            scope.leave(false);
        }
        // SAFETY: `this` is used no more, and never dropped.
        drop(unsafe { ManuallyDrop::take(&mut this.thread) });
        match result {
            Some(result) => result,
            None => die("a thread has ended without a result"),
        }
    }
}

impl<T> Drop for Joiner<T> {
    /// Detaches the thread.
    fn drop(&mut self) {
        drop(self.take_kernel());
        // SAFETY: this share is given up once, here; the result is the joiner's if `leave` says so.
        unsafe {
            match self.thread.shared().shares().leave() {
                Left::Nothing => {}
                Left::Memory => Thread::free(&self.thread),
                Left::Result => {
                    self.packet().drop_result();
                    ManuallyDrop::drop(&mut self.thread);
                }
            }
        }
    }
}

/// Starts a thread.
#[inline]
pub(crate) fn spawn<F, T>(backend: Backend, wishes: Wishes, f: F) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: both types are 'static.
    unsafe { spawn_unchecked(backend, wishes, None, f) }
}

/// Starts a thread in a scope.
#[inline]
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
    unsafe { spawn_unchecked(backend, wishes, Some(scope), f) }
}

/// Starts a thread that may borrow anything.
///
/// # Safety
/// `f` and its result outlive the thread: they are `'static`, or the scope sees to it.
#[inline]
pub(crate) unsafe fn spawn_unchecked<F, T>(
    backend: Backend,
    mut wishes: Wishes,
    scope: Option<&Scope<'_, '_>>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let (wishes, scope) = (&mut wishes, scope.map(Scope::members));
    // SAFETY: the caller's promise.
    unsafe {
        if size_of::<F>() > LARGE {
            return start(backend, wishes, scope, Box::new(f));
        }
        start(backend, wishes, scope, f)
    }
}

/// # Safety
/// As for [`spawn_unchecked`].
unsafe fn start<F, T>(
    backend: Backend,
    wishes: &mut Wishes,
    scope: Option<Arc<Members>>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if let Some(scope) = &scope {
        scope.enter();
    }
    let mut packet = Box::<Packet<T, F>>::new_uninit();
    // In place: a move would read what was just written, in wider words, and wait for that.
    packet.write(Packet {
        shared: Shared::new(wishes.name.take(), wishes.spawned_at, Packet::<T, F>::VERBS),
        scope: UnsafeCell::new(scope),
        kernel: UnsafeCell::new(None),
        result: UnsafeCell::new(None),
        work: UnsafeCell::new(MaybeUninit::new(f)),
    });
    let shared = Box::into_raw(packet).cast::<Shared>();
    // SAFETY: the packet begins with its shared data, which has two shares: the joiner's and the thread's. The rest is the
    // caller's promise.
    let (job, thread) = unsafe { (Job::of(Thread::from_raw(shared)), Thread::from_raw(shared)) };
    let joiner = Joiner {
        thread: ManuallyDrop::new(thread),
        packet: PhantomData,
    };
    if let Some(kernel) = backend.spawn(wishes, job)? {
        // SAFETY: the joiner's, which nobody else has yet.
        unsafe { *joiner.packet().kernel.get() = Some(Box::new(kernel)) };
    }
    Ok(joiner)
}

impl<T, F: FnOnce() -> T> Packet<T, F> {
    const VERBS: &'static Verbs = &Verbs {
        run: Packet::<T, F>::run,
        cancel: Packet::<T, F>::cancel,
        // SAFETY: the box of `start`; there is no closure in it any more, and no result that needs dropping.
        free: |shared| drop(unsafe { Box::from_raw(shared.cast_mut().cast::<Packet<T, F>>()) }),
    };

    /// Runs the closure and leaves its result, or its panic, in the packet.
    unsafe fn run(share: *const Shared) {
        // SAFETY: the caller's promise.
        let packet: &Packet<T, F> = unsafe { Packet::of(share) };
        // SAFETY: the closure is there still, and nobody else reaches it.
        let call = || unsafe { __rust_begin_short_backtrace(packet.work.get().cast::<F>()) };
        let result = catch_unwind(AssertUnwindSafe(call));
        // SAFETY: result and scope are the thread's as long as it has not ended, and after `finish` if that says so.
        unsafe {
            let needs_dropping =
                needs_drop::<T>() || result.is_err() || (*packet.scope.get()).is_some();
            packet.result.get().write(Some(result));
            if needs_dropping && packet.shared.shares().finish() {
                packet.drop_result();
            }
        }
        packet.shared.note_finished();
    }

    /// Drops the closure, which was not run.
    unsafe fn cancel(share: *const Shared) {
        /// After the closure, which may panic while it is dropped.
        struct Last<'a, T, F>(&'a Packet<T, F>);
        impl<T, F> Drop for Last<'_, T, F> {
            fn drop(&mut self) {
                if self.0.shared.shares().finish() {
                    // SAFETY: `finish` says so.
                    unsafe { self.0.drop_result() };
                }
            }
        }
        // SAFETY: the caller's promise.
        let last = Last(unsafe { Packet::<T, F>::of(share) });
        // SAFETY: it is there still, and nobody else reaches it.
        unsafe { (*last.0.work.get()).assume_init_drop() }
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
