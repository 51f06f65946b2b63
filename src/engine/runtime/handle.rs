//! Handles to threads: what the handles of one thread share ([`Shared`]), the token of `park` and `unpark`, how a thread
//! finds its own handle, how others learn that it has ended ([`End`]), and how one of them gets its result ([`JoinHandle`]).
//!
//! A green thread's data are in its record. A kernel thread owns a share of its data, to which a thread-local points
//! ([`Identity::own`]). They are made when a caller first asks for the handle, and the destructor of a pthread key gives the
//! share up after the destructors of thread-locals, which may ask for the handle.
//!
//! # The end of a thread
//!
//! The thread says once that it has ended, when the destructors of its thread-locals have run. A joiner waits for the token
//! of a [`Waiter`]; a future that awaits the thread first leaves a [`Waker`], and then looks whether the token is there.
//!
//! A waker is foreign code: it may block, panic, use thread-locals, and ask for the current thread.
//! So the ending thread calls it while it is still a whole thread, with preemption on and its
//! handle in place. But it calls the waker after it has said that it ended; otherwise the future
//! could look too early and never be woken again. So its thread-locals have been destroyed by then.
//! The thread-locals that the waker uses are made anew or, where Rust remembers the destruction,
//! are not available (`try_with` fails, as in any destructor of a thread-local; executors are ready
//! for that, since wakers are called there too). The next thread on this block must not find
//! thread-locals that the waker has made anew: so the ending thread runs its destructors again.
//!
//! Rejected: the waker first and then the destructors. The future would either look too early or block its executor until
//! another thread's destructors are done.
//!
//! # Invariants
//!
//! 1. One thread at a time waits for an end or polls it: the owner of the handle. The token, once there, stays
//!    until it is waited for.
//! 2. A registered waker is called, or taken back, or its future sees the end.
//! 3. A thread that is not awaited pays a plain load for all this.
//!
//! # Memory orderings
//!
//! ```text
//!   future                                        ending thread
//!   make `waker`, register in it                  wake `token` (read-modify-write, AcqRel)
//!   look at `token` (read-modify-write, AcqRel)   `waker` made? take the registered one, call it
//! ```
//!
//! Both change one word, so one change comes first in its order. If it is the future's, the thread's
//! change acquires what the future's released (any change between them continues its release
//! sequence), and the thread finds the waker made and registered. If it is the thread's, the future
//! sees the token. Relaxed would do for the thread's load of `waker`, to see that it was made; the
//! load is an Acquire (in `OnceLock`) at no cost. Between a registration that is under way and the
//! thread's taking, `AtomicWaker` decides: the one that comes second calls the newer waker.

#[cfg(not(green))]
use core::cell::Cell;
use core::mem::{ManuallyDrop, offset_of};
use core::{marker::PhantomData, num::NonZeroU64, panic::Location, ptr::NonNull};
#[cfg(unix)]
use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, task::Waker, thread::Result};

use atomic_waker::AtomicWaker;

use super::kernel::Pthread;
use super::spawn::{Act, Packet, Shares, packet_of_unknown_thread};
use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::inspect::notes::{self, Facts, Locator, WaitKind, WaitReason};
use crate::engine::sched::frames::{Cancelled, own_identity, raise};
use crate::engine::sched::park::{Outcome, Waiter};
use crate::engine::sched::{Green, Identity, cancel, current as me, park::Node};
#[cfg(green)]
use crate::engine::sys::libraries;
#[cfg(sim)]
use crate::engine::sys::simulated::{self, Step};
use crate::engine::sys::{clock, die, perturb, word};

/// A unique identifier of a thread, green or kernel, for the life of the process.
///
/// As in std, an identifier is not used again, and it is not the operating system's.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let other = thread::spawn(|| thread::current().id());
/// let id = other.thread().id();
/// assert_eq!(other.join().unwrap(), id);
/// assert_ne!(id, thread::current().id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(pub(crate) NonZeroU64);

