//! Reading threads' names from outside, for reports, while the threads run on and end.
//!
//! A thread owns its identity until it ends, and its record leads there. A thread that ends clears the
//! record's pointer, and then asks whether an inspection is under way: if so, it leaves its share of the identity
//! behind instead of dropping it, for the end of the inspection.
//!
//! ```text
//!   ending thread                         inspection
//!   record's pointer = null               UNDER_WAY += 1
//!   cheap fence                           barrier
//!   read UNDER_WAY                        read the record's pointer
//! ```
//!
//! Either the inspection finds null, or the thread finds the inspection: the barrier makes the cheap fence a full
//! one. So a thread that ends pays a plain load. A kernel thread makes a real fence, since there may be no barrier.
//!
//! In the same way rooms stay that an inspection has seen: who takes one apart first clears the word that leads to it,
//! and then asks ([`is_none_under_way`]).

use std::any::Any;
use std::sync::{Mutex, TryLockError};

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::engine::sys::fence::entry_fence;
use crate::engine::sys::kernel_thread;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// This process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// What threads have left behind.
static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// While it lives, identities that it has seen stay.
pub(crate) struct Inspection(());

impl Inspection {
    pub(crate) fn begin() -> Inspection {
        // SeqCst: partner: the fences in `leave` and `leave_kernel_thread`.
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        // Where there is none, there are no green threads, and kernel threads make their own fence.
        if kernel_thread::register_barrier() {
            kernel_thread::barrier();
        }
        Inspection(())
    }
}

impl Inspection {
    /// Ends it for a caller that must not free memory: the next inspection drops what threads have left behind.
    pub(crate) fn end_without_dropping(self) {
        core::mem::forget(self);
        // AcqRel: as in `drop`.
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        // AcqRel: the reads of all inspections come before the dropping by the last.
        if UNDER_WAY.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // A thread that is stuck may hold the lock: then the next inspection drops what was left.
        let mut kept = match LEFT.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Another inspection may have begun, and seen what is here. One that begins after this finds no record that
        // leads to it: its threads cleared the pointers before they put it here.
        // SeqCst, and a write, which the next `begin` reads: what comes before this comes before that inspection.
        if UNDER_WAY.fetch_add(0, Ordering::SeqCst) != 0 {
            return;
        }
        let left = core::mem::take(&mut *kept);
        drop(kept);
        drop(left);
    }
}

/// Drops a green thread's share of its identity, to which its record does not lead any more.
pub(crate) fn leave<T: Send + 'static>(share: T) {
    entry_fence();
    drop_later(share);
}

/// The same for a kernel thread.
pub(crate) fn leave_kernel_thread<T: Send + 'static>(share: T) {
    // SeqCst: partner: in `Inspection::begin`.
    fence(Ordering::SeqCst);
    drop_later(share);
}

/// Whether nobody can be at what the caller has made unreachable before.
pub(crate) fn is_none_under_way() -> bool {
    // SeqCst: partner: in `Inspection::begin`. An inspection that begins later finds nothing.
    fence(Ordering::SeqCst);
    // Acquire: an inspection that is over has read for the last time; partner: its end's Release.
    UNDER_WAY.load(Ordering::Acquire) == 0
}

/// In a forked child: inspections were under way in the parent only.
pub(crate) fn forget_others() {
    UNDER_WAY.store(0, Ordering::Relaxed);
    IS_CHILD.store(true, Ordering::Relaxed);
}

#[inline]
fn drop_later<T: Send + 'static>(share: T) {
    // Acquire: an inspection that is over has read for the last time; partner: its end's Release.
    if UNDER_WAY.load(Ordering::Acquire) != 0 {
        keep(Box::new(share));
    }
}

#[cold]
fn keep(share: Box<dyn Any + Send>) {
    // In a forked child the lock may be held for ever: then the share is never dropped.
    if IS_CHILD.load(Ordering::Relaxed) {
        match LEFT.try_lock() {
            Ok(mut left) => left.push(share),
            Err(_) => core::mem::forget(share),
        }
        return;
    }
    let mut left = LEFT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    left.push(share);
}
