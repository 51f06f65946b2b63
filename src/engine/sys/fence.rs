//! The cheap half of an asymmetric fence; [`kernel_thread::barrier`](super::kernel_thread::barrier) is the
//! heavy half.
//!
//! One thread does the cheap half between a store and a load, another the heavy half between its
//! own store and load: they cannot both miss the other's store. `membarrier` turns the compiler
//! fence into a full one at the only moment when that matters.

use crate::engine::atomic::{Ordering::SeqCst, compiler_fence};

/// Keeps the accesses before it in the program before the accesses after it.
#[inline(always)]
pub(crate) fn entry_fence() {
    // SeqCst, partner: the `barrier` of a thread that takes a processor away.
    compiler_fence(SeqCst);
}