/// The data that the handles of one thread share. They begin with the thread's identity, to which a
/// green thread's record points.
#[repr(C)]
pub(super) struct Shared {
    pub(super) identity: Identity,
    /// A green thread's control block, whose address libc uses as the `pthread_t`; 0 until the
    /// thread runs.
    pub(super) pthread: AtomicUsize,
    /// The token of `park` and `unpark`.
    pub(super) token: Waiter,
    pub(super) end: End,
    pub(super) shares: Shares,
    /// The closure has returned.
    pub(super) is_finished: AtomicBool,
    /// By which cancellers find the thread: its place in its scope's list, if it is in one.
    pub(super) node: Node,
    /// What only the code that knows the packet's type can do. It gets the address of these data.
    pub(super) act: unsafe fn(*const Shared, Act),
}

/// For reports: a thread waits until another has begun.
static BEGUN: WaitKind = WaitKind::inside("beginning of a thread");

impl Shared {
    /// Waits for the token of the calling thread, whose data these are.
    #[inline(always)]
    fn park(&self, kind: &'static WaitKind, deadline: Option<u64>) {
        let reason = WaitReason::new(kind, &self.token);
        if self.token.wait(reason, deadline) == Outcome::Expired {
            raise(deadline);
        }
    }

    /// Says, on the ending thread, that it has ended. Returns whether it has called a waker, which
    /// may have made thread-locals.
    #[must_use = "true means that the destructors of thread-locals must run again"]
    pub(super) fn end(&self) -> bool {
        !self.shares.has_no_joiner() && self.end.come()
    }

    /// Returns the `pthread_t` that libc has for the green thread. It exists from the thread's
    /// first run on; this waits for it.
    #[cfg(unix)]
    pub(super) fn pthread(&self) -> RawPthread {
        let alarm = Waiter::new();
        loop {
            // Acquire: partner: Release in `runtime::spawn`.
            match self.pthread.load(Ordering::Acquire) {
                0 => drop(alarm.wait(WaitReason::only(&BEGUN), Some(clock::now() + 50_000))),
                pthread => return pthread as RawPthread,
            }
        }
    }
}

/// A handle to a thread, like [`std::thread::Thread`]: its identity, its name, and a way to unpark
/// it.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let parked = thread::spawn(thread::park);
/// let handle: thread::Thread = parked.thread().clone();
/// handle.unpark();
/// parked.join().unwrap();
/// ```
pub struct Thread(NonNull<Shared>);

// SAFETY: it gives out shared references only, to data of atomics.
unsafe impl Send for Thread where Shared: Send + Sync {}
// SAFETY: as above.
unsafe impl Sync for Thread where Shared: Send + Sync {}

impl Clone for Thread {
    #[inline]
    fn clone(&self) -> Thread {
        self.shared().shares.add();
        Thread(self.0)
    }
}

impl Drop for Thread {
    #[inline]
    fn drop(&mut self) {
        if self.shared().shares.give_up() {
            // SAFETY: it was the last share.
            unsafe { (self.shared().act)(self.as_ptr(), Act::Free) };
        }
    }
}

impl Thread {
    /// Turns a share into the address of the data.
    #[inline]
    pub(super) fn into_raw(self) -> *const Shared {
        ManuallyDrop::new(self).as_ptr()
    }

    /// # Safety
    /// A share of the data there is the caller's, who uses it no more.
    #[inline]
    pub(super) unsafe fn from_raw(shared: *const Shared) -> Thread {
        // SAFETY: data do not lie at address 0.
        Thread(unsafe { NonNull::new_unchecked(shared.cast_mut()) })
    }

    /// The address of the data.
    #[inline]
    pub(super) fn as_ptr(&self) -> *const Shared {
        self.0.as_ptr()
    }

    /// The handle to the calling thread.
    pub(crate) fn current() -> Thread {
        // SAFETY: the calling thread owns a share; it is only borrowed.
        Thread::clone(&ManuallyDrop::new(unsafe {
            Thread::from_raw(own_or_made())
        }))
    }

    /// Blocks the current thread until its token is there, or until `deadline` (monotonic nanoseconds).
    // Always inlined, with kernel threads aside: so a green thread that parks without a deadline saves no registers here.
    #[inline(always)]
    pub(crate) fn park(deadline: Option<u64>) {
        #[cfg(sim)]
        let _operation = me::operation(Step::Call);
        #[cfg(sim)]
        if simulated::is_spurious() {
            return;
        }
        match me::green() {
            // SAFETY: the calling thread owns a share, and is here until the wait is over.
            Some(green) => unsafe { &*of_green(green) }.park(&PARK, deadline),
            None => park_kernel_thread(deadline),
        }
    }

