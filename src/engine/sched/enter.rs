//! The way into the runtime: [`enter`].
//!
//! Between it and the end of [`Entered`] the thread is not preempted and its processor is not
//! taken, so a value that it reads of them stays true. The way in takes three steps whose order
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
//! back: the membarrier makes the compiler fence a full one at the only moment that matters. The
//! way out is a Release store of `off`, which pairs with the monitor's Acquire load: the next owner
//! of the processor sees all changes that were made to it here.
//!
//! On its way out a thread whose time slice is over gives way (the first of the three steps of
//! preemption).

use super::{Machine, Owned, Processor};
use crate::engine::atomic::{Ordering, compiler_fence};
use crate::engine::green::Green;
use crate::engine::green::context::Action;
use crate::engine::green::current::{green, off, on};
use crate::engine::sys::perturb;
use crate::engine::sys::sanitizer::{self, Unseen};

/// The current green thread inside the runtime: preemption off, and a processor that nobody takes
/// away.
pub(crate) struct Entered {
    green: &'static Green,
    machine: &'static Machine,
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
        let machine = green.machine();
        let processor = machine.processor.get().or_else(|| recover(machine));
        if let Some(processor) = processor {
            // SAFETY: the word says that this kernel thread owns it, and preemption is off.
            // (`owned` treats a signal handler that interrupts the runtime.)
            let processor = unsafe { Owned::at(processor) };
            return Entered {
                green,
                machine,
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
fn recover(machine: &'static Machine) -> Option<core::ptr::NonNull<Processor>> {
    machine
        .processor
        .settle()
        .or_else(|| machine.cluster().take_idle_processor(machine))
}

/// The own thread pointer of the kernel thread that runs `green`, the current thread.
pub(crate) fn home(green: &Green) -> *mut u8 {
    green.machine().own_thread_pointer()
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
        let give_way = self.machine.is_slice_over() && self.green.off.load(Ordering::Relaxed) == 1;
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
