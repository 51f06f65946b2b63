//! Signals for one green thread (`pthread_kill`), and its cancellation by C (`pthread_cancel`).
//!
//! The kernel knows kernel threads only. So such a signal is *noted* in the thread's stack, a bit for each number, and the note is
//! all that counts. The rest *calls* the thread, so that it heeds the note:
//!
//! | the thread … | then |
//! |---|---|
//! | is parked in a call that a signal may interrupt | the wait ends (`park`, as for a frame that has ended) |
//! | is about to park so | it looks, and does not |
//! | runs, or is blocked in the kernel | its kernel thread gets libc's first signal, with the thread's pthread as its value (`signals`): a system call that waits fails with EINTR; code of the program's is interrupted |
//! | is ready, or parked in another way | the monitor calls it when it runs |
//!
//! The thread itself takes the note, and calls the program's handler as the kernel would: in a hooked call when that is over, or its
//! wait (`libc::pthread::signals`), else in the handler of the call. The program's signals are never sent to a kernel
//! thread, where another thread may run by then. A call that comes to the wrong thread, or too early or late, does nothing: the
//! kernel makes a system call again, as far as it does that for any signal.
//! A signal that the thread blocks stays noted until it unblocks it, or waits for it (`sigwait`).
//!
//! A cancellation is noted by the numbers of libc's own signals. libc's flag in the control block says that the thread is
//! cancelled. [`LOOK`]: the hooked calls, which are cancellation points, look at the flag. [`CANCEL`]: libc's handler must run on
//! the thread, too, which sets the flag (before glibc 2.41), and acts at once in a system call of libc's.
//!
//! # Limits
//! A signal that is noted already is not noted twice, a real-time one neither, and values (`pthread_sigqueue`) are lost.
//!
//! # Orderings
//! The note is written before the thread is pinned or called, and what wakes the thread orders it (`park`). What the sender did
//! comes before what the handler does: AcqRel where a bit changes.

use crate::engine::atomic::Ordering::*;
use crate::engine::sched::cancel::Pinned;
use crate::engine::sched::{Fifo, Green, Worker, current, ready, start::ThreadStack};
pub(crate) use crate::engine::sys::signal::LIBCS as OWN;
use crate::engine::sys::signal::{self, Mask, bit};
use crate::engine::sys::{clock, perturb};

/// glibc's SIGCANCEL. Noted if libc has sent it: the thread lets itself be cancelled at once, if only in a system call of libc's.
pub(crate) const CANCEL: i32 = 32;
/// The number of libc's other signal. Noted, it says that the thread is to look whether it is cancelled.
pub(crate) const LOOK: i32 = 33;

/// What a handler that has run does to the call that a thread makes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Interruption {
    /// The thread makes no call, or one that no signal interrupts, and that is no cancellation point.
    None,
    /// The call is made again, if all handlers have SA_RESTART.
    Restarts,
    /// The call returns with what it has.
    Returns,
}

/// Makes `call`, to which a signal does that. The thread takes notes itself when the call is over: if a handler ran before the call
/// has seen the note, it would not know that it is to return.
#[inline]
pub(crate) fn during<T>(how: Interruption, call: impl FnOnce() -> T) -> T {
    let green = current::green();
    let before = green.map(|green| green.interruption.swap(how as u8, Relaxed));
    let answer = call();
    if let (Some(green), Some(before)) = (green, before) {
        green.interruption.store(before, Relaxed);
    }
    answer
}

/// Whether it is in such a call.
pub(super) fn is_in_call(green: &Green) -> bool {
    green.interruption.load(Relaxed) != Interruption::None as u8
}

