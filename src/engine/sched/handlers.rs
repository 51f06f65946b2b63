//! The program's signal handlers: what must not enter the scheduler while one runs, and how it is known.
//!
//! A handler interrupts its thread anywhere: in the scheduler, while it holds a lock of ours, between two
//! writes of the thread pointer. And it ends on the kernel thread on which it began: the kernel restores what
//! belongs to that one. So a handler neither enters the scheduler nor leaves its kernel thread. In place of the
//! program's handlers the kernel calls [`call`], which hides the thread (`sched::current`) as long as the
//! handler runs. What a handler leaves to others to do: `handed`.
//!
//! A program sets an action by `sigaction`, whose name is ours: [`set_action`] keeps the handler in [`HANDLERS`], and gives the
//! kernel [`call`], with the preemption signals in its mask. It refuses those signals themselves (EINVAL, as libc does for
//! its own).
//!
//! A program can ask the kernel by itself, too. Such handlers are found by asking the kernel for all actions
//! ([`adopt`]): when a cluster starts, after a system call by `syscall(2)`, and before a thread is preempted,
//! once for all that the monitor preempts in one look. One that is found is called by [`call`] from then on; and since it may be
//! running unseen, no thread is preempted before it has left its stack by itself.
//!
//! Not counted as the program's: the crate's own handlers, and the two signals that libc keeps.

use core::ffi::c_int;
use core::mem::transmute;

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::engine::sched::{current, worker};
use crate::engine::sys::signal::{self, KernelAction, Mask, bit};
use crate::engine::sys::{sanitizer, word};

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

/// The runtime's own signals.
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
    RESERVED.load(Relaxed) & bit(signal) != 0
}

/// Whether the program itself has said that it ignores `signal`.
pub(crate) fn are_ignored(signal: c_int) -> bool {
    IGNORED.load(Relaxed) & bit(signal) != 0
}

/// Whether threads are preempted in this process.
pub(crate) fn is_any_reserved() -> bool {
    RESERVED.load(Relaxed) != 0
}

/// What the kernel calls in place of the program's handlers. The arguments of a handler with fewer are ignored
/// by it.
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
        type Any = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
        let mask = (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>();
        let before = mask.read();
        transmute::<usize, Any>(handler)(signal, info, context);
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
    if !matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL
    ) {
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
        match found.filter(|found| *found != seen) {
            // Another thread was faster.
            Some(newer) => {
                if let Some(before) = before {
                    let _ = HANDLERS[signal as usize].compare_exchange(
                        seen.handler,
                        before,
                        Relaxed,
                        Relaxed,
                    );
                }
                signal::exchange_action(signal, Some(&newer));
            }
            None => is_new |= before.is_some(),
        }
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
    // SAFETY: the caller's promise; the thread's own `errno`.
    unsafe {
        let handler = new.as_ref().map_or(libc::SIG_DFL, |new| new.sa_sigaction);
        let mut given = new;
        let mut before = place.load(Relaxed);
        let mut ours: libc::sigaction;
        if !new.is_null() && is_reserved(signal) && !signal::is_own(handler) {
            *libc::__errno_location() = libc::EINVAL;
            return -1;
        }
        if !new.is_null() && matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
            word::faults_are_caught(false); // the crate says so once its handler is in place
        }
        // A child of `vfork` has actions of its own, and none of its own memory.
        let is_ours = is_programs(handler) && signal > 0 && !current::is_child_of_vfork();
        if is_ours {
            before = keep(signal, handler);
            ours = *new;
            ours.sa_sigaction = called();
            let mask: *mut Mask = (&raw mut ours.sa_mask).cast();
            *mask |= RESERVED.load(Relaxed);
            given = &ours;
        }
        let result = real(given);
        if result != 0 && is_ours {
            place.store(before, Relaxed);
        }
        if result == 0 && !new.is_null() {
            match handler {
                libc::SIG_IGN => IGNORED.fetch_or(bit(signal), Relaxed),
                _ => IGNORED.fetch_and(!bit(signal), Relaxed),
            };
        }
        if result == 0
            && let Some(old) = old.as_mut().filter(|old| old.sa_sigaction == called())
        {
            old.sa_sigaction = before;
        }
        result
    }
}
