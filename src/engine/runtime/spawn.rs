//! A thread's closure and its result: the road of a spawned closure, from `spawn` to `join`.
//!
//! [`Builder`] puts the closure into a packet and starts a thread: a green one or a kernel
//! thread (`runtime::kernel`). [`spawn_green`] makes a thread ready whose first code is [`body`]. The thread gets a stack
//! when it runs (`sched::start`). `body` runs the closure, which leaves its result with the joiner, runs the thread-local
//! destructors, and says that the thread has ended (`runtime::handle`); the run loop takes the stack and the record back.
//!
//! # The packet
//! The thread owns the [`Job`] in the packet; it runs the closure and leaves the result in the
//! packet, where the [`JoinHandle`] finds it. The packet begins with what the thread's handles share. So all that a thread
//! needs is one piece of memory, in which the thread, its joiner and each handle own a share.
//!
//! | part | belongs to | until | and then to |
//! |---|---|---|---|
//! | the closure | the job | the thread takes the closure | nobody |
//! | the result, the scope | the thread | the thread has ended | the joiner; if the joiner has gone, see [`Shares`] |
//!
//! The memory of a packet is freed with the last handle, long after the closure has run. So a large closure has
//! memory of its own ([`LARGE`]), which its call frees.
//!
//! # Shares
//!
//! The owner that gives up the last share frees the memory. The result goes earlier: when the thread has *finished* and
//! its joiner has *gone* without the result, the second of the two drops it.
//!
//! | step | by | the word | then |
//! |---|---|---|---|
//! | `new` | the spawner | two shares | |
//! | `add` | an owner | one share more | |
//! | `finish` | the thread | `FINISHED` | was `GONE` there? The thread drops the result |
//! | `leave` | the joiner | `FINISHED` is there, or no other share: nothing | it drops the result, and then gives up its share |
//! | | | else `GONE`, and one share less, in one step | |
//! | `give_up` | an owner | one share less | was it the last? The owner frees the memory |
//!
//! A thread whose result needs no dropping does not finish. Its result stays where it is until the memory is freed.
//!
//! # Invariants
//! 1. Code that frees memory runs on the thread itself, with preemption on, before the thread leaves its stack for the
//!    last time.
//! 2. One thread sets each flag, once, and owns a share until after that.
//! 3. An owner that finds its share to be the only one stays alone: only owners make new shares. So this owner gives up
//!    its share without an instruction that locks.
//!
//! # Memory orderings
//! - Each owner's accesses come before the freeing: Release in `leave` and `give_up`, Acquire by the owner that frees.
//! - The result is written before it is dropped: Release in `finish`, Acquire in `leave`.

use core::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use core::{cell::UnsafeCell, panic::Location, ptr::NonNull};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, thread::Result};

use super::Backend;
use super::handle::{End, JoinHandle, Shared, Thread};
use super::options::check_stack_size;
use super::scope::{Members, Scope};
use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering::*, fence};
use crate::engine::policy::Priority;
use crate::engine::sched::frames::{self, Frame, What, within};
use crate::engine::sched::park::{Node, Waiter};
use crate::engine::sched::{Identity, current};
use crate::engine::sys::{clock::NEVER, die, perturb};
#[cfg(green)]
use crate::engine::{
    arch::FloatControl,
    inspect::notes,
    policy::Readied,
    probe::{self, By},
    sched::start::{self, ThreadStack, stock_up},
    sched::{self, Cluster, Green, ThreadFlags, thread::Records},
    sys::{sanitizer, shared::entry_fence, signal, signal::Mask},
    tls,
};
#[cfg(sim)]
use crate::engine::{sys::simulated, sys::simulated::Step};

/// The greatest closure, in bytes, whose memory stays as long as there are handles of its thread.
const LARGE: usize = 4 << 10;

