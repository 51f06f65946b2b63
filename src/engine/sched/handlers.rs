//! The program's signal handlers: what must not enter the scheduler while one runs, and how that is known. And libc's
//! own handler for user ids.
//!
//! A handler interrupts its thread anywhere: in the scheduler, while the thread holds a lock of ours, between two
//! writes of the thread pointer. And it ends on the kernel thread on which it began: the kernel restores what
//! belongs to that kernel thread. So a handler neither enters the scheduler nor leaves its kernel thread. In place of the
//! program's handlers the kernel calls [`call`], which hides the thread (`sched::current`) as long as the
//! handler runs.
//!
//! A program sets an action by `sigaction`, whose name is ours: [`set_action`] keeps the handler in [`HANDLERS`], and gives
//! the kernel [`call`], with the preemption signals in its mask. It refuses those signals themselves (EINVAL, as libc does
//! for its own).
//!
//! A program can ask the kernel by itself, too. Such handlers are found by asking the kernel for all actions
//! ([`adopt`]): when a cluster starts, after a system call by `syscall(2)`, and before a thread is preempted,
//! once for all threads that the monitor preempts in one look. A handler that is found is called by [`call`] from then on;
//! and since it may be running unseen, no thread is preempted before it has left its stack by itself.
//!
//! Not counted as the program's: the crate's own handlers, and the two signals that libc keeps.
//!
//! # Deferred wakes
//!
//! By way of the hooked calls of libc a handler can wake threads. It takes no lock. So it pushes a woken thread onto a
//! stack of the cluster ([`DeferredWakes`]) and wakes the monitor, which makes the thread ready. What needs a lock is a
//! *chore*: the lock's owner has registered a function, which the monitor calls, and which finds out by itself
//! what is to be done.
//!
//! Invariants:
//! 1. A thread on the stack was claimed, and belongs to the stack: `next` is its link.
//! 2. No thread is left behind, and no chore: the handler pushes, and then changes the monitor's word; the monitor looks
//!    at the stack after it has said that it sleeps. A monitor that is about to wait for its next look may miss the
//!    change, and sees the thread at that look: 10 ms later at most.
//!
//! Orderings: Release where a thread is pushed or a chore is left, and Acquire where they are taken, are
//! partners: the link, and all that the handler did.
//!
//! # User ids
//!
//! `setuid` and its like change one kernel thread. libc makes them change the process: it sends its
//! own signal to every kernel thread, and the signal's handler makes the same call and reports to
//! the thread's control block. On a kernel thread that runs a green thread, the thread pointer
//! names another block. So libc's handler is wrapped ([`wrap_libcs`]): the kernel thread's own thread pointer is put
//! back while the handler runs.

use core::ffi::c_int;
use core::mem::transmute;
use core::ptr;
use std::sync::OnceLock;

use crate::engine::arch;
use crate::engine::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::engine::policy::Readied;
use crate::engine::probe::{self, By, Readied as Why};
use crate::engine::sched::{Cluster, Green, current, ready_globally, worker};
use crate::engine::sys::signal::{self, KernelAction, Mask, bit};
use crate::engine::sys::{kernel_thread, sanitizer, word};

/// As the kernel calls a handler. A handler with fewer arguments ignores the others.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

// ==== the program's handlers ====

/// libc's own signals, whose handlers it installs by itself.
const LIBCS: core::ops::RangeInclusive<c_int> = 32..=33;

/// The program's handlers, by signal. A word is read only where the kernel has [`call`] for the signal.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];
/// The preemption signals of all clusters.
static RESERVED: AtomicU64 = AtomicU64::new(0);
/// The signals that the program itself ignores, and not whoever has started it.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Whether the program has installed a handler; those for faults do not count.
static EXIST: AtomicBool = AtomicBool::new(false);
/// How often a handler of the program's has begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// Whether the program handles signals: its handlers may run in the scheduler.
#[inline(always)]
pub(crate) fn exist() -> bool {
    EXIST.load(Relaxed)
}

/// The signals that preempt; 0 as long as there are no green threads.
pub(crate) fn reserved() -> u64 {
    RESERVED.load(Relaxed)
}

/// How often a handler of the program's has begun, on whatever thread. A call that fails with EINTR while this stands
/// still was interrupted for the crate's sake.
#[cfg(interposes)]
pub(crate) fn begun() -> usize {
    BEGUN.load(Relaxed)
}

/// From now on `signal` preempts.
pub(crate) fn reserve(signal: c_int) {
    RESERVED.fetch_or(bit(signal), Relaxed);
    adopt();
}

/// Whether `signal` preempts already.
pub(crate) fn is_reserved(signal: c_int) -> bool {
    reserved() & bit(signal) != 0
}

