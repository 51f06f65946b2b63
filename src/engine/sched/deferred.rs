//! What a signal handler leaves to the monitor: threads that it wakes, and a chore.
//!
//! A handler may have interrupted its kernel thread in the scheduler, in the middle of a queue, or while it
//! holds a lock. So, by way of the hooked calls of libc, it does not enter the scheduler, and takes no lock. It
//! pushes a woken thread onto a stack and rouses the monitor, which makes the thread ready. What needs a lock is a
//! *chore*: the lock's owner has registered a function for it, which the monitor calls, and which finds out by itself
//! what is to be done.
//!
//! Invariants:
//! 1. A thread on the stack was claimed, and belongs to the stack: `next` is its link.
//! 2. None is left behind, and no chore: the handler pushes, and then changes the monitor's word; the monitor looks at the
//!    stack after it has said that it sleeps. If it is about to wait for its next look it may miss the
//!    change, and sees the thread at that look: 10 ms later at most.
//!
//! Orderings: Release where a thread is pushed or a chore is left, and Acquire where they are taken, are
//! partners: the link, and all that the handler did.

use core::ptr;
use std::sync::OnceLock;

use super::{Cluster, ready, ready_globally};
use crate::engine::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::engine::policy::Readied;
use crate::engine::probe::{self, By, Readied as Why};
use crate::engine::sched::{Green, current, worker};

/// The stack of a cluster.
pub(crate) struct DeferredWakes(AtomicPtr<Green>);

impl DeferredWakes {
    pub(super) const fn new() -> DeferredWakes {
        DeferredWakes(AtomicPtr::new(ptr::null_mut()))
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

    /// Whether nothing was left to this cluster's monitor, nor to anyone's.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null() && !IS_LEFT.load(Relaxed)
    }
}

impl Cluster {
    /// The monitor makes ready what was handed to it, in any order.
    pub(super) fn take_handed(&self) {
        if self.deferred.is_empty() {
            return;
        }
        // Acquire: partner: Release in `leave_chore`.
        if IS_LEFT.swap(false, Acquire)
            && let Some(chore) = CHORE.get()
        {
            chore();
        }
        // Acquire: partner: Release in `push`.
        // SAFETY: null, or a thread on the stack.
        let mut rest = unsafe { self.deferred.0.swap(ptr::null_mut(), Acquire).as_ref() };
        while let Some(green) = rest {
            rest = green.next.take();
            probe::readied(By::Outside, green, Why::Arrived);
            ready_globally(green, Readied::Woken);
        }
    }
}

static CHORE: OnceLock<fn()> = OnceLock::new();
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Registers what [`leave_chore`] leaves to a monitor. `chore` allocates nothing.
pub(crate) fn register_chore(chore: fn()) {
    CHORE.get_or_init(|| chore);
}

/// A signal handler leaves the chore to the first monitor that looks.
pub(crate) fn leave_chore() {
    // Release: what the handler has noted; partner: Acquire in `take_handed`.
    IS_LEFT.store(true, Release);
    worker::clusters().for_each(|cluster| cluster.monitor.rouse());
}

/// Makes `green` ready, whatever this thread was doing: it may be in a signal handler.
#[inline]
pub(crate) fn ready_from_anywhere(green: &'static Green) {
    match current::is_hidden() {
        false => ready(green),
        true => {
            let cluster = green.cluster();
            cluster.deferred.push(green);
            cluster.monitor.rouse();
        }
    }
}
