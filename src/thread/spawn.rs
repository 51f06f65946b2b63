//! The road of a spawned closure, from `spawn` to `join`.
//!
//! `spawn` puts the closure into a packet, and makes a thread ready whose first code is [`body`]. It
//! gets a stack when it runs (`sched::start`). `body` runs the closure, leaves its result in the
//! packet, runs the thread-local destructors, and says that the thread has ended (`end`); the run
//! loop buries it.
//!
//! Invariant: what frees memory (the packet, the handle) does so on the thread itself, with
//! preemption on, before it leaves its stack for the last time.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
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
use crate::green::{Green, Oddities, Room, records};
use crate::policy::{Priority, Readied};
use crate::runtime::{Backend, KernelBackend};
use crate::sched::{self, Cluster, start};
use crate::sys::signal;
use crate::tls;

/// The result of a thread: what its closure returned, or what it panicked with.
pub type Result<T> = std::thread::Result<T>;

/// Where a thread finds its closure, and leaves its result. Whose `W` it is only the thread knows:
/// to everybody else it is memory ([`Stowed`]).
struct Packet<T, W: ?Sized = dyn Stowed> {
    result: UnsafeCell<Option<Result<T>>>,
    scope: Option<Arc<ScopeData>>,
    work: W,
}

/// Memory that a closure lies in, or no longer.
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
    mut wishes: Wishes,
    scope: Option<Arc<ScopeData>>,
    f: F,
) -> io::Result<Joiner<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let shared = Shared::new(wishes.name.take());
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
    // SAFETY: the caller's promise.
    unsafe {
        match backend {
            Backend::Green(cluster) => start_green(cluster, shared, &wishes, work)?,
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

/// What a thread is to do: a packet whose closure is there still.
struct Work<F, T>(Arc<Packet<T, Stow<F>>>);

// SAFETY: `spawn` demands that the closure may be sent, and the result.
unsafe impl<F, T> Send for Work<F, T> {}

impl<F, T> Work<F, T> {
    /// The packet, for who waits for the result.
    fn packet(&self) -> Arc<Packet<T>> {
        let packet: Arc<Packet<T, dyn Stowed + '_>> = self.0.clone();
        // SAFETY: only the lifetime changes. Nothing of a closure is reached by way of a `Stowed`,
        // which has no methods, and whose destructor does nothing.
        unsafe { core::mem::transmute(packet) }
    }

    fn into_raw(self) -> *const () {
        Arc::into_raw(self.into_packet()).cast()
    }

    /// # Safety
    /// What `into_raw` of the same type gave, once.
    unsafe fn from_raw(work: *const ()) -> Self {
        // SAFETY: the caller's promise.
        Work(unsafe { Arc::from_raw(work.cast()) })
    }

    /// The packet; the closure in it is the caller's to take, once.
    fn into_packet(self) -> Arc<Packet<T, Stow<F>>> {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is not used again.
        unsafe { core::ptr::read(&this.0) }
    }
}

impl<F: FnOnce() -> T, T> Work<F, T> {
    /// Runs the closure and leaves its result, or its panic, in the packet.
    fn run(self) {
        let packet = self.into_packet();
        // Taken where it is called: a large closure lies on a small stack once.
        // SAFETY: it is there still, and nobody else reaches it.
        let call = || unsafe { (*packet.work.get()).assume_init_read() }();
        let result = catch_unwind(AssertUnwindSafe(call));
        // SAFETY: nobody reads it before this thread has given up the packet.
        unsafe { *packet.result.get() = Some(result) };
    }
}

impl<F, T> Drop for Work<F, T> {
    /// It was not run.
    fn drop(&mut self) {
        // SAFETY: it is there still, and nobody else reaches it.
        unsafe { (*self.0.work.get()).assume_init_drop() }
    }
}

/// # Safety
/// As [`spawn`].
unsafe fn start_green<F: FnOnce() -> T + Send, T: Send>(
    cluster: &'static Cluster,
    shared: Arc<Shared>,
    wishes: &Wishes,
    work: Work<F, T>,
) -> io::Result<()> {
    let green = new_green(cluster, wishes.stack_size)?;
    // SAFETY: the thread is new; `body` does not unwind, and is given what it wants; lifetimes are
    // the caller's promise.
    unsafe { green.prepare((body::<F, T>, work.into_raw())) };
    green.cluster.set(Some(cluster));
    // Relaxed: the queue that takes the thread publishes it.
    green
        .shared
        .store(Arc::into_raw(shared).cast_mut(), Ordering::Relaxed);
    green
        .priority
        .store(wishes.priority.get(), Ordering::Relaxed);
    inherit_mask(cluster, green);
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

/// A record for a new thread. One of the common size of stacks gets its room when it runs, and one
/// was free a moment ago; any other has it from now on.
fn new_green(cluster: &'static Cluster, size: Option<usize>) -> io::Result<&'static Green> {
    let (free, is_stocked) = match current::enter() {
        // SAFETY: `entered` owns the processor; the references end here.
        Some(entered) if core::ptr::eq(entered.machine().cluster(), cluster) => unsafe {
            let processor = entered.processor();
            (processor.records().pop(), !processor.stacks().is_empty())
        },
        _ => (None, false),
    };
    let green = free.map_or_else(records::create, Ok)?;
    let prepared = match size.filter(|&size| size != cluster.config.stack_size) {
        Some(size) => Room::find(size).map(|room| green.move_in(room)),
        None if is_stocked => Ok(()),
        None => start::stock_up(cluster),
    };
    if let Err(error) = prepared {
        let _off = current::preemption_off();
        records::release(green);
        return Err(error);
    }
    Ok(green)
}

/// The whole life of a green thread, on its own stack. Starts and ends with preemption off.
///
/// # Safety
/// `work` is the [`Work::into_raw`] of this thread's work.
unsafe fn body<F: FnOnce() -> T, T>(green: &'static Green, work: *const ()) {
    current::begin(green);
    current::allow_preemption(green);
    // SAFETY: the thread's own block, at the start of its life.
    unsafe { tls::enter() };
    if green.took_last.get() {
        // If there is no memory, the next thread that needs it waits for some.
        let _ = start::stock_up(green.cluster());
    }
    // SAFETY: the caller's promise.
    unsafe { Work::<F, T>::from_raw(work) }.run();
    leave(green);
}

/// The end of a green thread, from after its closure to its stack's last frame.
fn leave(green: &'static Green) {
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
        backend.own_this_thread();
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