/// Whether the program itself has said that it ignores `signal`.
pub(crate) fn are_ignored(signal: c_int) -> bool {
    IGNORED.load(Relaxed) & bit(signal) != 0
}

/// What the kernel calls in place of the program's handlers.
unsafe extern "C-unwind" fn call(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    BEGUN.fetch_add(1, Relaxed);
    let handler = HANDLERS[signal as usize].load(Relaxed);
    // All that the handler calls has its frames below this one's.
    let frame = 0_u8;
    let hidden = current::hide((&raw const frame).addr());
    // SAFETY: the program's handler, which takes three arguments or fewer; they are the kernel's. A mask's first word has all
    // signals.
    let is_same_mask = unsafe {
        let mask = (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>();
        let before = mask.read();
        transmute::<usize, Handler>(handler)(signal, info, context);
        mask.read() == before
    };
    current::reveal(hidden);
    if !is_same_mask {
        current::mask_changed();
    }
}

fn called() -> usize {
    call as *const () as usize
}

/// Whether an action's handler is one of the program's, and not yet called by [`call`].
fn is_programs(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
        && handler != called()
        && !signal::is_own(handler)
}

/// Keeps the program's handler for `signal`; returns the one before.
fn keep(signal: c_int, handler: usize) -> usize {
    const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    if !FAULTS.contains(&signal) {
        EXIST.store(true, Relaxed);
    }
    HANDLERS[signal as usize].swap(handler, Relaxed)
}

/// Sees to it that the kernel calls [`call`] in place of all of the program's handlers, with the preemption signals
/// blocked. Returns whether there was a handler that was not known. Async-signal-safe.
pub(crate) fn adopt() -> bool {
    let mut is_new = false;
    if sanitizer::IS_TSAN {
        return false; // the kernel has the sanitizer's handlers, which call the program's: `call`
    }
    for signal in (1..=64).filter(|signal| !LIBCS.contains(signal)) {
        let Some(seen) = signal::exchange_action(signal, None) else {
            continue;
        };
        if seen.handler != called() && !is_programs(seen.handler) {
            continue;
        }
        let wanted = KernelAction {
            handler: called(),
            mask: seen.mask | RESERVED.load(Relaxed),
            ..seen
        };
        if wanted == seen {
            continue;
        }
        let before = is_programs(seen.handler).then(|| keep(signal, seen.handler));
        let found = signal::exchange_action(signal, Some(&wanted));
        let Some(newer) = found.filter(|found| *found != seen) else {
            is_new |= before.is_some();
            continue;
        };
        // Another thread was faster: what it has set stays.
        if let Some(before) = before {
            let place = &HANDLERS[signal as usize];
            let _ = place.compare_exchange(seen.handler, before, Relaxed, Relaxed);
        }
        signal::exchange_action(signal, Some(&newer));
    }
    is_new
}

/// The monitor, which looked at `now`, is about to preempt a thread: looks for handlers that came past our functions, with
/// 62 system calls.
pub(super) fn look(now: u64) {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    if LATEST.swap(now, Relaxed) != now && adopt() {
        worker::all().for_each(worker::Worker::spare_thread);
    }
}

/// What `sigaction` does: `real`, libc's function, sets the action, and has [`call`] in place of a handler of the program's.
///
/// # Safety
/// The arguments are those of `sigaction`: valid or null.
#[cfg(interposes)]
pub(crate) unsafe fn set_action(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(*const libc::sigaction) -> c_int,
) -> c_int {
    let Some(place) = usize::try_from(signal).ok().and_then(|i| HANDLERS.get(i)) else {
        return real(new);
    };
    // SAFETY: `new` and `old` are valid or null, as `sigaction` demands; `errno` is the thread's own.
    unsafe {
        let handler = new.as_ref().map(|new| new.sa_sigaction);
        let mut given = new;
        let mut before = place.load(Relaxed);
        let mut ours: libc::sigaction;
        if handler.is_some_and(|new| is_reserved(signal) && !signal::is_own(new)) {
            *libc::__errno_location() = libc::EINVAL;
            return -1;
        }
        if handler.is_some() && matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
            word::faults_are_caught(false); // the crate says so once its handler is in place
        }
        // A child of `vfork` has actions of its own, and none of its own memory.
        let kept = handler.filter(|&new| is_programs(new) && signal > 0);
        let kept = kept.filter(|_| !current::is_child_of_vfork());
        if let Some(handler) = kept {
            before = keep(signal, handler);
            ours = *new;
            ours.sa_sigaction = called();
            let mask: *mut Mask = (&raw mut ours.sa_mask).cast();
            *mask |= RESERVED.load(Relaxed);
            given = &ours;
        }
        let result = real(given);
        if result != 0 {
            if kept.is_some() {
                place.store(before, Relaxed);
            }
            return result;
        }
        match handler {
            Some(libc::SIG_IGN) => _ = IGNORED.fetch_or(bit(signal), Relaxed),
            Some(_) => _ = IGNORED.fetch_and(!bit(signal), Relaxed),
            None => {}
        }
        if let Some(old) = old.as_mut().filter(|old| old.sa_sigaction == called()) {
            old.sa_sigaction = before;
        }
        0
    }
}