    #[inline]
    pub(super) fn shared(&self) -> &Shared {
        // SAFETY: the data live until the last share is given up, and this is one.
        unsafe { self.0.as_ref() }
    }

    /// Makes the thread's token available: the thread's current call of [`park`](crate::park)
    /// returns, or else its next one.
    ///
    /// Everything that happens before this call is visible to the thread after that `park`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let parked = thread::spawn(|| {
    ///     thread::park();
    ///     "unparked"
    /// });
    /// parked.thread().unpark();
    /// assert_eq!(parked.join().unwrap(), "unparked");
    /// ```
    pub fn unpark(&self) {
        #[cfg(sim)]
        let _operation = me::operation(Step::Call);
        self.shared().token.wake();
    }

    /// Returns the thread's identifier.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let main = thread::current().id();
    /// let other = thread::spawn(|| thread::current().id()).join().unwrap();
    /// assert_ne!(main, other);
    /// ```
    pub fn id(&self) -> ThreadId {
        ThreadId(self.shared().identity.id())
    }

    /// Returns the thread's name, or `None` if it has none. The main thread's name is `"main"`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let unnamed = thread::spawn(thread::park);
    /// assert_eq!(unnamed.thread().name(), None);
    /// # unnamed.thread().unpark();
    ///
    /// let named = thread::Builder::new().name("worker".into()).spawn(thread::park)?;
    /// assert_eq!(named.thread().name(), Some("worker"));
    /// # named.thread().unpark();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.shared().identity.name()
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The data of the calling thread; null on a kernel thread where nobody has asked for them.
fn own() -> *const Shared {
    own_identity().cast()
}

#[cold]
#[inline(never)]
fn park_kernel_thread(deadline: Option<u64>) {
    // SAFETY: the calling thread owns a share, and is here until the wait is over.
    let own = unsafe { &*own_or_made() };
    let kind = match own.identity.spawned_at {
        Some(_) => &PARK_SPAWNED_KERNEL,
        None => &PARK,
    };
    own.park(kind, deadline);
}

/// The data of the calling green thread.
fn of_green(green: &Green) -> *const Shared {
    // Relaxed: the spawner wrote it before the thread was in a queue.
    green.identity.load(Ordering::Relaxed).cast_const().cast()
}

/// Returns the data of the calling thread, which owns a share of them until nobody can ask any more: a green thread until
/// its last instruction, a kernel thread until [`forget`] has made [`own`] null.
fn own_or_made() -> *const Shared {
    match own() {
        shared if shared.is_null() => make_own(),
        shared => shared,
    }
}

#[cold]
fn make_own() -> *const Shared {
    let name = std::thread::current().name().map(Into::into);
    set_kernel_thread(packet_of_unknown_thread(name));
    own()
}

/// Makes `thread` the handle of this kernel thread, which has none yet.
pub(super) fn set_kernel_thread(thread: Thread) {
    let shared = thread.into_raw();
    KernelThread::note_own_identity(shared.cast());
    forget_at_end(shared);
}

/// Gives up `own`, the share that `set_kernel_thread` has kept. A caller that asks for the current thread later makes a new
/// handle, without a name.
fn forget(own: Thread) {
    KernelThread::note_own_identity(core::ptr::null());
    notes::leave_behind(own, false);
}

/// Makes the key whose destructor gives up a kernel thread's share; `None` if the system has no key left.
#[cfg(green)]
pub(super) fn make_key() -> Option<libc::pthread_key_t> {
    unsafe extern "C" fn destroy(shared: *mut libc::c_void) {
        // SAFETY: libc calls this once, with the share that `forget_at_end` has stored.
        forget(unsafe { Thread::from_raw(shared.cast()) });
    }
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        libraries::stay_loaded(); // the destructor's code must stay
        let mut key = 0;
        // SAFETY: the call gets a valid place and a destructor of the right type.
        (unsafe { libc::pthread_key_create(&mut key, Some(destroy)) } == 0).then_some(key)
    })
}

#[cfg(green)]
fn forget_at_end(shared: *const Shared) {
    if let Some(key) = make_key() {
        // SAFETY: the key is valid. If the call fails, or there is no key, one record is not freed.
        unsafe { libc::pthread_setspecific(key, shared.cast()) };
    }
}

