//! Ownership: the word in a kernel thread that says which processor it owns, and how that is taken
//! from it without its help.
//!
//! The owner looks at the word with one relaxed load on every entry to the runtime. The monitor
//! takes a processor from a kernel thread that is blocked, or burning CPU, *outside* the runtime.
//! Both may happen at once.
//!
//! # States
//!
//! | word | meaning | who may change it |
//! |---|---|---|
//! | a processor | the kernel thread owns it | owner → `DETACHED` (surrender); monitor → null (take) |
//! | null | the monitor is deciding, or has decided and the kernel thread has not noticed | kernel thread → `DETACHED` (settle); monitor → the processor (give back) |
//! | `DETACHED` | it owns none and knows it: a spare, or about to be one | the thread that wakes it with a processor (assign) |
//!
//! Two states (owned, not owned) are not enough. A kernel thread that saw "not owned" and left for
//! the spare list could be given its processor back meanwhile: then it is a spare that owns one.
//!
//! # Invariants
//!
//! 1. A processor is in at most one word, or in the hands of one thread (the monitor that took it,
//!    the owner that surrendered it, a waker about to assign it).
//! 2. Only one thread at a time takes: the monitor.
//! 3. Only `DETACHED` kernel threads are assigned to.
//! 4. The result of an entry's look holds until its exit: an entry that saw its processor owns it,
//!    even if the word is null for a moment. But every new look may lose it: a processor whose word
//!    [`Ownership::settle`] finds null is lost, unless it is given back first.
//!
//! # Taking: an asymmetric fence
//!
//! Entry (owner):  off = 1; `entry_fence`; find the kernel thread; `get`.   Exit: off = 0
//! (Release). Switch:  current = null (Release) on leaving; tick + 1 (Release), current = the next
//! (Release) before resuming it. Retake (monitor):  first look; word → null; barrier; second look;
//! then keep the processor or give it back.
//!
//! - first look: the tick, the current thread (Acquire, to reach it), that off = 0: a hint, in any
//!   order;
//! - second look: that off = 0 (Acquire), the current thread (Acquire), the tick; the latter two as
//!   before. The order of these three is part of the protocol.
//!
//! The thread looked at must stay readable, even when it has ended meanwhile.
//!
//! This is Dekker's pattern: each side writes one word and then reads the other's. With a full
//! fence on both sides one of them must see the other: either the entry sees null, or the monitor
//! sees off = 1 (or a later value) and gives back. A full fence on each entry is too dear, so the
//! entry has a compiler fence and the monitor runs `membarrier(PRIVATE_EXPEDITED)`: it makes every
//! running thread of the process execute a full fence somewhere between the call's start and its
//! end, and a thread that does not run has passed one while it was switched out.
//! Let that fence strike the owner at some point of its program order:
//! - before the store to `off`, or between it and the load: the load comes after the fence and sees
//!   null;
//! - after the load: the store is before the fence, so the monitor's reads, after it, see off = 1
//!   or later values.
//!
//! The compiler fence keeps the two accesses in this order in the program. So models may use a real
//! fence for both.
//!
//! "Or later values" is why off alone is not enough: the thread may have yielded and gone on
//! elsewhere, with off = 0, while its old kernel thread is in the scheduler and uses the processor.
//! But if the second look sees an off = 0 stored elsewhere, it then also sees (Acquire) that the
//! old kernel thread has another current thread, or the same one again and a later tick. And it
//! cannot see an off = 0 from before the stay that the tick names: it sees the off = 1 under which
//! the thread was resumed, which came before that tick (Release; the barrier makes the first look's
//! load an Acquire). So the off = 0 comes from an exit in this stay, after every entry that got the
//! processor; later entries, and the scheduler after them, see null. In the scheduler the current
//! thread is null or off is 1, so the second look always gives back. But a hasty first look may
//! make the word null for a moment even there, and a `settle` or `surrender` at that moment loses
//! the processor. So the scheduler looks once and keeps the result, and each further look must
//! allow for no processor.
//!
//! # Memory orderings
//!
//! The next owner of a processor must see all that the last owner did to it. A processor changes
//! hands in these ways:
//! - taken, unchanged: Release in the exit's `off = 0` → Acquire in `unchanged`.
//! - taken, but the owner noticed: Release in `settle` → Acquire in `give_back`, when that fails.
//! - surrendered: the same thread, in program order.
//! - given to a kernel thread: Release in `assign` → Acquire in `settle` (or the wake-up's own
//!   ordering).
//!
//! `take` itself is Relaxed: the barrier after it orders it.