// ==== deferred wakes ====

/// The threads of a cluster that handlers have woken.
pub(crate) struct DeferredWakes(AtomicPtr<Green>);

static CHORE: OnceLock<fn()> = OnceLock::new();
static IS_LEFT: AtomicBool = AtomicBool::new(false);

impl DeferredWakes {
    pub(super) const fn new() -> DeferredWakes {
        DeferredWakes(AtomicPtr::new(ptr::null_mut()))
    }

    fn push(&self, green: &'static Green) {
        let new = ptr::from_ref(green).cast_mut();
        let push = |top: *mut Green| {
            // SAFETY: null, or a thread on the stack: records are never freed.
            green.next.set(unsafe { top.as_ref() });
            Some(new)
        };
        // Release: the link, and what the waker did; partner: Acquire in `take_handed`. Acquire: the links
        // of the threads below are handed on.
        let _ = self.0.fetch_update(AcqRel, Relaxed, push);
    }

    /// Whether nothing was left to this cluster's monitor, nor to anyone's.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null() && !IS_LEFT.load(Relaxed)
    }
}

impl Cluster {
    /// The monitor makes ready what was handed to it, in any order.
    pub(super) fn take_handed(&self) {
        if self.deferred.is_empty() {
            return;
        }
        // Acquire: partner: Release in `leave_chore`.
        if IS_LEFT.swap(false, Acquire)
            && let Some(chore) = CHORE.get()
        {
            chore();
        }
        // Acquire: partner: Release in `push`.
        // SAFETY: null, or a thread on the stack: records are never freed.
        let mut rest = unsafe { self.deferred.0.swap(ptr::null_mut(), Acquire).as_ref() };
        while let Some(green) = rest {
            rest = green.next.take();
            probe::readied(By::Outside, green, Why::Arrived);
            ready_globally(green, Readied::Woken);
        }
    }
}

/// Registers what [`leave_chore`] leaves to a monitor. `chore` allocates nothing.
pub(crate) fn register_chore(chore: fn()) {
    CHORE.get_or_init(|| chore);
}

/// A signal handler leaves the chore to the first monitor that looks.
pub(crate) fn leave_chore() {
    // Release: what the handler has noted; partner: Acquire in `take_handed`.
    IS_LEFT.store(true, Release);
    worker::clusters().for_each(|cluster| cluster.monitor.rouse());
}

/// A signal handler leaves it to the monitor to make `green` ready.
#[cold]
pub(super) fn defer_wake(green: &'static Green) {
    let cluster = green.cluster();
    cluster.deferred.push(green);
    cluster.monitor.rouse();
}

// ==== user ids ====

/// The second real-time signal, which libc keeps to itself.
const SIGSETXID: c_int = 33;

/// libc's handler for [`SIGSETXID`]; 0 until it is wrapped.
static LIBCS_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Wraps libc's handler, which libc has installed when the first kernel thread was made. Once per process.
pub(crate) fn wrap_libcs() {
    if let Some(libcs) = signal::exchange_action(SIGSETXID, None)
        && libcs.handler > libc::SIG_IGN
    {
        LIBCS_HANDLER.store(libcs.handler, Relaxed);
        let handler = under_own_thread_pointer as *const () as usize;
        signal::exchange_action(SIGSETXID, Some(&KernelAction { handler, ..libcs }));
    }
}

unsafe extern "C-unwind" fn under_own_thread_pointer(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let id = kernel_thread::id();
    // If this interrupts the scheduler, the green thread that this thread pointer belongs to may be
    // running elsewhere by now. So the worker is found by its kernel thread; the signal is rare.
    let here = worker::all().find(|worker| worker.thread() == id);
    let interrupted = arch::thread_pointer();
    let own = here.map_or(interrupted, |worker| worker.own_thread_pointer.get());
    // SAFETY: libc's handler, with its arguments, under the control block that it expects. This function touches no
    // thread-local itself, and puts back the thread pointer that it found.
    unsafe {
        arch::set_thread_pointer(own);
        transmute::<usize, Handler>(LIBCS_HANDLER.load(Relaxed))(signal, info, context);
        arch::set_thread_pointer(interrupted);
    }
}
