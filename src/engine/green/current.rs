//! The current green thread, and its preemption count.
//!
//! The runtime keeps one thread-local of its own, [`CURRENT`]. It lies in the green thread's own
//! block, so it is written once in a thread's life and right wherever the thread runs. On any other
//! kernel thread it is `None`.
//!
//! A thread is preempted only while its count `off` is zero. It raises the count to enter the runtime
//! (`sched::enter`), or where it must not be interrupted ([`preemption_off`]).

use core::cell::Cell;
use core::marker::PhantomData;

use super::Green;
use crate::engine::arch;
use crate::engine::atomic::Ordering;
use crate::engine::sys::fence::entry_fence;

thread_local! {
    static CURRENT: Cell<Option<&'static Green>> = const { Cell::new(None) };
    /// Whether this kernel thread of the runtime, under its own thread pointer, holds a processor.
    static SCHEDULING: Cell<bool> = const { Cell::new(false) };
}

/// The running green thread; `None` on a kernel thread that runs none.
#[inline]
pub(crate) fn green() -> Option<&'static Green> {
    CURRENT.get()
}

/// The green thread whose thread pointer this is.
pub(crate) fn owner() -> Option<&'static Green> {
    CURRENT.get()
}

/// Sets the green thread that runs under this thread pointer. `None`: it is no longer one (in a
/// forked child).
#[inline(never)]
pub(crate) fn set_green(green: Option<&'static Green>) {
    CURRENT.set(green);
}

/// Notes whether this kernel thread of the runtime holds a processor.
#[inline(never)]
pub(crate) fn set_scheduling(on: bool) {
    SCHEDULING.set(on);
}

/// Whether the caller runs with preemption off. For tests: such code must not allocate.
pub(crate) fn is_preemption_off() -> bool {
    match green() {
        Some(green) => green.off.load(Ordering::Relaxed) != 0,
        None => SCHEDULING.get(),
    }
}

/// A word that tells the calling thread, green or kernel, from all others that live: the address of its
/// control block.
#[inline(always)]
pub(crate) fn mark() -> usize {
    arch::thread_pointer() as usize
}

/// Raises the count of `green`, the current thread.
#[inline(always)]
pub(crate) fn off(green: &Green) {
    green
        .off
        .store(green.off.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    // The fence pairs with the monitor's membarrier. It keeps the store before all that the caller
    // does, as a signal handler on this kernel thread sees it.
    entry_fence();
}

/// Lowers the count again. At zero the thread may be preempted, and its processor taken.
#[inline(always)]
pub(crate) fn on(green: &Green) {
    // Release: pairs with the Acquire load of `off` in `sched::monitor`.
    green
        .off
        .store(green.off.load(Ordering::Relaxed) - 1, Ordering::Release);
}

/// Keeps preemption off until it is dropped. It holds no processor: it is for code that uses none.
pub(crate) struct PreemptionOff(Option<&'static Green>, PhantomData<*mut ()>);

/// Switches preemption off. On a kernel thread that runs no green thread this does nothing.
#[inline]
pub(crate) fn preemption_off() -> PreemptionOff {
    let green = green();
    if let Some(green) = green {
        off(green);
    }
    PreemptionOff(green, PhantomData)
}

/// [`preemption_off`] for a guard that users get: safe code can forget any number of guards, and
/// the count must not overflow. (`Arc` aborts at as many references.)
#[inline]
pub(crate) fn preemption_off_by_user() -> PreemptionOff {
    let off = preemption_off();
    let count = off.0.map_or(0, |green| green.off.load(Ordering::Relaxed));
    if count > MOST_GUARDS {
        crate::engine::sys::die("a thread has forgotten 2^31 guards of policies' locks");
    }
    off
}

const MOST_GUARDS: u32 = 1 << 31;

impl Drop for PreemptionOff {
    #[inline]
    fn drop(&mut self) {
        if let Some(green) = self.0 {
            on(green);
        }
    }
}

/// Makes a new green thread the current one, with preemption off: its first code.
#[inline(never)]
pub(crate) fn begin(green: &'static Green) {
    CURRENT.set(Some(green));
}

/// Switches preemption on for the first time, before user code runs.
#[inline]
pub(crate) fn allow_preemption(green: &'static Green) {
    on(green);
}

/// Switches preemption off for the last time; the thread then leaves its stack for good. The guards
/// that it has forgotten (`policy::Guard`) do not concern the next thread that has its record.
#[inline]
pub(crate) fn forbid_preemption(green: &'static Green) {
    green.off.store(1, Ordering::Relaxed);
    entry_fence();
}
