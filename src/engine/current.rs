//! Who am I: the current green thread, its preemption count, and the one door to the kernel
//! thread's state.
//!
//! The runtime keeps one thread-local of its own, [`CURRENT`]. It lies in the green thread's own
//! block, so it is written once in a thread's life and right wherever the thread runs. On any other
//! kernel thread it is `None`.
//!
//! The door is [`enter`]. Between it and the end of [`Entered`] the thread is not preempted and its
//! processor is not taken, so what it reads of them stays true. The way in, three steps whose order
//! matters:
//!
//! ```text
//!   thread                                  monitor (sched::ownership)
//!   off += 1                                processor word: p -> null
//!   compiler fence                          membarrier
//!   read the processor word                 read off, current, tick
//! ```
//!
//! Either the thread reads null and takes the slow way, or the monitor reads `off != 0` and gives p
//! back: the membarrier makes the compiler fence a full one at the only moment it matters. The way
//! out is a Release store of `off`, which pairs with the monitor's Acquire load: whoever gets the
//! processor next sees all that was done to it here.
//!
//! Leaving is also where a thread whose time slice is over gives way (the first of the three steps
//! of preemption).

use core::cell::Cell;
use core::marker::PhantomData;

use crate::engine::atomic::{Ordering, compiler_fence};
use crate::engine::context::Action;
use crate::engine::green::Green;
use crate::engine::sched::{Machine, Processor, entry_fence};
use crate::engine::sys::perturb;

thread_local! {
    static CURRENT: Cell<Option<&'static Green>> = const { Cell::new(None) };
    /// On a kernel thread of the runtime, under its own thread pointer: does it hold a processor?
    static SCHEDULING: Cell<bool> = const { Cell::new(false) };
}

/// The running green thread; `None` on a kernel thread that runs none.
#[inline]
pub(crate) fn green() -> Option<&'static Green> {
    CURRENT.get()
}

/// Says who the green thread is that runs under this thread pointer. `None`: no longer one (a
/// forked child).
#[inline(never)]
pub(crate) fn set_green(green: Option<&'static Green>) {
    CURRENT.set(green);
}

/// Says whether this kernel thread of the runtime holds a processor.
#[inline(never)]
pub(crate) fn set_scheduling(on: bool) {
    SCHEDULING.set(on);
}

/// Whether the code that asks runs with preemption off. For tests: such code must not allocate.
pub(crate) fn is_preemption_off() -> bool {
    match green() {
        Some(green) => green.off.load(Ordering::Relaxed) != 0,
        None => SCHEDULING.get(),
    }
}

#[inline(always)]
fn off(green: &Green) {
    green
        .off
        .store(green.off.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    // Pairs with the monitor's membarrier, and keeps this before all that the caller does, as a
    // signal handler on this kernel thread sees it.
    entry_fence();
}

#[inline(always)]
fn on(green: &Green) {
    // Release: pairs with the Acquire load of `off` in `sched::sysmon`.
    green
        .off
        .store(green.off.load(Ordering::Relaxed) - 1, Ordering::Release);
}

/// Preemption off until it is dropped. It says nothing about a processor: for code that uses none.
pub(crate) struct PreemptionOff(Option<&'static Green>, PhantomData<*mut ()>);

/// Switches preemption off. On a kernel thread that runs no green thread there is nothing to do.
#[inline]
pub(crate) fn preemption_off() -> PreemptionOff {
    let green = green();
    if let Some(green) = green {
        off(green);
    }
    PreemptionOff(green, PhantomData)
}

/// The same for a guard that users get: safe code can forget any number of them, and the count must
/// not begin anew. (`Arc` aborts at as many references.)
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

/// The current green thread inside the runtime: preemption off, and a processor that nobody takes
/// away.
pub(crate) struct Entered {
    green: &'static Green,
    machine: &'static Machine,
    processor: &'static Processor,
    not_send: PhantomData<*mut ()>,
}

/// Enters the runtime; `None` on a kernel thread that runs no green thread.
#[inline]
pub(crate) fn enter() -> Option<Entered> {
    let green = green()?;
    off(green);
    Some(inside(green))
}

/// With preemption off: finds the processor, or waits for one.
#[inline]
fn inside(green: &'static Green) -> Entered {
    perturb::point("enter");
    loop {
        let machine = machine_of(green);
        let processor = machine.processor.get().or_else(|| recover(machine));
        if let Some(processor) = processor {
            // SAFETY: processors live as long as their cluster, which is never freed.
            let processor = unsafe { processor.as_ref() };
            return Entered {
                green,
                machine,
                processor,
                not_send: PhantomData,
            };
        }
        // The processor is gone: queue for another. The run loop sees that none is left and does
        // the rest. SAFETY: `green` is the current thread, so this is its stack.
        unsafe { green.context.suspend(Action::Yield) };
    }
}

/// The processor was taken, or the monitor is about to decide: settle it, then look for an idle
/// one.
#[cold]
#[inline(never)]
fn recover(machine: &'static Machine) -> Option<core::ptr::NonNull<Processor>> {
    machine
        .processor
        .settle()
        .or_else(|| machine.cluster().take_idle_processor(machine))
}

/// The own thread pointer of the kernel thread that runs `green`, the current thread.
pub(crate) fn home(green: &Green) -> *mut u8 {
    machine_of(green).own_thread_pointer()
}

#[inline(always)]
fn machine_of(green: &Green) -> &'static Machine {
    // SAFETY: a running thread's `machine` is the record of the kernel thread that runs it; records
    // are never freed. Relaxed: written by this kernel thread before it resumed the thread.
    unsafe { &*green.machine.load(Ordering::Relaxed) }
}

impl Entered {
    #[inline(always)]
    pub(crate) fn green(&self) -> &'static Green {
        self.green
    }

    #[inline(always)]
    pub(crate) fn machine(&self) -> &'static Machine {
        self.machine
    }

    #[inline(always)]
    pub(crate) fn processor(&self) -> &'static Processor {
        self.processor
    }

    /// Leaves the stack with `action`, and the runtime once the thread has been resumed.
    #[inline(always)]
    pub(crate) fn suspend(self, action: Action) {
        perturb::point("suspend");
        let green = self.green;
        // Resumed, the thread may be on another kernel thread: nothing of `self` is true any more.
        core::mem::forget(self);
        // SAFETY: an `Entered` exists on its own green thread only.
        unsafe { green.context.suspend(action) };
        compiler_fence(Ordering::SeqCst);
        on(green);
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let give_way = self.machine.is_slice_over() && self.green.off.load(Ordering::Relaxed) == 1;
        on(self.green);
        if give_way {
            give_way_now();
        }
    }
}

/// The time slice is over and the monitor has said so: go to the global queue.
#[cold]
#[inline(never)]
fn give_way_now() {
    if let Some(entered) = enter() {
        entered.suspend(Action::Preempt);
    }
}

/// The first code on a new green thread: from here on it is current, with preemption off.
#[inline(never)]
pub(crate) fn begin(green: &'static Green) {
    CURRENT.set(Some(green));
}

/// Switches preemption on for the first time, before user code runs.
#[inline]
pub(crate) fn allow_preemption(green: &'static Green) {
    on(green);
}

/// Switches preemption off for the last time; the thread then leaves its stack for good. What it has
/// forgotten (`policy::Guard`) does not concern the next thread that has its record.
#[inline]
pub(crate) fn forbid_preemption(green: &'static Green) {
    green.off.store(1, Ordering::Relaxed);
    entry_fence();
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
