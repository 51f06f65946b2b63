//! The road of a spawned closure, from `spawn` to `join`.
//!
//! `spawn` takes a stack, lays [`body`] on it, and makes the thread ready. `body` runs the closure,
//! leaves its result in the packet, runs the thread-local destructors, and says that the thread has
//! ended (`end`); the run loop buries it.
//!
//! Invariant: what frees memory (the packet, the handle) does so on the thread itself, with
//! preemption on, before it leaves its stack for the last time.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use super::bare;
use super::end::End;
use super::handle::{self, Shared, Thread};
use super::scope::ScopeData;
use crate::atomic::Ordering;
use crate::current;
use crate::green::{Green, Oddities};
use crate::policy::{Priority, Readied};
use crate::runtime::{Backend, KernelBackend};
use crate::sched::{self, Cluster};
use crate::sys::signal;
use crate::tls;

/// The result of a thread: what its closure returned, or what it panicked with.
pub type Result<T> = std::thread::Result<T>;

/// Where a thread leaves its result.
struct Packet<T> {
    result: UnsafeCell<Option<Result<T>>>,
    scope: Option<Arc<ScopeData>>,
}

// SAFETY: the thread writes the result before it gives up its count of the packet; the joiner reads
// it when the thread has ended.
unsafe impl<T: Send> Sync for Packet<T> {}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        let result = self.result.get_mut().take();
        let unhandled = matches!(result, Some(Err(_)));
        if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
            crate::sys::die("a thread's result panicked while it was dropped");
        }
        if let Some(scope) = &self.scope {
            scope.leave(unhandled);
        }
    }
}

/// What every kind of join handle has.
pub(super) struct Joiner<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
    /// In kernel-thread mode: joined, so that the thread is over with all that C does at its end.
    kernel: Option<Kernel>,
}

/// A kernel thread: std's, or, in a forked child, one without std.
enum Kernel {
    Std(std::thread::JoinHandle<()>),
    Bare(bare::Handle),
}

impl<T> Joiner<T> {
    pub(super) fn thread(&self) -> &Thread {
        &self.thread
    }

    pub(super) fn is_finished(&self) -> bool {
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

    pub(super) fn join(self) -> Result<T> {
        self.forbid_self();
        if self.kernel.is_none() {
            self.end().wait(None);
        }
        self.after_end()
    }

    /// Gives itself back if the thread has not ended by `deadline` (monotonic nanoseconds).
    pub(super) fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.forbid_self();
        if self.end().wait(Some(deadline)) {
            Ok(self.after_end())
        } else {
            Err(self)
        }
    }

    /// Whether the thread has ended; if not, `waker` is called when it has. After a yes,
    /// [`Joiner::after_end`] does not wait.
    pub(super) fn poll(&self, waker: &Waker) -> bool {
        self.end().poll(waker)
    }

    pub(super) fn forget_waker(&self) {
        self.end().forget_waker();
    }

    /// The result; the thread has ended. In kernel-thread mode it may still have C's destructors to
    /// run (pthread keys'): those are waited for.
    pub(super) fn after_end(mut self) -> Result<T> {
        match self.kernel.take() {
            Some(Kernel::Std(kernel)) => drop(kernel.join()),
            Some(Kernel::Bare(kernel)) => kernel.join(),
            None => {}
        }
        match Arc::get_mut(&mut self.packet).and_then(|packet| packet.result.get_mut().take()) {
            Some(result) => result,
            None => crate::sys::die("a thread has ended without a result"),
        }
    }
}

/// Starts a thread.
///
/// # Safety
/// `f` and its result outlive the thread: they are `'static`, or a scope sees to it.
pub(super) unsafe fn spawn<F, T>(
    backend: Backend,
    wishes: Wishes,
    scope: Option<Arc<ScopeData>>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let shared = Shared::new(wishes.name);
    let packet = Arc::new(Packet {
        result: UnsafeCell::new(None),
        scope,
    });
    if let Some(scope) = &packet.scope {
        scope.enter();
    }
    let mut joiner = Joiner {
        thread: Thread::new(shared.clone()),
        packet: packet.clone(),
        kernel: None,
    };
    let work = Work {
        f,
        packet,
        result: PhantomData,
    };
    // SAFETY: the caller's promise.
    unsafe {
        match backend {
            Backend::Green(cluster) => {
                start_green(cluster, shared, wishes.stack_size, wishes.priority, work)?
            }
            Backend::Kernel(backend) => {
                joiner.kernel = Some(start_kernel(backend, shared, wishes.stack_size, work)?)
            }
        }
    }
    Ok(joiner)
}

/// What a thread is to be like.
pub(super) struct Wishes {
    pub(super) name: Option<Box<str>>,
    pub(super) stack_size: Option<usize>,
    pub(super) priority: Priority,
}

/// What a thread is to do.
struct Work<F, T> {
    f: F,
    packet: Arc<Packet<T>>,
    result: PhantomData<T>,
}

impl<F: FnOnce() -> T, T> Work<F, T> {
    /// Runs the closure and leaves its result, or its panic, in the packet.
    fn run(self) {
        let result = catch_unwind(AssertUnwindSafe(self.f));
        // SAFETY: nobody reads it before this thread has given up the packet.
        unsafe { *self.packet.result.get() = Some(result) };
    }
}