#[cfg(not(green))]
fn forget_at_end(shared: *const Shared) {
    struct Share(*const Shared);
    impl Drop for Share {
        fn drop(&mut self) {
            // SAFETY: the share of `set_kernel_thread`; this destructor runs once.
            forget(unsafe { Thread::from_raw(self.0) });
        }
    }
    thread_local! {
        static SHARE: Cell<Option<Share>> = const { Cell::new(None) };
    }
    // If the access fails it is too late, and one record is not freed.
    let _ = SHARE.try_with(|share| share.set(Some(Share(shared))));
}

/// For reports: a thread waits to be unparked. It owns one share of its data itself.
static PARK: WaitKind = WaitKind::unwinding("unpark").with_numbers(handles::<1>);
/// A kernel thread that was spawned here owns three: with its job, as its handle, and for its end (`runtime::kernel`).
static PARK_SPAWNED_KERNEL: WaitKind = WaitKind::unwinding("unpark").with_numbers(handles::<3>);

/// For reports: how many handles there are by which the thread with this token could be unparked. The thread itself
/// owns `OWN` shares.
fn handles<const OWN: usize>(token: usize, facts: &mut Facts) {
    let shared = token.wrapping_sub(offset_of!(Shared, token));
    let shares = shared.wrapping_add(offset_of!(Shared, shares));
    if let Some(shares) = word::read(shares) {
        let others = Shares::count(shares).saturating_sub(OWN);
        facts.number("handles", others as u64);
    }
}

/// How the end of a thread becomes known.
#[derive(Default)]
pub(crate) struct End {
    token: Waiter,
    /// Made by the first future that polls. Boxed: few threads are awaited.
    waker: OnceLock<Box<AtomicWaker>>,
}

// A waker whose code panics leaves itself out, and nothing half done.
impl UnwindSafe for End {}
impl RefUnwindSafe for End {}

/// For reports: a joiner waits.
static JOIN: WaitKind = WaitKind::unwinding("end of a thread").with(TARGET);
#[cfg(hooks)]
static JOIN_OF_PTHREAD: WaitKind = WaitKind::inside("end of a thread").with(TARGET).returns();
const TARGET: Locator = Locator::Target {
    at: offset_of!(Shared, end).wrapping_neg(),
};

impl End {
    fn come(&self) -> bool {
        self.token.wake();
        perturb::point("end: said");
        match self.waker.get() {
            None => false,
            Some(waker) => {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // The hook has reported the panic. Dropping the payload could panic again.
                    core::mem::forget(payload);
                }
                true
            }
        }
    }

    /// Waits for the end, until `deadline` at most (monotonic nanoseconds). Returns whether it has
    /// come; the caller must then not wait for it again.
    // This is always inlined: the processor does not predict returns of a thread that has just been switched to.
    #[inline(always)]
    pub(crate) fn wait(&self, deadline: Option<u64>) -> bool {
        let reason = WaitReason::new(&JOIN, self);
        let outcome = self.token.wait_for_good(reason, deadline);
        if outcome == Outcome::Expired {
            raise(deadline);
        }
        outcome == Outcome::Notified
    }

    /// [`End::wait`], but a signal for the thread may end the wait, and no frame does.
    #[cfg(hooks)]
    pub(crate) fn wait_for_pthread(&self, deadline: u64) -> bool {
        let reason = WaitReason::new(&JOIN_OF_PTHREAD, self);
        self.token.wait_for_good(reason, Some(deadline)) == Outcome::Notified
    }

    /// Returns whether the end has come. If not, `waker` is called when it comes, instead of any
    /// given before.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        self.waker.get_or_init(Box::default).register(waker);
        perturb::point("end: registered");
        let ended = self.token.state.is_notified();
        if ended {
            // The thread may have looked for a waker already, and a handle to it would keep this
            // waker, and its task, alive.
            self.forget_waker();
        }
        ended
    }

    /// Whether the end has come.
    #[cfg(hooks)]
    pub(crate) fn has_come(&self) -> bool {
        self.token.state.is_notified()
    }

    /// Takes back the waker, if one is left.
    pub(crate) fn forget_waker(&self) {
        if let Some(waker) = self.waker.get() {
            drop(waker.take());
        }
    }
}

// ==== the joiner ====

