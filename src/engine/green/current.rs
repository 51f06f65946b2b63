//! The current green thread, and its preemption count.
//!
//! [`green`] is the one question before anything enters the scheduler: which green thread is this, at a
//! place where it may enter? `sched::enter` asks it, and so does whatever parks a thread. The answer lies
//! in the runtime's only thread-local, [`OWN`], in the green thread's own block, so it is right wherever the thread
//! runs. On any other kernel thread it is `None`.
//!
//! It is read with preemption off, and in signal handlers. In a shared library the compiler reaches a thread-local by
//! a call of the loader's, which may allocate, or wait for who allocates. So its distance from the thread pointer, the
//! same in every thread, is learnt before the first green thread ([`learn`]), and then it is an addition.
//!
//! It is `None`, too, where a thread must neither enter nor leave its kernel thread (`hiding`).
//!
//! A thread is preempted only while its count `off` is zero. It raises the count to enter the runtime
//! (`sched::enter`), or where it must not be interrupted ([`preemption_off`]).

use core::cell::Cell;
use core::marker::PhantomData;

pub(crate) use super::hiding::VFORK;
use super::hiding::{Changed, Hiding};
use super::{Green, Oddities};
use crate::engine::atomic::{AtomicIsize, Ordering};
use crate::engine::sys::fence::entry_fence;
use crate::engine::{arch, tls};

/// What the runtime keeps in a thread's block.
struct Own {
    hiding: Hiding,
    /// Whether this kernel thread of the runtime, under its own thread pointer, holds a processor.
    is_scheduling: Cell<bool>,
}

thread_local! {
    static OWN: Own = const {
        Own {
            hiding: Hiding::new(),
            is_scheduling: Cell::new(false),
        }
    };
}

/// From the thread pointer to [`OWN`]; 0 as long as there are no green threads.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// Learns where [`OWN`] lies. An error: not at the same distance in every thread, since the library that it is in was loaded
/// after the program.
pub(crate) fn learn() -> Result<(), String> {
    let place = OWN.with(|own| core::ptr::from_ref(own).cast::<u8>());
    match tls::distance_in_block(place) {
        // Relaxed: who runs green threads, or is one, has seen that they were begun.
        Some(distance) => DISTANCE.store(distance, Ordering::Relaxed),
        None => return Err("the loader has put its thread-locals into memory of their own".into()),
    }
    Ok(())
}

/// The calling thread's [`OWN`]; `None` as long as there are no green threads.
#[inline(always)]
fn own<'a>() -> Option<&'a Own> {
    let distance = DISTANCE.load(Ordering::Relaxed);
    let place = arch::thread_pointer()
        .wrapping_offset(distance)
        .cast::<Own>();
    // SAFETY: it lies there in the calling thread's block, which is there for as long as the thread runs.
    (distance != 0).then(|| unsafe { &*place })
}

/// Where the thread is seen, or hidden.
#[inline(always)]
fn hiding<'a>() -> Option<&'a Hiding> {
    own().map(|own| &own.hiding)
}

/// The running green thread, at a place where it may enter the scheduler; `None` on a kernel thread that
/// runs none, and where the thread is hidden.
#[inline]
pub(crate) fn green() -> Option<&'static Green> {
    hiding()?.green()
}

/// Whether this is in a child of `vfork`, which is another process.
pub(crate) fn is_child_of_vfork() -> bool {
    hiding().is_some_and(Hiding::is_child_of_vfork)
}

/// The green thread whose thread pointer this is, hidden or not.
pub(crate) fn owner() -> Option<&'static Green> {
    hiding()?.owner()
}

/// Whether this is in a signal handler of the program's, or in a child of `vfork`: it may have interrupted
/// the scheduler, or a lock's holder.
#[inline]
pub(crate) fn is_hidden() -> bool {
    hiding().is_some_and(Hiding::is_hidden)
}

/// Hides the calling thread: a handler begins that has its frame at `frame`, or the thread is about to
/// make a child by `vfork`. Async-signal-safe.
pub(crate) fn hide(frame: usize) -> Changed {
    hiding().map_or(Changed::NOTHING, |hiding| hiding.hide(frame))
}

/// Takes a [`hide`] back.
pub(crate) fn reveal(changed: Changed) {
    if let Some(hiding) = hiding() {
        hiding.reveal(changed);
    }
}

/// The signal mask may have been changed, here or by what this returns to: the thread takes it along from now on.
pub(crate) fn mask_changed() {
    if let Some(green) = owner() {
        green.oddities.add(Oddities::MASK);
    }
}

/// The thread is hidden no longer, whatever has hidden it.
pub(crate) fn reveal_all() {
    if let Some(hiding) = hiding() {
        hiding.reveal_all();
    }
}

/// The calling thread is a kernel thread's from now on: it is the only one in a forked child. Returns the
/// green thread that it was.
#[inline(never)]
pub(crate) fn forget_green() -> Option<&'static Green> {
    let green = owner();
    if let Some(hiding) = hiding() {
        hiding.forget();
    }
    green
}

/// Notes whether this kernel thread of the runtime holds a processor.
#[inline(never)]
pub(crate) fn set_scheduling(on: bool) {
    if let Some(own) = own() {
        own.is_scheduling.set(on);
    }
}

/// Whether the caller runs with preemption off. For tests: such code must not allocate.
pub(crate) fn is_preemption_off() -> bool {
    match green() {
        Some(green) => green.off.load(Ordering::Relaxed) != 0,
        None => own().is_some_and(|own| own.is_scheduling.get()),
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
    if let Some(hiding) = hiding() {
        hiding.begin(green);
    }
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