use core::{
    mem,
    ptr::{self, NonNull},
};

use crate::engine::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// Which processor a kernel thread owns. See the file's header.
#[derive(Debug)]
pub(crate) struct Ownership<P> {
    word: AtomicPtr<P>,
}

impl<P> Ownership<P> {
    /// No processor can be at this address.
    const DETACHED: *mut P = {
        assert!(mem::align_of::<P>() > 1);
        ptr::without_provenance_mut(1)
    };

    const_fn! {
        /// The word of a kernel thread without a processor.
        pub(crate) const fn new() -> Self {
            Self {
                word: AtomicPtr::new(Self::DETACHED),
            }
        }
    }

    /// A word's value as a processor: neither null nor `DETACHED`.
    #[inline(always)]
    fn processor(word: *mut P) -> Option<NonNull<P>> {
        // One comparison rules out both.
        if word.addr() > Self::DETACHED.addr() {
            NonNull::new(word)
        } else {
            None
        }
    }

    // ---- the kernel thread itself ----

    /// The processor, on entry to the runtime: called after `off = 1` and `entry_fence`. None: ask
    /// [`Self::settle`].
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<NonNull<P>> {
        Self::processor(self.word.load(Relaxed))
    }

    /// The processor, for certain: if the monitor is deciding, either it has given the processor
    /// back already or we detach for good.
    #[cold]
    pub(crate) fn settle(&self) -> Option<NonNull<P>> {
        // Acquire, here and below: partner Release in `assign`.
        let mut word = self.word.load(Acquire);
        while word.is_null() {
            perturb::point("settle");
            // Release: our changes to the processor; partner: Acquire in `give_back`.
            match self
                .word
                .compare_exchange(word, Self::DETACHED, Release, Acquire)
            {
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
        Self::processor(word)
    }

    /// The owner gives its processor up and then has it in hand. None: the monitor took it first.
    pub(crate) fn surrender(&self) -> Option<NonNull<P>> {
        loop {
            let p = self.settle()?;
            perturb::point("surrender");
            // It fails only if the monitor takes between the two; `settle` sorts that out.
            if self
                .word
                .compare_exchange(p.as_ptr(), Self::DETACHED, Relaxed, Relaxed)
                .is_ok()
            {
                return Some(p);
            }
        }
    }

    // ---- others ----

    /// Gives `p` to this kernel thread, which is `DETACHED` and about to be woken.
    pub(crate) fn assign(&self, p: NonNull<P>) {
        // Release: the processor's state; partner: Acquire in `settle`.
        self.word.store(p.as_ptr(), Release);
    }

    /// The monitor takes `p` away for as long as it decides.
    fn take(&self, p: NonNull<P>) -> bool {
        // Relaxed: the barrier that follows orders it.
        self.word
            .compare_exchange(p.as_ptr(), ptr::null_mut(), Relaxed, Relaxed)
            .is_ok()
    }

    /// The monitor puts `p` back. False: the kernel thread noticed and detached; `p` stays with the
    /// monitor.
    fn give_back(&self, p: NonNull<P>) -> bool {
        perturb::point("retake: giving back");
        // Acquire on failure: the owner's changes to `p`; partner: Release in `settle`.
        self.word
            .compare_exchange(ptr::null_mut(), p.as_ptr(), Relaxed, Acquire)
            .is_ok()
    }

    /// The monitor takes `p` for good if its owner is outside the runtime. True: `p` is the
    /// caller's to assign.
    ///
    /// Called after the first look; `barrier` is the dear half of the asymmetric fence, and
    /// `unchanged` the second look, whose order and orderings the header gives.
    #[must_use = "true means that the processor is the caller's"]
    pub(crate) fn retake(
        &self,
        p: NonNull<P>,
        barrier: impl FnOnce(),
        unchanged: impl FnOnce() -> bool,
    ) -> bool {
        if !self.take(p) {
            return false;
        }
        perturb::point("retake: taken");
        barrier();
        perturb::point("retake: barrier");
        unchanged() || !self.give_back(p)
    }
}
