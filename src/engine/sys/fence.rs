//! The cheap half of an asymmetric fence; [`kernel_thread::barrier`](super::kernel_thread::barrier) is the
//! heavy half.
//!
//! A thread that does the cheap half between a store and a load, and one that does the heavy half between
//! its own two, cannot both miss the other's store: `membarrier` makes the compiler fence a full one at the
//! only moment when that matters.

use crate::engine::atomic::{Ordering::SeqCst, compiler_fence};

/// Keeps what comes before it in the program before what comes after it.
#[inline(always)]
pub(crate) fn entry_fence() {
    // SeqCst, partner: the `barrier` of whoever takes a processor away.
    compiler_fence(SeqCst);
}
