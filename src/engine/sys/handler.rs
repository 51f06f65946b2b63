//! The handler of signals that are to become messages: the handler leaves a bit in a word and wakes the
//! thread that waits for signals.
//!
//! ```text
//!   handler (any thread)              the waiting thread
//!   former handler, if any            s = SEQUENCE            (Acquire)
//!   PENDING |= bit     (Release)      came = PENDING.swap(0)  (Acquire)
//!   SEQUENCE += 1      (Release)      came == 0: futex wait while SEQUENCE == s
//!   futex wake
//! ```
//!
//! Invariants:
//! 1. No signal is lost: if the swap misses the bit, the waiting thread has read `SEQUENCE` before
//!    it was raised (its Acquire pairs with the raise's Release), so the futex does not block it.
//! 2. The handler runs on the alternate stack: a green thread's stack may have little space left.
//!    The other signals are blocked meanwhile: an alternate stack of std's is too small for two
//!    handlers. The handler touches no thread-local, `errno` included. (The usual crate for this,
//!    `signal-hook-registry`, asks for no alternate stack; with one fixed action its table of
//!    actions would be of no use here.)
//! 3. A handler stays for good, and so does the stored former one.
//! 4. Nobody hears of a signal while a handler is at work. It may be running on the main thread's alternate stack, which
//!    std unmaps when any thread calls `exit`, as a thread does that is told to stop. (The few instructions of the way out
//!    are left, and the system's own.)

use core::ptr::null_mut;
use std::io;

use super::signal::{self as kernel, Mask, bit};
use super::{futex, kernel_thread};
use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The signals that came and were not fetched.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// The number of times that the waiting thread had a reason to look.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
/// The number of handlers that have not done all they do.
static HANDLING: AtomicU32 = AtomicU32::new(0);
/// The nanoseconds after which [`next`] looks again whether handlers are at work.
const NEARLY_DONE: u64 = 20_000;
/// Whether [`catch`] was called.
static USED: AtomicBool = AtomicBool::new(false);
/// The former handlers of those signals that had one; boxes that are never freed.
static FORMER: [AtomicPtr<libc::sigaction>; 65] = [const { AtomicPtr::new(null_mut()) }; 65];

/// Lets [`next`] return.
pub(crate) fn wake() {
    // Release: pairs with the Acquire in `next`: the bit comes before.
    SEQUENCE.fetch_add(1, Ordering::Release);
    futex::wake(&SEQUENCE, 1);
}

/// Calls `prepare` and takes the signals that have come. If none has, waits until [`wake`] is called, unless that has
/// happened since `prepare`, and returns none.
pub(crate) fn next(prepare: impl FnOnce()) -> Mask {
    // Acquire: pairs with the Release in `wake`.
    let sequence = SEQUENCE.load(Ordering::Acquire);
    prepare();
    // Acquire: pairs with the Release in `on_signal`.
    let came = PENDING.swap(0, Ordering::Acquire);
    if came == 0 {
        futex::wait(&SEQUENCE, sequence, None);
    }
    // Acquire: pairs with the Release in `on_signal`: all but the handler's way out is done.
    while came != 0 && HANDLING.load(Ordering::Acquire) != 0 {
        kernel_thread::rest(NEARLY_DONE);
    }
    came
}

/// Whether the program has asked for a signal.
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Puts the handler in place, for good. `unblocked`: the signals that may interrupt it.
pub(crate) fn catch(signal: i32, unblocked: impl Iterator<Item = i32>) -> io::Result<()> {
    let former = kernel::action(signal).ok_or_else(io::Error::last_os_error)?;
    let mut ours = former;
    ours.sa_sigaction = on_signal as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the set is valid, and stays so.
    unsafe {
        libc::sigfillset(&mut ours.sa_mask);
        unblocked.for_each(|signal| _ = libc::sigdelset(&mut ours.sa_mask, signal));
    }
    if !matches!(former.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        let former = Box::into_raw(Box::new(former));
        // Release: pairs with the Acquire in the handler.
        FORMER[signal as usize].store(former, Ordering::Release);
    }
    USED.store(true, Ordering::Relaxed);
    // SAFETY: a valid action, whose handler has the type that SA_SIGINFO demands.
    match unsafe { libc::sigaction(signal, &ours, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the pointer is null, or leads to a box that is never freed.
    if let Some(former) = unsafe { FORMER[signal as usize].load(Ordering::Acquire).as_ref() } {
        // SAFETY: the handler has the type that its flags say; the arguments are the kernel's.
        unsafe {
            let handler = former.sa_sigaction;
            if former.sa_flags & libc::SA_SIGINFO != 0 {
                core::mem::transmute::<usize, kernel::Handler>(handler)(signal, info, context)
            } else {
                core::mem::transmute::<usize, extern "C" fn(i32)>(handler)(signal)
            }
        }
    }
    HANDLING.fetch_add(1, Ordering::Relaxed);
    PENDING.fetch_or(bit(signal), Ordering::Release);
    wake();
    // Release: pairs with the Acquire in `is_busy`: all but the way out is done.
    HANDLING.fetch_sub(1, Ordering::Release);
}