/// A handle to wait for a thread and to get its result, like [`std::thread::JoinHandle`].
///
/// Dropping the handle detaches the thread. The handle can also be awaited: it implements
/// [`IntoFuture`](core::future::IntoFuture).
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handles: Vec<thread::JoinHandle<u32>> = (0..3).map(|i| thread::spawn(move || i * i)).collect();
/// let sum: u32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
/// assert_eq!(sum, 5);
/// ```
pub struct JoinHandle<T> {
    /// The joiner's own share. It is given up by hand.
    thread: ManuallyDrop<Thread>,
    /// In kernel-thread mode, the kernel thread. It is joined too, so that C's work at a thread's end is over.
    pub(super) kernel: Option<Box<Pthread>>,
    packet: PhantomData<Arc<Packet<T>>>,
}

// SAFETY: as std's. A handle is made only for a result that may be sent, and gives it out once.
unsafe impl<T> Send for JoinHandle<T> {}
// SAFETY: as above; a shared handle gives out nothing of the result.
unsafe impl<T> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Makes the joiner of a thread whose packet has a `T`, and owns the share.
    #[inline]
    pub(super) fn new(thread: Thread) -> JoinHandle<T> {
        JoinHandle {
            thread: ManuallyDrop::new(thread),
            kernel: None,
            packet: PhantomData,
        }
    }

    /// Returns a handle to the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::spawn(|| thread::current().id());
    /// let id = handle.thread().id();
    /// assert_eq!(handle.join().unwrap(), id);
    /// ```
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Waits until the thread has ended, including the destructors of its thread-locals, and
    /// returns its result.
    ///
    /// # Errors
    ///
    /// Returns the payload of the panic, if the thread panicked.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// assert_eq!(thread::spawn(|| 6 * 7).join().unwrap(), 42);
    ///
    /// let payload = thread::spawn(|| panic!("on purpose")).join().unwrap_err();
    /// assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    /// ```
    pub fn join(self) -> Result<T> {
        self.forbid_self();
        #[cfg(sim)]
        let _operation = me::operation(Step::Call);
        // The caller waits for a kernel thread's token, too, though it joins that thread below: so reports know
        // for whom the caller waits.
        while !self.thread.shared().end.wait(None) {}
        raised(self.after_end())
    }

    /// Waits like [`JoinHandle::join`], but for `timeout` at most.
    ///
    /// std has no such method. The inner result is that of `join`.
    ///
    /// # Errors
    ///
    /// Returns the handle, if the time is up first: the thread goes on and can still be joined.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::Duration;
    ///
    /// let parked = thread::spawn(thread::park);
    /// let parked = parked.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// parked.thread().unpark();
    /// assert!(parked.join_timeout(Duration::MAX).unwrap().is_ok());
    /// ```
    pub fn join_timeout(self, timeout: Duration) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::after(timeout))
    }

    /// Waits like [`JoinHandle::join`], but until `deadline` at most.
    ///
    /// std has no such method. The inner result is that of `join`.
    ///
    /// # Errors
    ///
    /// Returns the handle, if the deadline passes first: the thread goes on and can still be
    /// joined.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let parked = thread::spawn(thread::park);
    /// let parked = parked.join_deadline(Instant::now()).unwrap_err();
    /// parked.thread().unpark();
    /// parked.join().unwrap();
    /// ```
    pub fn join_deadline(self, deadline: Instant) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::at(deadline))
    }

    fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.forbid_self();
        match self.thread.shared().end.wait(Some(deadline)) {
            true => Ok(raised(self.after_end())),
            false => Err(self),
        }
    }

    fn forbid_self(&self) {
        assert!(
            !core::ptr::eq(own(), self.thread.as_ptr()),
            "failed to join thread: it would wait for itself"
        );
    }

    /// Cancels the thread: ends its waits, those of now and later ones, and those of the threads in its scopes.
    ///
    /// The thread unwinds, or gets errors: see [`cancel`](crate::cancel). It does not wait for the end; after it,
    /// [`join`](JoinHandle::join) returns the closure's value, or [`Cancelled`](crate::cancel::Cancelled) as the payload of
    /// the error.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{cancel, thread};
    ///
    /// let parked = thread::spawn(|| loop {
    ///     thread::park();
    /// });
    /// parked.cancel();
    /// assert!(parked.join().unwrap_err().is::<cancel::Cancelled>());
    /// ```
    #[track_caller]
    pub fn cancel(&self) {
        let shared = self.thread.shared();
        shared.identity.cancelled.give(Location::caller());
        // SeqCst: partner: the fence in `frames::begin`.
        fence(Ordering::SeqCst);
        // SAFETY: records are never freed. Acquire: the record; partner: Release in `spawn_green`.
        let thread = unsafe { shared.node.thread.load(Ordering::Acquire).as_ref() };
        cancel::interrupt_each(thread.into_iter());
    }

    /// Returns whether the thread's closure has returned.
    ///
    /// The thread may still be running destructors of thread-locals. This never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let parked = thread::spawn(thread::park);
    /// assert!(!parked.is_finished());
    /// parked.thread().unpark();
    /// parked.join().unwrap();
    /// ```
    pub fn is_finished(&self) -> bool {
        perturb::point("join: looking");
        // Acquire: the end of the closure; partner: in `Packet::act`.
        self.thread.shared().is_finished.load(Ordering::Acquire)
    }

    /// For a future, which polls it. After that, [`JoinHandle::after_end`] does not wait.
    pub(crate) fn end(&self) -> &End {
        &self.thread.shared().end
    }

    /// Returns the result of the thread, which has ended. In kernel-thread mode it may still run
    /// the destructors of pthread keys; this waits for them.
    pub(crate) fn after_end(self) -> Result<T> {
        let mut this = ManuallyDrop::new(self);
        if let Some(kernel) = this.kernel.take() {
            drop(kernel.join());
        }
        // SAFETY: the thread has ended, and leaves the ending to the joiner.
        let ending = unsafe { &mut *this.packet().ending.get() };
        let (result, scope) = (ending.result.take(), ending.scope.take());
        if let Some(scope) = scope {
            // SAFETY: the thread is in the scope, which therefore lasts; it leaves once.
            unsafe { (scope.as_ref().token.threads).remove(&this.thread.shared().node) };
        }
        // SAFETY: `this` is used no more, and never dropped.
        drop(unsafe { ManuallyDrop::take(&mut this.thread) });
        result.unwrap_or_else(|| die("a thread has ended without a result"))
    }

    /// Turns the joiner into its share.
    #[cfg(hooks)]
    pub(super) fn into_raw(self) -> *const Shared {
        ManuallyDrop::new(self).thread.as_ptr()
    }

    fn packet(&self) -> &Packet<T> {
        // SAFETY: a joiner is made for the thread of a packet with a `T`, and owns a share of it.
        unsafe { &*self.thread.as_ptr().cast() }
    }
}