/// Puts a closure into a packet.
///
/// # Safety
/// As [`Builder::start`]; and the caller is in the scope.
#[inline(always)]
pub(super) unsafe fn packet<F: FnOnce() -> T + Send, T: Send>(
    identity: Identity,
    scope: Option<&Members>,
    f: F,
) -> (JoinHandle<T>, Job) {
    let (shares, within) = (Shares::new(), scope.map(NonNull::from));
    let packet = if size_of::<F>() > LARGE {
        let f = MaybeUninit::new(Box::new(f));
        Packet::<T, Box<F>>::create(identity, shares, within, f)
    } else {
        Packet::<T, F>::create(identity, shares, within, MaybeUninit::new(f))
    };
    if let Some(scope) = scope {
        // SAFETY: the caller is in the scope. The packet, in which the node lies, lives until it has left.
        unsafe { scope.token.threads.add(&(*packet).node) };
    }
    // SAFETY: of the two shares one is the joiner's, and the other one the job's. The closure may be sent, and outlives the
    // thread.
    let (thread, job) = unsafe { (Thread::from_raw(packet), Job(Thread::from_raw(packet))) };
    (JoinHandle::new(thread), job)
}

/// All that a thread needs outside its stack. Only the thread knows the type `F` of its closure, which lies
/// behind all other parts: for everybody else it is `()`.
#[repr(C)]
pub(super) struct Packet<T, F = ()> {
    shared: Shared,
    pub(super) ending: UnsafeCell<Ending<T>>,
    work: UnsafeCell<MaybeUninit<F>>,
}

/// The result, once the closure has returned, and the scope, which the thread leaves when the result is gone.
pub(super) struct Ending<T> {
    pub(super) result: Option<Result<T>>,
    pub(super) scope: Option<NonNull<Members>>,
}

/// What is to be done with a packet, by the function that knows its type: [`Shared::act`].
pub(super) enum Act {
    /// To run the closure.
    Run,
    /// To drop the closure, which was not run.
    Cancel,
    /// To free the memory: the last share was given up.
    Free,
}

impl<T, F> Packet<T, F> {
    /// Drops the result, if there is one.
    ///
    /// # Safety
    /// The ending belongs to the caller: see the file's header.
    pub(super) unsafe fn drop_result(&self) {
        // SAFETY: no other thread reaches the ending.
        let ending = unsafe { &mut *self.ending.get() };
        let (result, scope) = (ending.result.take(), ending.scope.take());
        // SAFETY: the thread is in the scope, which therefore lasts.
        let scope = scope.map(|scope| unsafe { scope.as_ref() });
        if let (Some(scope), Some(Err(payload))) = (scope, &result) {
            scope.note(&**payload);
        }
        // What its destructor waits for is none of the caller's frames' business.
        let dropping = || within(NEVER, What::End, || drop(result));
        if catch_unwind(AssertUnwindSafe(dropping)).is_err() {
            die("a thread's result panicked while it was dropped");
        }
        if let Some(scope) = scope {
            // SAFETY: the thread leaves once.
            unsafe { scope.token.threads.remove(&self.shared.node) };
        }
    }
}

impl<T, F: FnOnce() -> T> Packet<T, F> {
    /// Makes a packet. The caller owns its shares, as many as `shares` counts.
    #[inline]
    fn create(
        identity: Identity,
        shares: Shares,
        scope: Option<NonNull<Members>>,
        work: MaybeUninit<F>,
    ) -> *const Shared {
        let mut packet = Box::<Packet<T, F>>::new_uninit();
        // The packet is written in place. A move would read in wider words what was just written in narrow ones,
        // and the processor would wait for these writes.
        packet.write(Packet {
            shared: Shared {
                identity,
                pthread: AtomicUsize::new(0),
                token: Waiter::new(),
                end: End::default(),
                shares,
                is_finished: AtomicBool::new(false),
                node: Node::default(),
                act: Packet::<T, F>::act,
            },
            ending: UnsafeCell::new(Ending {
                result: None,
                scope,
            }),
            work: UnsafeCell::new(work),
        });
        Box::into_raw(packet).cast()
    }