/// # Safety
/// As [`spawn`].
unsafe fn start_green<F: FnOnce() -> T + Send, T: Send>(
    cluster: &'static Cluster,
    shared: Arc<Shared>,
    stack_size: Option<usize>,
    priority: Priority,
    work: Work<F, T>,
) -> io::Result<()> {
    /// A larger closure is boxed rather than laid on the stack.
    const LARGE: usize = 2048;
    let green = new_green(cluster, stack_size.unwrap_or(cluster.config.stack_size))?;
    green.cluster.set(Some(cluster));
    // Relaxed: the queue that takes the thread publishes it.
    green
        .shared
        .store(Arc::into_raw(shared).cast_mut(), Ordering::Relaxed);
    green.priority.store(priority.get(), Ordering::Relaxed);
    inherit_mask(cluster, green);
    // SAFETY: the thread is new; `body` does not unwind; lifetimes are the caller's promise.
    unsafe {
        if size_of::<F>() > LARGE {
            let work = Box::new(work);
            // The box is freed in `body`, where that may be done.
            green.prepare(move || body(green, move || work.run()));
        } else {
            green.prepare(move || body(green, move || work.run()));
        }
    }
    match current::enter() {
        Some(entered) if core::ptr::eq(entered.machine().cluster(), cluster) => {
            entered.processor().spawns.add(1);
            sched::ready_from(&entered, green, Readied::Spawned);
        }
        _ => {
            let _off = current::preemption_off();
            cluster.spawned_outside.add_shared(1);
            sched::ready_globally(green, Readied::Spawned);
        }
    }
    Ok(())
}

/// A new thread has the signal mask of its creator, as with std.
fn inherit_mask(cluster: &'static Cluster, new: &'static Green) {
    let may_differ = match current::green() {
        Some(green) => green.oddities.has(Oddities::MASK),
        None => true,
    };
    if may_differ {
        let mask = signal::mask() & !signal::bit(cluster.config.signal);
        if mask != cluster.base_mask {
            new.mask.set(mask);
            new.oddities.add(Oddities::MASK);
        }
    }
}

/// A thread to run something on: the one whose stack was used last on this processor, if there is
/// one.
fn new_green(cluster: &'static Cluster, size: usize) -> io::Result<&'static Green> {
    if size == cluster.config.stack_size
        && let Some(entered) = current::enter()
        && core::ptr::eq(entered.machine().cluster(), cluster)
    {
        // SAFETY: `entered` owns the processor; the reference ends here.
        if let Some(slot) = unsafe { entered.processor().stacks() }.pop() {
            return Ok(Green::of(slot));
        }
    }
    Green::create(size)
}

/// The whole life of a green thread, on its own stack. Starts and ends with preemption off.
fn body(green: &'static Green, work: impl FnOnce()) {
    current::begin(green);
    current::allow_preemption(green);
    // SAFETY: the thread's own block, at the start of its life.
    unsafe { tls::enter() };
    work();
    // SAFETY: the thread's own block, at the end of its life.
    unsafe { tls::exit() };
    if sched::fork::is_child() && current::green().is_none() {
        // The thread that forked has returned in the child: nobody else is there. As libc does when
        // the last pthread ends; std's `exit` takes a lock that may be held for ever (`bare`).
        // SAFETY: no other thread runs, or else it is as in any C program.
        unsafe { libc::exit(0) };
    }
    // SAFETY: the count that `start_green` gave to the thread, which gives it up below.
    let shared = unsafe { &*green.shared.load(Ordering::Relaxed) };
    if shared.end.come() {
        // SAFETY: the thread's own block, at the end of its life again.
        unsafe { tls::exit() };
    }
    // SAFETY: as above; whoever asks for the current thread has done so.
    drop(unsafe { Arc::from_raw(green.shared.swap(core::ptr::null_mut(), Ordering::Relaxed)) });
    current::forbid_preemption(green);
}

/// # Safety
/// As [`spawn`].
unsafe fn start_kernel<F: FnOnce() -> T + Send, T: Send>(
    backend: &'static KernelBackend,
    shared: Arc<Shared>,
    stack_size: Option<usize>,
    work: Work<F, T>,
) -> io::Result<Kernel> {
    let stack_size = stack_size.or(backend.stack_size);
    if let Some(size) = stack_size {
        crate::stack::check_size(size)?;
    }
    backend.enter();
    let (forked, named) = (sched::fork::is_child(), shared.clone());
    let main = move || {
        /// Says that the thread has ended, and counts it out, after every other thread-local
        /// destructor that was registered later. (What a waker registers now runs after this.)
        struct Last(&'static KernelBackend, Thread);
        impl Drop for Last {
            fn drop(&mut self) {
                let _ = self.1.shared().end.come();
                self.0.leave();
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
        }
        if let (true, Some(name)) = (forked, shared.name()) {
            bare::set_name(name);
        }
        let thread = Thread::new(shared);
        LAST.set(Some(Last(backend, thread.clone())));
        handle::set_kernel_thread(thread);
        work.run();
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
