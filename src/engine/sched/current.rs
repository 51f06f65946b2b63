//! The current green thread: which one it is, its preemption count, and its way into the runtime.
//!
//! [`green`] is the one question before anything enters the scheduler: which green thread is this, at a
//! place where it may enter? The answer lies in the runtime's only thread-local, [`OWN`], in the green
//! thread's own block, so it is right wherever the thread runs. On any other kernel thread it is `None`.
//! It is `None`, too, where a thread must neither enter nor leave its kernel thread (`hiding`).
//!
//! It is read with preemption off, and in signal handlers. In a shared library the compiler reaches a thread-local by
//! a call of the loader's, which may allocate, or wait for who allocates. So its distance from the thread pointer, the
//! same in every thread, is learnt before the first green thread ([`learn`]), and then it is an addition.
//!
//! A thread is preempted only while its count `off` is zero. It raises the count to enter the runtime
//! ([`enter`]), or where it must not be interrupted ([`preemption_off`]).
//!
//! Between [`enter`] and the end of [`Entered`] the thread is not preempted and its processor is not
//! taken, so a value that it reads of them stays true. The way in takes three steps whose order
//! matters:
//!
//! ```text
//!   thread                                  monitor (sched::processor)
//!   off += 1                                processor word: p -> null
//!   compiler fence                          membarrier
//!   read the processor word                 read off, current, tick
//! ```
//!
//! Either the thread reads null and takes the slow way, or the monitor reads `off != 0` and gives p
//! back: the membarrier makes the compiler fence a full one at the only moment that matters. The
//! way out is a Release store of `off`, which pairs with the monitor's Acquire load: the next owner
//! of the processor sees all changes that were made to it here. On its way out a thread whose time
//! slice is over gives way (the first of the three steps of preemption).
//!
//! A thread that is about to block, or may, announces that by a flag in its record, which the monitor
//! reads. One that has announced a blocking call loses its processor at once if others wait; one in a
//! call that may block is not signalled.

use core::cell::Cell;
use core::marker::PhantomData;

use super::hiding::{Changed, Hiding};
use crate::engine::atomic::{AtomicBool, AtomicIsize, Ordering, compiler_fence};
use crate::engine::sched::switch::Action;
use crate::engine::sched::{Green, Owned, Processor, ThreadFlags, Worker};
use crate::engine::sys::lock::entry_fence;
use crate::engine::sys::perturb;
use crate::engine::sys::sanitizer::{self, Unseen};
use crate::engine::{arch, tls};

pub(crate) use super::hiding::VFORK;

// ==== who am I ====

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
        green.flags.add(ThreadFlags::MASK);
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

/// Switches preemption off for the last time; the thread then leaves its stack for good. The guards
/// that it has forgotten (`policy::Guard`) do not concern the next thread that has its record.
#[inline]
pub(crate) fn forbid_preemption(green: &'static Green) {
    green.off.store(1, Ordering::Relaxed);
    entry_fence();
}

// ==== inside the runtime ====

/// The current green thread inside the runtime: preemption off, and a processor that nobody takes
/// away.
pub(crate) struct Entered {
    green: &'static Green,
    worker: &'static Worker,
    processor: Owned<'static>,
    _unseen: Unseen,
}

/// Enters the runtime; `None` on a kernel thread that runs no green thread.
#[inline]
pub(crate) fn enter() -> Option<Entered> {
    let green = green()?;
    off(green);
    Some(inside(green, sanitizer::unseen()))
}

