//! The inbox, where threads leave their operations for the keeper: a stack in one word.
//!
//! Any thread pushes; only the keeper takes. It takes everything at once and reverses it, so that
//! operations come out in the order in which they were pushed. The word also says whether the
//! keeper sleeps: the keeper then leaves a mark where the stack is empty, and a thread that pushes
//! onto the mark rings. Because one word says both, nothing can come between looking and going to
//! sleep, and no fences are needed; and of many threads that push, one rings.
//!
//! | from \ verb | `push`          | `take`          | `rest`         | `rouse` |
//! |---|---|---|---|---|
//! | empty       | stack           | empty           | `ASLEEP`, yes  | stays   |
//! | stack       | stack           | empty           | stays, no      | stays   |
//! | `ASLEEP`    | stack, **ring** | empty           | (never)        | empty   |
//!
//! # Invariants
//! 1. A record in the stack is alive: its owner keeps it until it hears of its completion. Only the
//!    keeper can report that, after it took the record. A push touches nothing after its last step.
//! 2. The keeper sleeps only after `rest` said yes, and until a thread rings or something else
//!    wakes it. So the stack of a sleeping keeper is empty, unless the thread that pushed is about to
//!    ring. (The thread does both with preemption off: others push onto its record and rely on it.)
//! 3. A link is written before its record is pushed, and read before the record is handed out. A
//!    record at an address that was in the stack before does no harm: the push compares the link
//!    with the top at the very moment at which the link becomes right.
//!
//! # Memory orderings
//! - the owner's writes → keeper: Release in `push`, Acquire in `take`. Every change of a stack
//!   with records is a read-modify-write, so one Acquire is enough for all that were pushed.
//! - `rest` and `rouse` publish nothing: Relaxed.

use core::ptr;

use crate::engine::atomic::{
    AtomicPtr, Cell,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// A record that can lie in an inbox.
///
/// # Safety
/// `link` always returns the same cell, which only the inbox uses.
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
    /// The record is alive and stays where it is until the keeper, which took it, is done with it.
    #[must_use = "true means that the caller must wake the keeper"]
    pub(crate) unsafe fn push(&self, record: *const T) -> bool {
        let mut top = self.top.load(Relaxed);
        loop {
            let below = if top == asleep() {
                ptr::null()
            } else {
                top.cast_const()
            };
            // SAFETY: the record is alive, and ours until it is pushed.
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
            // SAFETY: the record was taken just now, so it is alive (invariant 1) and only we touch
            // its link.
            let link = unsafe { (*rest).link() };
            let below = link.get();
            link.set(first);
            first = rest;
            rest = below;
        }
        Batch(first)
    }

    /// Puts the keeper to sleep: true. False: there is something to do.
    #[must_use = "who does not sleep must not wait"]
    pub(crate) fn rest(&self) -> bool {
        self.top
            .compare_exchange(ptr::null_mut(), asleep(), Relaxed, Relaxed)
            .is_ok()
    }

    /// Notes that the keeper is awake again: no thread need ring.
    pub(crate) fn rouse(&self) {
        // The exchange fails if a thread has pushed, and rings.
        let _ = self
            .top
            .compare_exchange(asleep(), ptr::null_mut(), Relaxed, Relaxed);
    }
}

/// The records that the keeper took. Each record is the keeper's once it is handed out.
pub(crate) struct Batch<T>(*const T);

impl<T: Linked> Iterator for Batch<T> {
    type Item = *const T;

    fn next(&mut self) -> Option<*const T> {
        let record = self.0;
        // SAFETY: the record was taken and not handed out yet, so it is alive (invariant 1).
        self.0 = unsafe { record.as_ref() }?.link().get();
        Some(record)
    }
}