    /// See [`Act`].
    ///
    /// # Safety
    /// A packet of this type begins at `share`. The caller owns a share of it and, to run or to cancel the closure, the
    /// job; or, to free the memory, nobody owns a share any more.
    unsafe fn act(share: *const Shared, act: Act) {
        let packet = share.cast_mut().cast::<Packet<T, F>>();
        if let Act::Free = act {
            // SAFETY: the box of `create`, to which nobody points any more. The closure is gone, and so is a result that
            // needs dropping.
            return drop(unsafe { Box::from_raw(packet) });
        }
        // SAFETY: the packet lives as long as the caller's share.
        let packet = unsafe { &*packet };
        let shares = &packet.shared.shares;
        match act {
            Act::Run => {
                // SAFETY: the job's owner alone takes the closure, and takes it once.
                let call =
                    || unsafe { __rust_begin_short_backtrace(packet.work.get().cast::<F>()) };
                // SAFETY: the ending is the thread's until it has ended. It is in the scope, which therefore lasts.
                let frame = unsafe {
                    let scope = (*packet.ending.get()).scope;
                    scope.map(|scope| scope.as_ref().frame())
                };
                let inside = frame.as_ref().map(Frame::enter);
                let result = catch_unwind(AssertUnwindSafe(call));
                #[cfg(sim)]
                let operation = current::operation(Step::Call);
                drop(inside);
                #[cfg(sim)]
                drop(operation);
                // SAFETY: the ending is the thread's until it has ended, and after `finish` if that says so.
                unsafe {
                    let ending = &mut *packet.ending.get();
                    let needs_dropping =
                        needs_drop::<T>() || result.is_err() || ending.scope.is_some();
                    ending.result = Some(result);
                    if needs_dropping && shares.finish() {
                        packet.drop_result();
                    }
                }
                // Release: the end of the closure; partner: Acquire in `JoinHandle::is_finished`.
                packet.shared.is_finished.store(true, Release);
            }
            _ => {
                // This comes first, since the closure may panic while it is dropped.
                if shares.finish() {
                    // SAFETY: `finish` says that the ending is the caller's.
                    unsafe { packet.drop_result() };
                }
                // SAFETY: as above; the closure was not run.
                unsafe { (*packet.work.get()).assume_init_drop() }
            }
        }
    }
}

/// Takes `f` and calls it. Since `f` is taken where it is called, a large closure lies on a small
/// stack only once. A backtrace in std's short form ends here; std knows the frame by its name.
///
/// # Safety
/// As `f.read()`.
#[inline(never)]
unsafe fn __rust_begin_short_backtrace<F: FnOnce() -> T, T>(f: *const F) -> T {
    // SAFETY: the caller gives up the closure at `f`.
    let result = unsafe { f.read() }();
    // This keeps the call above from being a tail call, which would leave no frame.
    core::hint::black_box(());
    result
}

/// Makes the data of a kernel thread that this crate has not started, with one share, the caller's.
pub(super) fn packet_of_unknown_thread(name: Option<Box<str>>) -> Thread {
    let (identity, shares) = (Identity::new(name, None), Shares::of_nobodys_thread());
    let packet = Packet::<(), fn()>::create(identity, shares, None, MaybeUninit::uninit());
    // SAFETY: the packet's only share.
    unsafe { Thread::from_raw(packet) }
}

/// The work of a thread: a share of a packet whose closure has not been taken. Nobody else takes the closure. A job that is
/// dropped drops the closure.
pub(super) struct Job(Thread);

impl Job {
    pub(super) fn thread(&self) -> &Thread {
        &self.0
    }

    /// Runs the closure, which leaves its result with the joiner. Returns the job's share.
    pub(super) fn run(self) -> Thread {
        let thread = self.into_thread();
        // SAFETY: the share of `thread`; the job was the caller's and is no more.
        unsafe { (thread.shared().act)(thread.as_ptr(), Act::Run) };
        thread
    }

    /// Turns the job into its share, which is to be made a job again, once.
    fn into_thread(self) -> Thread {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, and never dropped.
        unsafe { core::ptr::read(&this.0) }
    }
}

impl Drop for Job {
    /// The joiner sees to the rest.
    fn drop(&mut self) {
        // SAFETY: the share is the job's, and the closure was not taken.
        unsafe { (self.0.shared().act)(self.0.as_ptr(), Act::Cancel) };
    }
}