/// With preemption off: finds the processor, or waits for one.
#[inline]
fn inside(green: &'static Green, unseen: Unseen) -> Entered {
    perturb::point("enter");
    loop {
        let worker = green.worker();
        let processor = worker.processor.get().or_else(|| recover(worker));
        if let Some(processor) = processor {
            // SAFETY: the word says that this kernel thread owns it, and preemption is off.
            // (`processor` treats a signal handler that interrupts the runtime.)
            let processor = unsafe { Owned::assume(processor) };
            return Entered {
                green,
                worker,
                processor,
                _unseen: unseen,
            };
        }
        // The processor is gone: queue for another. The run loop sees that there is none and does
        // the rest.
        // SAFETY: `green` is the current thread, so this is its stack.
        unsafe { green.context.suspend(Action::Yield) };
    }
}

/// The processor was taken, or the monitor is about to decide: settles that, then looks for an idle
/// processor.
#[cold]
#[inline(never)]
fn recover(worker: &'static Worker) -> Option<&'static Processor> {
    worker
        .processor
        .settle()
        .or_else(|| worker.cluster().take_idle_processor(worker))
}

impl Entered {
    #[inline(always)]
    pub(crate) fn green(&self) -> &'static Green {
        self.green
    }

    #[inline(always)]
    pub(crate) fn worker(&self) -> &'static Worker {
        self.worker
    }

    #[inline(always)]
    pub(crate) fn processor(&mut self) -> Owned<'_> {
        self.processor.lend()
    }

    /// Leaves the stack with `action`, and leaves the runtime once the thread has been resumed.
    #[inline(always)]
    pub(crate) fn suspend(self, action: Action) {
        perturb::point("suspend");
        let green = self.green;
        // Once resumed, the thread may be on another kernel thread: no part of `self` is valid any
        // more.
        core::mem::forget(self);
        // SAFETY: an `Entered` exists on its own green thread only.
        unsafe { green.context.suspend(action) };
        compiler_fence(Ordering::SeqCst);
        sanitizer::see_again();
        on(green);
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let give_way = self.worker.is_slice_over() && self.green.off.load(Ordering::Relaxed) == 1;
        on(self.green);
        if give_way {
            give_way_now();
        }
    }
}

/// The time slice is over and the monitor has said so: the thread goes to the global queue.
#[cold]
#[inline(never)]
fn give_way_now() {
    if let Some(entered) = enter() {
        entered.suspend(Action::Preempt);
    }
}

/// The preemption trampoline's destination: leaves the stack in the middle of user code.
///
/// # Safety
/// Called by the trampoline only: the signal handler has set `off` to 1.
pub(crate) unsafe fn suspend_preempted() {
    if let Some(green) = green() {
        // SAFETY: the trampoline runs on the current thread's stack.
        unsafe { green.context.suspend(Action::Preempt) };
        compiler_fence(Ordering::SeqCst);
        on(green);
    }
}

// ==== calls that block ====

/// Runs `f`, which blocks the kernel thread.
pub(crate) fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.announced, f)
}

/// Runs `f`, whose system calls may block but seldom do, at little more than their cost.
///
/// The thread keeps its processor until the monitor sees that it is blocked, or that it has gone on
/// for longer than its time slice. The monitor does not signal it meanwhile, so a call that a
/// signal would end early does all its work.
#[cfg(green)]
pub(crate) fn may_block<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.in_call, f)
}

/// Runs `f` with one of the thread's flags set.
#[inline]
fn with_flag<T>(flag: impl Fn(&Green) -> &AtomicBool + Copy, f: impl FnOnce() -> T) -> T {
    struct Set<F: Fn(&Green) -> &AtomicBool>(F, bool);
    impl<F: Fn(&Green) -> &AtomicBool> Drop for Set<F> {
        fn drop(&mut self) {
            if let Some(green) = green() {
                (self.0)(green).store(self.1, Ordering::Relaxed);
                // The thread gives way if its slice is over. If its processor is gone, it takes
                // that back, or takes an idle one, or queues for one.
                drop(enter());
            }
        }
    }
    // Only the thread itself writes the flag.
    let before = green().is_some_and(|green| {
        let flag = flag(green);
        let before = flag.load(Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        before
    });
    let _set = Set(flag, before);
    f()
}