/// Sends the signal to the green thread of this pthread, which C has made. Async-signal-safe.
pub(crate) fn send(pthread: usize, number: i32) {
    let is_alive =
        |stack: &&ThreadStack| stack.joinable.is_pthread() && !stack.joinable.has_ended();
    let Some(stack) = ThreadStack::of_pthread(pthread).filter(is_alive) else {
        return;
    };
    // SeqCst: partner: in `let_cancel`.
    if bit(number) & OWN != 0 && stack.is_uncancellable.load(SeqCst) {
        return;
    }
    stack.directed.fetch_or(bit(number), AcqRel);
    perturb::point("directed: noted");
    let Some((_, green)) = ThreadStack::owner_of(stack.slot) else {
        return;
    };
    let mut woken = Fifo::new();
    {
        let _off = current::preemption_off();
        let mut pinned = Pinned::none();
        pinned.pin(green.interrupts());
        pinned.barrier();
        pinned.interrupt(&mut woken);
    }
    // It looks itself.
    if let Some(green) = woken.pop() {
        return ready(green);
    }
    let worker = green.last_worker();
    if let Some(worker) = worker.filter(|worker| worker.is_running(green)) {
        call(worker, stack);
    }
}

/// Calls the thread that has this stack at the kernel thread of `worker`. If the system refuses, the monitor tries again.
fn call(worker: &Worker, stack: &ThreadStack) {
    let _ = signal::tell(worker.thread(), CANCEL, stack.pthread());
}

/// The monitor has found `green` running on `worker`: it may not have heard of what is noted. A thread that blocks the signal is
/// called in vain, so this is not too often.
pub(super) fn remind(worker: &Worker, green: &Green) {
    const PAUSE: u32 = 10; // milliseconds
    let Some(stack) = green.stack() else { return };
    let now = (clock::now() / 1_000_000) as u32;
    if stack.directed.load(Relaxed) & !bit(LOOK) != 0
        && now.wrapping_sub(worker.reminded.load(Relaxed)) >= PAUSE
    {
        worker.reminded.store(now, Relaxed);
        call(worker, stack);
    }
}

/// Whether the calling thread lets itself be cancelled from now on.
pub(crate) fn let_cancel(is_so: bool) {
    if let Some(stack) = current::owner().and_then(Green::stack) {
        // SeqCst: the canceller, which sets the flag first, sees this, or the thread sees the flag; partner: in `send`.
        stack.is_uncancellable.swap(!is_so, SeqCst);
        stack.directed.fetch_or(bit(LOOK), Relaxed);
    }
}

/// The calling thread asks C for another type of cancellation. Returns the one before; `None`: C has not made the thread.
pub(crate) fn set_type(kind: i32) -> Option<i32> {
    let stack = current::owner().and_then(Green::stack)?;
    let is_async = stack.joinable.is_pthread().then_some(kind != 0)?;
    Some(stack.is_asynchronous.swap(is_async, Relaxed).into())
}

/// Whether the signal is noted for the thread.
pub(super) fn is_noted(green: &Green, number: i32) -> bool {
    green
        .stack()
        .is_some_and(|stack| stack.directed.load(Relaxed) & bit(number) != 0)
}

/// The stack of the calling thread, if something is noted there.
#[inline]
fn noted() -> Option<&'static ThreadStack> {
    let stack = current::green()?.stack()?;
    (stack.directed.load(Relaxed) != 0).then_some(stack)
}

/// What is noted for the calling thread.
#[inline]
pub(crate) fn pending() -> Mask {
    noted().map_or(0, |stack| stack.directed.load(Relaxed))
}

/// What is noted for the calling thread, and not blocked.
#[inline]
pub(crate) fn due() -> Mask {
    match pending() {
        0 => 0,
        // libc lets no mask block its own signals.
        noted => noted & !(signal::mask() & !OWN),
    }
}

/// What is due, and ends waits of the kinds that heed these, where the thread is in a call that sees to it.
pub(crate) fn ends_waits(heeded: Mask) -> bool {
    let Some(green) = noted().and_then(|_| current::green()) else {
        return false;
    };
    // A wait for a lock calls handlers by itself.
    (is_in_call(green) || heeded & OWN == 0) && due() & heeded != 0
}

/// The calling thread takes the note of one of these signals, if there is one. Returns its number.
pub(crate) fn take(of: Mask) -> Option<i32> {
    let stack = noted()?;
    let found = stack.directed.load(Relaxed) & of;
    let number = (found != 0).then(|| found.trailing_zeros() as i32 + 1)?;
    let before = stack.directed.fetch_and(!bit(number), AcqRel);
    (before & bit(number) != 0).then_some(number)
}