/// Configures a new thread, like [`std::thread::Builder`].
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handle = thread::Builder::new()
///     .name("deep".into())
///     .stack_size(8 << 20)
///     .spawn(|| thread::current().name().unwrap().len())?;
/// assert_eq!(handle.join().unwrap(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "must eventually spawn the thread"]
pub struct Builder {
    name: Option<Box<str>>,
    pub(super) stack_size: Option<usize>,
    priority: Priority,
}

impl Builder {
    /// Creates a builder for a thread without a name, with the runtime's stack size.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().spawn(|| 6 * 7)?;
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the thread's name.
    ///
    /// The name appears in panic messages and in reports of an overflowed stack, and
    /// [`Thread::name`](Thread::name) returns it. [`std::thread::current`] does not know the name of a green
    /// thread: a logger that asks std, for example, gets `None`.
    ///
    /// # Panics
    ///
    /// [`spawn`](Builder::spawn) panics if the name contains a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().name("worker".into()).spawn(|| {
    ///     assert_eq!(thread::current().name(), Some("worker"));
    /// })?;
    /// handle.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name.into_boxed_str());
        self
    }

    /// Sets the size of the thread's stack in bytes, at most 64 GiB.
    ///
    /// It is rounded up to a power of two, and to 16 KiB at least. The default is the runtime's
    /// ([`runtime::Builder::stack_size`](crate::runtime::Builder::stack_size)). A stack takes
    /// memory only as far as it is used.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().stack_size(32 << 10).spawn(|| 6 * 7)?; // 32 KiB
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }

    /// Sets the thread's priority, which some policies take into account.
    ///
    /// Default: [`Priority::NORMAL`]. A running thread changes its own with
    /// [`policy::set_priority`](crate::policy::set_priority).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Priorities, Priority};
    /// use greenthread::{runtime::Runtime, thread};
    ///
    /// let runtime = Runtime::builder().policy(Priorities::new()).build()?;
    /// let handle = runtime.spawn(|| {
    ///     let background = thread::Builder::new().priority(Priority::LOW);
    ///     background.spawn(|| 6 * 7).unwrap().join().unwrap()
    /// });
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = priority;
        self
    }

    /// Spawns the thread on the runtime of the current thread, or on the default one if there is
    /// none.
    ///
    /// A thread gets its stack when it first runs, unless its size differs from the runtime's
    /// default. If there is no memory for the stack by then, the thread waits until another one has
    /// ended.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` if the stack size is not accepted.
    /// - `OutOfMemory` if there is no memory for a stack now.
    /// - The error of starting the default runtime, if this call is the first to use it.
    ///
    /// # Panics
    ///
    /// Panics if the name contains a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().spawn(|| "from a thread")?;
    /// assert_eq!(handle.join().unwrap(), "from a thread");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_on(Backend::here()?, f)
    }

    /// Spawns the thread without lifetime restrictions on the values that it borrows.
    ///
    /// Apart from that, this does the same as [`Builder::spawn`].
    ///
    /// # Safety
    ///
    /// All values that `f` and its result borrow must outlive the thread: either the thread is
    /// joined before they are dropped, or `f` and its result are `'static`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Builder::spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let word = String::from("borrowed");
    /// // SAFETY: the thread is joined before `word` is dropped.
    /// let handle = unsafe { thread::Builder::new().spawn_unchecked(|| word.len()) }?;
    /// assert_eq!(handle.join().unwrap(), 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[allow(unsafe_code, reason = "the promise of std's method, handed on")]
    #[track_caller]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the closure and its result outlive the thread, as the caller says.
        unsafe { self.start(Backend::here()?, None, f) }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn spawn_on<F, T>(self, backend: Backend, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: both types are 'static.
        unsafe { self.start(backend, None, f) }
    }

    /// Starts a thread in a scope.
    #[inline]
    #[track_caller]
    pub(crate) fn spawn_within<'scope, F: FnOnce() -> T + Send + 'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<JoinHandle<T>> {
        // SAFETY: the scope ends only when its threads have dropped their closures and results.
        unsafe { self.start(Backend::here()?, Some(scope.members()), f) }
    }

    /// Starts a thread that may borrow anything.
    ///
    /// # Safety
    /// `f` and its result outlive the thread: they are `'static`, or the scope sees to it.
    #[inline]
    #[track_caller]
    unsafe fn start<F: FnOnce() -> T + Send, T: Send>(
        mut self,
        backend: Backend,
        scope: Option<&Members>,
        f: F,
    ) -> io::Result<JoinHandle<T>> {
        // This function is inlined, so a thread without options costs no look at them.
        if let Some(name) = &self.name
            && let Some(at) = name.find('\0')
        {
            panic!("thread name may not contain NUL bytes, and {name:?} has one at byte {at}");
        }
        self.stack_size.map_or(Ok(()), check_stack_size)?;
        #[cfg(sim)]
        let _operation = current::operation(Step::Call);
        let identity = Identity::new(self.name.take(), Some(Location::caller()));
        // SAFETY: the caller's promise.
        let (mut joiner, job) = unsafe { packet(identity, scope, f) };
        match backend {
            #[cfg(green)]
            Backend::Green(cluster) => spawn_green(cluster, &self, job)?,
            #[cfg(not(green))]
            Backend::Green(cluster) => cluster.never(),
            Backend::Kernel(kernel) => joiner.kernel = Some(Box::new(kernel.spawn(&self, job)?)),
        }
        Ok(joiner)
    }
}

