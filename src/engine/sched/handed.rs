//! Threads that a signal handler wakes, handed to the monitor.
//!
//! A handler may have interrupted its kernel thread in the scheduler, in the middle of a queue. So, by
//! way of the hooked calls of libc, it does not enter the scheduler. It pushes a woken thread onto a
//! stack and rouses the monitor, which makes the thread ready.
//!
//! Invariants:
//! 1. A thread on the stack was claimed, and belongs to the stack: `next` is its link.
//! 2. None is left behind: the handler pushes, and then changes the monitor's word; the monitor looks at the
//!    stack after it has said that it sleeps. If it is about to wait for its next look it may miss the
//!    change, and sees the thread at that look: 10 ms later at most.
//!
//! Orderings: Release where a thread is pushed, and Acquire where all are taken, are partners: the
//! link, and all that the waker did.

use core::ptr;

use super::hooked::is_handler;
use super::{Cluster, ready, ready_globally};
use crate::engine::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::engine::green::Green;
use crate::engine::policy::Readied;

/// The stack of a cluster.
pub(crate) struct Handed(AtomicPtr<Green>);

impl Handed {
    pub(super) const fn new() -> Handed {
        Handed(AtomicPtr::new(ptr::null_mut()))
    }

    fn push(&self, green: &'static Green) {
        let mut top = self.0.load(Relaxed);
        loop {
            // SAFETY: null, or a thread on the stack: records are never freed.
            green.next.set(unsafe { top.as_ref() });
            // Release: the link, and what the waker did; partner: Acquire in `take_handed`. Acquire: the links
            // of those below are handed on.
            let new = ptr::from_ref(green).cast_mut();
            match self.0.compare_exchange_weak(top, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }
}

impl Cluster {
    /// The monitor makes ready what was handed to it, in any order.
    pub(super) fn take_handed(&self) {
        if self.handed.is_empty() {
            return;
        }
        // Acquire: partner: Release in `push`.
        // SAFETY: null, or a thread on the stack.
        let mut rest = unsafe { self.handed.0.swap(ptr::null_mut(), Acquire).as_ref() };
        while let Some(green) = rest {
            rest = green.next.take();
            super::witness::passed_on(green);
            ready_globally(green, Readied::Woken);
        }
    }
}

/// Makes `green` ready, whatever this thread was doing: it may be in a signal handler.
#[inline]
pub(crate) fn ready_from_anywhere(green: &'static Green) {
    match is_handler() {
        false => ready(green),
        true => {
            let cluster = green.cluster();
            cluster.handed.push(green);
            cluster.monitor.rouse();
        }
    }
}
