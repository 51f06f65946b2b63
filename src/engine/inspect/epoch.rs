//! Read sections: an observer reads threads' names while the threads run on and end, and none goes meanwhile.
//!
//! A thread owns its identity until it ends, and its record leads there. A thread that ends clears the
//! record's pointer, and then asks whether a read section is open: if so, it leaves its share of the identity
//! behind instead of dropping it, for the end of the section.
//!
//! ```text
//!   ending thread                         observer
//!   record's pointer = null               OPEN += 1
//!   cheap fence                           barrier
//!   read OPEN                             read the record's pointer
//! ```
//!
//! Either the observer finds null, or the thread finds the section: the barrier makes the cheap fence a full
//! one. So a thread that ends pays a plain load. A kernel thread makes a real fence, since there may be no barrier.
//!
//! In the same way stacks stay that a section has seen: who takes one apart first clears the word that leads to it,
//! and then asks ([`none_is_open`]).

use std::any::Any;
use std::sync::{Mutex, TryLockError};

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::engine::sys::kernel_thread;
use crate::engine::sys::lock::entry_fence;

static OPEN: AtomicUsize = AtomicUsize::new(0);
/// This process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// What threads have left behind.
static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// While it lives, the section is open: identities that were seen in it stay.
pub(crate) struct ReadSection(());

impl ReadSection {
    pub(crate) fn begin() -> ReadSection {
        // SeqCst: partner: the fences in `leave` and `leave_kernel_thread`.
        OPEN.fetch_add(1, Ordering::SeqCst);
        // Where there is none, there are no green threads, and kernel threads make their own fence.
        if kernel_thread::register_barrier() {
            kernel_thread::barrier();
        }
        ReadSection(())
    }

    /// Ends it for a caller that must not free memory: the next section drops what threads have left behind.
    pub(crate) fn end_without_dropping(self) {
        core::mem::forget(self);
        // AcqRel: as in `drop`.
        OPEN.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ReadSection {
    fn drop(&mut self) {
        // AcqRel: the reads of all sections come before the dropping by the last.
        if OPEN.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // A thread that is stuck may hold the lock: then the next section drops what was left.
        let mut kept = match LEFT.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Another section may have begun, and seen what is here. One that begins after this finds no record that
        // leads to it: its threads cleared the pointers before they put it here.
        // SeqCst, and a write, which the next `begin` reads: what comes before this comes before that section.
        if OPEN.fetch_add(0, Ordering::SeqCst) != 0 {
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
    // SeqCst: partner: in `ReadSection::begin`.
    fence(Ordering::SeqCst);
    drop_later(share);
}

/// Whether nobody can be at what the caller has made unreachable before.
pub(crate) fn none_is_open() -> bool {
    // SeqCst: partner: in `ReadSection::begin`. A section that begins later finds nothing.
    fence(Ordering::SeqCst);
    // Acquire: a section that is over has read for the last time; partner: its end's Release.
    OPEN.load(Ordering::Acquire) == 0
}

/// In a forked child: sections were open in the parent only.
pub(crate) fn forget_others() {
    OPEN.store(0, Ordering::Relaxed);
    IS_CHILD.store(true, Ordering::Relaxed);
}

#[inline]
fn drop_later<T: Send + 'static>(share: T) {
    // Acquire: a section that is over has read for the last time; partner: its end's Release.
    if OPEN.load(Ordering::Acquire) != 0 {
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