impl Backend {
    /// Returns the backend of a thread that is spawned here: its spawner's, or the default
    /// runtime's.
    #[inline]
    pub(crate) fn here() -> io::Result<Backend> {
        match current::green().filter(|_| !current::is_forked_child()) {
            Some(green) => Ok(Backend::Green(green.cluster())),
            None => Backend::global(),
        }
    }
}

/// Spawns a green thread and returns a handle to join it, like [`std::thread::spawn`].
///
/// There is one difference: `cargo test` captures the output of a test and of its std threads, but
/// not the output of green threads, because std does not let other crates pass the capture on.
///
/// # Panics
///
/// Panics if the thread cannot be started; the message says why. [`Builder::spawn`] returns an
/// error instead.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handle = thread::spawn(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
#[track_caller]
pub fn spawn<F: FnOnce() -> T + Send + 'static, T: Send + 'static>(f: F) -> JoinHandle<T> {
    match Builder::new().spawn(f) {
        Ok(handle) => handle,
        Err(error) => panic!("failed to spawn thread: {error}"),
    }
}

// ==== the life of a green thread ====

/// Starts a green thread.
#[cfg(green)]
fn spawn_green(cluster: &'static Cluster, options: &Builder, job: Job) -> io::Result<()> {
    #[cfg(sim)]
    let at_once = simulated::is_on();
    #[cfg(not(sim))]
    let at_once = false;
    let green = new_green(cluster, options.stack_size, at_once)?;
    set_out(cluster, green, options, None, job);
    Ok(())
}

/// The new thread `green` begins with `job`.
#[cfg(green)]
pub(super) fn set_out(
    cluster: &'static Cluster,
    green: &'static Green,
    options: &Builder,
    mask: Option<Mask>,
    job: Job,
) {
    let spawned_at = job.thread().shared().identity.spawned_at;
    green.spawned_at.store(spawned_at, Relaxed);
    let node = &job.thread().shared().node;
    // Release: the record; partner: Acquire in `sched::cancel`.
    node.thread
        .store(core::ptr::from_ref(green.interrupts()).cast_mut(), Release);
    let share = job.into_thread().into_raw();
    sanitizer::publish(green);
    let _unseen = sanitizer::unseen();
    // SAFETY: the thread is new; `body` does not unwind, and finds the job in the record.
    unsafe { green.prepare(cluster, body) };
    // Either `cancel_all` finds that the record is the cluster's, or this finds the reason. The fence pairs with its barrier.
    entry_fence();
    if cluster.cancelled.get().is_some() {
        green.interrupts().set();
    }
    let identity = share.cast_mut().cast();
    // Release: a report finds the record in the roster, not in a queue; partner: Acquire in `inspect::threads`.
    green.identity.store(identity, Release);
    green.priority.store(options.priority.get(), Relaxed);
    let creator = current::green();
    #[cfg(hooks)]
    green.adopts.set(super::pthread::adopts());
    // The new thread has the signal mask of its creator, as with std.
    if mask.is_some() || creator.is_none_or(|creator| creator.flags.has(ThreadFlags::MASK)) {
        let mask = mask.unwrap_or_else(signal::mask) & !signal::bit(cluster.config.signal);
        if mask != cluster.base_mask {
            green.mask.set(mask);
            green.flags.add(ThreadFlags::MASK);
        }
    }
    // It has the floating-point settings of its creator, too, as with std.
    let floats = FloatControl::current();
    if floats != FloatControl::DEFAULT {
        green.keep_floats(floats);
    }
    green.since.note_time();
    match &mut sched::enter() {
        Some(entered) if core::ptr::eq(entered.worker.cluster(), cluster) => {
            entered.processor().counts.spawned.add(1);
            probe::spawned(By::Thread(entered), green);
            sched::ready_from(&entered.processor(), green, Readied::Spawned);
        }
        _ => {
            let _off = current::preemption_off();
            cluster.live_count.outside.spawned.add_shared(1);
            probe::spawned(By::Outside, green);
            sched::ready_globally(green, Readied::Spawned);
        }
    }
}

