//! Read sections: an observer reads threads' names while the threads run on and end, and no name is freed meanwhile.
//!
//! A thread owns its identity until the thread ends, and its record leads to the identity. A thread that ends clears the
//! record's pointer, and then asks whether a read section is open. If one is, the thread leaves its share of the identity
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
//! In the same way stacks stay that a section has seen: before a stack is taken apart, the word that leads to it is cleared,
//! and then the same question is asked ([`none_is_open`]).

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::engine::sys::{kernel_thread, lock::entry_fence};

static OPEN: AtomicUsize = AtomicUsize::new(0);
/// This process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// What threads have left behind.
static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// While this value lives, the section is open: identities that were seen in the section stay.
pub(crate) struct ReadSection(());

impl ReadSection {
    pub(crate) fn begin() -> ReadSection {
        // SeqCst: partner: the fence in `leave`.
        OPEN.fetch_add(1, Ordering::SeqCst);
        // Where there is no barrier, there are no green threads, and kernel threads make their own fence.
        if kernel_thread::register_barrier() {
            kernel_thread::barrier();
        }
        ReadSection(())
    }

    /// Ends the section for a caller that must not free memory: the next section drops what threads have left behind.
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
        // A thread that is stuck may hold the lock: then the next section drops what was left. (No thread panics while it
        // holds the lock.)
        let Ok(mut kept) = LEFT.try_lock() else {
            return;
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

/// Drops a thread's share of its identity, to which the thread's record does not lead any more.
#[inline]
pub(crate) fn leave<T: Send + 'static>(share: T, is_green: bool) {
    match is_green {
        true => entry_fence(),
        // SeqCst: partner: in `ReadSection::begin`.
        false => fence(Ordering::SeqCst),
    }
    // Acquire: a section that is over has read for the last time; partner: its end's Release.
    if OPEN.load(Ordering::Acquire) != 0 {
        keep(Box::new(share));
    }
}

/// Whether no observer can be reading what the caller has made unreachable before.
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

#[cold]
fn keep(share: Box<dyn Any + Send>) {
    // In a forked child the lock may be held for ever: then the share is never dropped.
    let left = match IS_CHILD.load(Ordering::Relaxed) {
        true => LEFT.try_lock().ok(),
        false => Some(LEFT.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    match left {
        Some(mut left) => left.push(share),
        None => core::mem::forget(share),
    }
}