impl<T> Drop for JoinHandle<T> {
    /// Detaches the thread.
    fn drop(&mut self) {
        if self.thread.shared().shares.leave() {
            // SAFETY: the result and this share are the joiner's, as `leave` says; the share is given up once, here.
            unsafe {
                self.packet().drop_result();
                ManuallyDrop::drop(&mut self.thread);
            }
        }
    }
}

/// A thread that ended because a frame had ended tells the joiner nothing new if the joiner is in that frame, too.
fn raised<T>(result: Result<T>) -> Result<T> {
    if matches!(&result, Err(payload) if payload.is::<Cancelled>()) {
        raise(None);
    }
    result
}

/// See [`os::unix::thread`](crate::os::unix::thread).
#[cfg(unix)]
impl<T> JoinHandleExt for JoinHandle<T> {
    fn as_pthread_t(&self) -> RawPthread {
        match &self.kernel {
            Some(kernel) => kernel.as_pthread_t(),
            None => self.thread.shared().pthread(),
        }
    }

    fn into_pthread_t(mut self) -> RawPthread {
        match self.kernel.take() {
            Some(kernel) => kernel.into_pthread_t(),
            None => self.as_pthread_t(),
        }
    }
}

without_details!([T] JoinHandle<T>, "JoinHandle";);

#[cfg(all(test, green))]
mod tests {
    use super::*;

    #[test]
    fn handles_are_counted() {
        let own = packet_of_unknown_thread(None);
        let others: Vec<_> = (0..3).map(|_| own.clone()).collect();
        let token = &own.shared().token;
        let facts = PARK.facts(core::ptr::from_ref(token).addr());
        assert_eq!(facts.numbers, [("handles", 3)]);
        drop(others);
    }
}