/// Makes a record for a new thread. A thread with the common stack size gets its stack when it first
/// runs; a stack was free a moment ago. Any other thread has its stack from now on, as all have `at_once`.
#[cfg(green)]
pub(super) fn new_green(
    cluster: &'static Cluster,
    size: Option<usize>,
    at_once: bool,
) -> io::Result<&'static Green> {
    let _unseen = sanitizer::unseen();
    let (free, is_stocked) = match sched::enter() {
        Some(mut entered) if core::ptr::eq(entered.worker.cluster(), cluster) => {
            let mut processor = entered.processor();
            let own = processor.own();
            (own.records.pop(), !own.stacks.is_empty())
        }
        _ => (None, false),
    };
    let green = free.map_or_else(Records::create, Ok)?;
    let prepared = match size.filter(|&size| size != cluster.config.stack_size) {
        Some(size) => ThreadStack::find(size).map(|stack| green.start_on(stack)),
        None if at_once => start::with_stack(cluster, green),
        None if is_stocked => Ok(()),
        None => stock_up(cluster),
    };
    if let Err(error) = prepared {
        let _off = current::preemption_off();
        Records::release(green);
        return Err(error);
    }
    Ok(green)
}

/// Runs the whole life of a green thread, on its own stack. Starts and ends with preemption off.
///
/// # Safety
/// The thread's identity is that of its job ([`Job::into_thread`]), for this call alone.
#[cfg(green)]
unsafe fn body(green: &'static Green) {
    sanitizer::see_again();
    sanitizer::observe(green);
    current::begin(Some(green));
    // SAFETY: `spawn_green` has left the job there, and nobody else takes it. Relaxed: the queue has published it.
    let job = Job(unsafe { Thread::from_raw(green.identity.load(Relaxed).cast()) });
    // Preemption is on for the first time: user code runs.
    current::on(green);
    #[cfg(sim)]
    let operation = current::operation(Step::Call);
    // SAFETY: the block is the thread's own, at the start of its life.
    unsafe { tls::enter() };
    if green.took_last.get() {
        // If there is no memory, the next thread that needs a stack waits for one.
        let _ = stock_up(green.cluster());
        tls::forget_errno();
    }
    // SAFETY: libc's function only reads the thread pointer.
    let pthread = unsafe { libc::pthread_self() } as usize;
    // Release: partner: Acquire in `Shared::pthread` (`runtime::handle`), whose caller may read the control block.
    job.thread().shared().pthread.store(pthread, Release);
    #[cfg(sim)]
    drop(operation);
    let thread = job.run();
    frames::end();
    leave(green, thread);
}

