//! Owning a processor, and being on a machine's run loop, as values: [`Owned`] and [`RunLoop`].
//!
//! A processor has one user at a time. So that safe code cannot forget it, the parts that only the
//! user may touch are reached by an [`Owned`]. There is one `Owned` for each right to a processor:
//!
//! | the processor's user | gets it from | for how long |
//! |---|---|---|
//! | the run loop of the machine that owns it | [`RunLoop::owned`] | until it looks again |
//! | a green thread inside the runtime | [`Entered::processor`](super::Entered::processor) | until it leaves |
//! | a thread that has it in hand: nobody owns it | [`RunLoop::surrender`]; the monitor, when it has taken it; a list of idle ones | until it is given away, or lies down |
//! | the recruiter, of a processor that has retired; the closer of a cluster that has no machine left | [`Owned::assume`] | as long as that is so |
//!
//! Invariant: of a processor there is one `Owned` that is used. A signal handler that interrupts
//! the runtime and enters it has another one; `driver::sends`, where that can happen, says what the
//! handler may do with it.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::processor::Own;
use super::{Machine, Processor};
use crate::engine::atomic::Ordering;
use crate::engine::policy::Seat;
use crate::engine::probe;
use crate::engine::sys::perturb;

/// A processor that the holder owns, or has in hand.
pub(crate) struct Owned<'a> {
    processor: &'static Processor,
    /// The lender uses it no more meanwhile.
    lent: PhantomData<&'a mut RunLoop>,
}

/// The seat of an owned processor, for one call.
pub(crate) struct Seated<'a> {
    seat: Seat,
    owned: PhantomData<&'a Processor>,
}

impl Deref for Seated<'_> {
    type Target = Seat;

    #[inline(always)]
    fn deref(&self) -> &Seat {
        &self.seat
    }
}

impl Owned<'_> {
    /// # Safety
    /// As long as this lives, the caller owns `processor`, or has it in hand, and uses no other
    /// `Owned` of it.
    #[inline(always)]
    pub(super) unsafe fn assume(processor: &'static Processor) -> Owned<'static> {
        Owned {
            processor,
            lent: PhantomData,
        }
    }

    /// [`assume`](Owned::assume), by its address in a word.
    ///
    /// # Safety
    /// The same.
    #[inline(always)]
    pub(super) unsafe fn at(processor: NonNull<Processor>) -> Owned<'static> {
        // SAFETY: the caller's promise; processors are never freed.
        unsafe { Owned::assume(&*processor.as_ptr()) }
    }

    /// The right to ask the policy in the processor's name.
    #[inline(always)]
    pub(crate) fn seat(&self) -> Seated<'_> {
        Seated {
            // SAFETY: the promise made to `assume`, which holds for longer than this borrow.
            seat: unsafe { self.processor.seat() },
            owned: PhantomData,
        }
    }

    /// The parts that belong to the owner alone.
    #[inline(always)]
    pub(crate) fn own(&mut self) -> &mut Own {
        // SAFETY: the promise made to `assume`; the borrow of `self` excludes a second one.
        unsafe { self.processor.own() }
    }

    /// The processor itself, which all threads may look at.
    #[inline(always)]
    pub(crate) fn shared(&self) -> &'static Processor {
        self.processor
    }

    /// The same for as long as this is lent.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Owned<'_> {
        Owned {
            processor: self.processor,
            lent: PhantomData,
        }
    }
}

/// A processor in hand: what is lent from a run loop or an `Entered` does not live as long.
impl Owned<'static> {
    /// Makes `machine`, which owns nothing, the owner of this processor.
    pub(super) fn give_to(mut self, machine: &'static Machine) {
        probe::worker_has(&mut self, machine);
        // Release: pairs with the Acquire of the monitor's look.
        self.machine.store(Some(machine), Ordering::Release);
        perturb::point("give");
        machine.processor.assign(NonNull::from(self.processor));
    }
}

impl Deref for Owned<'_> {
    type Target = Processor;

    #[inline(always)]
    fn deref(&self) -> &Processor {
        self.processor
    }
}

/// A machine's run loop: there is one, on the machine's own kernel thread.
pub(crate) struct RunLoop {
    machine: &'static Machine,
    not_send: PhantomData<*mut ()>,
}

impl RunLoop {
    /// # Safety
    /// The caller is the machine's kernel thread, and makes the only one.
    pub(super) unsafe fn new(machine: &'static Machine) -> RunLoop {
        RunLoop {
            machine,
            not_send: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn machine(&self) -> &'static Machine {
        self.machine
    }

    /// The processor of this machine. `None`: the monitor came between with an old look in mind, so
    /// the processor is gone (`ownership`). A processor found here stays the machine's until the
    /// word is looked at again.
    #[inline(always)]
    pub(super) fn owned(&mut self) -> Option<Owned<'_>> {
        let word = &self.machine.processor;
        let processor = word.get().or_else(|| word.settle())?;
        // SAFETY: the word says so, and the borrow of the run loop excludes a second look.
        Some(unsafe { Owned::at(processor) })
    }

    /// Gives up the processor and has it in hand. `None`: the monitor took it first.
    pub(super) fn surrender(&mut self) -> Option<Owned<'static>> {
        let processor = self.machine.processor.surrender()?;
        // SAFETY: nobody owns it now, and nobody else knows of that.
        Some(unsafe { Owned::at(processor) })
    }
}
