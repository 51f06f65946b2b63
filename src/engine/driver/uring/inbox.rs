//! Where threads leave their operations for the keeper: a stack in one word.
//!
//! Anybody pushes; the keeper alone takes, everything at once, and turns it round, so that
//! operations come out in the order in which they were pushed. The word also says whether the
//! keeper sleeps: it then leaves a mark where the stack is empty, and whoever pushes onto the mark
//! rings. Because one word says both, nothing can come between looking and going to sleep, and no
//! fences are needed; and of many that push, one rings.
//!
//! | from \ verb | `push`          | `take`          | `rest`         | `rouse` |
//! |---|---|---|---|---|
//! | empty       | stack           | empty           | `ASLEEP`, yes  | stays   |
//! | stack       | stack           | empty           | stays, no      | stays   |
//! | `ASLEEP`    | stack, **ring** | empty           | (never)        | empty   |
//!
//! # Invariants
//! 1. What is in the stack is alive: its owner keeps it until it has been told of its completion,
//!    which only the keeper can do, after it took it. A push touches nothing after its last step.
//! 2. The keeper sleeps only after `rest` said yes, and until somebody rang or for any other
//!    reason. So nothing is in the stack of a sleeping keeper, unless who pushed it is about to
//!    ring. (He does both with preemption off: others push onto his and rely on him.)
//! 3. A link is written before its record is pushed, and read before the record is handed out.
//!    A record at an address that was in the stack before does no harm: a link is compared with
//!    the top at the very moment that it becomes right.
//!
//! # Memory orderings
//! - what the owner wrote → keeper: Release in `push`, Acquire in `take`. Every change while
//!   records are in is a read-modify-write, so one Acquire is enough for all that were pushed.
//! - `rest` and `rouse` publish nothing: Relaxed.

use core::ptr;

use crate::engine::atomic::{
    AtomicPtr, Cell,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// What can lie in an inbox.
///
/// # Safety
/// `link` is always the same cell, and used by the inbox only.
pub(crate) unsafe trait Linked: Sized {
    fn link(&self) -> &Cell<*const Self>;
}

pub(crate) struct Inbox<T> {
    top: AtomicPtr<T>,
}

/// The mark of a sleeping keeper; no record has this address.
fn asleep<T>() -> *mut T {
    ptr::without_provenance_mut(1)
}

impl<T: Linked> Inbox<T> {
    const_fn! {
        pub(crate) const fn new() -> Inbox<T> {
            Inbox {
                top: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// Leaves a record. True: the keeper sleeps, and the caller must ring.
    ///
    /// # Safety
    /// The record is alive and stays where it is until the keeper, who took it, is done with it.
    #[must_use = "true means that the caller must wake the keeper"]
    pub(crate) unsafe fn push(&self, record: *const T) -> bool {
        let mut top = self.top.load(Relaxed);
        loop {
            let below = if top == asleep() {
                ptr::null()
            } else {
                top.cast_const()
            };
            // SAFETY: alive, and ours until it is pushed.
            unsafe { (*record).link().set(below) };
            perturb::point("inbox: pushing");
            // Release: the record; partner: Acquire in `take`.
            match self
                .top
                .compare_exchange_weak(top, record.cast_mut(), Release, Relaxed)
            {
                Ok(_) => return top == asleep(),
                Err(now) => top = now,
            }
        }
    }

    /// The keeper takes all there is, the oldest first, and is awake.
    pub(crate) fn take(&self) -> Batch<T> {
        // Acquire: the records; partner: Release in `push`.
        let mut rest = self.top.swap(ptr::null_mut(), Acquire).cast_const();
        let mut first = ptr::null();
        if rest == asleep() {
            return Batch(first);
        }
        while !rest.is_null() {
            // SAFETY: taken just now, so it is alive (invariant 1) and nobody else touches links.
            let link = unsafe { (*rest).link() };
            let below = link.get();
            link.set(first);
            first = rest;
            rest = below;
        }
        Batch(first)
    }

    /// The keeper goes to sleep: true. Or there is something to do.
    #[must_use = "who does not sleep must not wait"]
    pub(crate) fn rest(&self) -> bool {
        self.top
            .compare_exchange(ptr::null_mut(), asleep(), Relaxed, Relaxed)
            .is_ok()
    }

    /// The keeper is awake again: nobody need ring.
    pub(crate) fn rouse(&self) {
        // It fails if somebody has pushed, and rings.
        let _ = self
            .top
            .compare_exchange(asleep(), ptr::null_mut(), Relaxed, Relaxed);
    }
}

/// What the keeper took. Each record is the keeper's from when it is handed out.
pub(crate) struct Batch<T>(*const T);

impl<T: Linked> Iterator for Batch<T> {
    type Item = *const T;

    fn next(&mut self) -> Option<*const T> {
        let record = self.0;
        // SAFETY: taken and not handed out yet, so it is alive (invariant 1).
        self.0 = unsafe { record.as_ref() }?.link().get();
        Some(record)
    }
}