/// Ends a green thread: all that comes after its closure, up to its stack's last frame. `thread` is the share that `spawn_green`
/// gave to the thread.
#[cfg(green)]
fn leave(green: &'static Green, thread: Thread) {
    // SAFETY: the block is the thread's own, at the end of its life.
    unsafe { tls::exit() };
    // For good: the thread that has the record next begins anew.
    #[cfg(sim)]
    core::mem::forget(current::operation(Step::Call));
    if current::is_forked_child() && current::green().is_none() {
        // This is the thread that has forked, and its closure has returned in the child, where there is no other
        // thread. The process ends, as libc has it when the last pthread ends. (std's `exit` takes a lock that
        // may be held for ever: see `kernel`.)
        // SAFETY: no other thread runs, or else it is as in any C program.
        unsafe { libc::exit(0) };
    }
    if thread.shared().end() {
        // SAFETY: the block is the thread's own, at the end of its life again.
        unsafe { tls::exit() };
    }
    green.interrupts().forget_frames();
    sanitizer::publish(green.cluster());
    probe::ended(green);
    green.identity.store(core::ptr::null_mut(), Relaxed);
    // No code asks for the current thread any more.
    notes::leave_behind(thread, true);
    current::forbid_preemption(green);
}

// ==== the shares ====

/// The thread's result is there, and needs dropping.
const FINISHED: usize = 1;
/// The joiner has gone without the result.
const GONE: usize = 2;
const SHARE: usize = 4;

/// A count of owners and two flags, in one word. See the file's header.
pub(crate) struct Shares(AtomicUsize);

impl Shares {
    /// The shares of a thread and of its joiner.
    pub(crate) fn new() -> Shares {
        Shares(AtomicUsize::new(2 * SHARE))
    }

    /// The share of a thread that has no joiner.
    pub(crate) fn of_nobodys_thread() -> Shares {
        Shares(AtomicUsize::new(SHARE | GONE))
    }

    /// One owner more.
    pub(crate) fn add(&self) {
        // Relaxed: the caller is an owner, as the new one then is.
        if self.0.fetch_add(SHARE, Relaxed) > usize::MAX / 2 {
            die("a thread has too many handles");
        }
    }

    /// One owner less. True: the caller frees the memory.
    #[inline]
    #[must_use = "true means that the memory is the caller's to free"]
    pub(crate) fn give_up(&self) -> bool {
        // Acquire: what the other owners did; partner: Release below, and in `leave`.
        if Shares::is_one(self.0.load(Acquire)) {
            return true;
        }
        perturb::point("shares: not alone");
        // Release: what the caller did; partners: Acquire above, below, and in `leave`.
        let is_last = Shares::is_one(self.0.fetch_sub(SHARE, Release));
        if is_last && cfg!(tsan) {
            self.0.load(Acquire); // this sanitizer ignores fences
        } else if is_last {
            fence(Acquire);
        }
        is_last
    }

    /// The thread has left its result, which needs dropping. True: nobody else will drop it.
    #[must_use = "true means that the result is the caller's to drop"]
    pub(crate) fn finish(&self) -> bool {
        // Release: the result; partner: Acquire in `leave`.
        self.0.fetch_or(FINISHED, Release) & GONE != 0
    }

    /// The joiner goes without the result. True: the result is the joiner's to drop, if there is one, and the joiner still
    /// owns its share.
    #[must_use = "true means that the result is the caller's to drop"]
    pub(crate) fn leave(&self) -> bool {
        // Acquire, each time: the result; partner: Release in `finish`. Or what the other owners did; partner: Release
        // in `give_up`.
        let mut seen = self.0.load(Acquire);
        loop {
            if seen & FINISHED != 0 || Shares::is_one(seen) {
                return true;
            }
            perturb::point("shares: leaving");
            let next = seen - SHARE + GONE;
            // Release: what the caller did; partner: Acquire in `give_up`.
            match self.0.compare_exchange(seen, next, Release, Acquire) {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the joiner has gone: then nobody waits for the end. A no may be out of date.
    #[inline]
    pub(crate) fn has_no_joiner(&self) -> bool {
        self.0.load(Relaxed) & GONE != 0
    }

    /// For reports: how many owners there are, by the word's value.
    pub(crate) fn count(word: usize) -> usize {
        word / SHARE
    }

    fn is_one(word: usize) -> bool {
        Shares::count(word) == 1
    }
}
