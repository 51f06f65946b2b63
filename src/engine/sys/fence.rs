//! The cheap half of an asymmetric fence; [`kernel_thread::barrier`](super::kernel_thread::barrier) is the
//! heavy half.
//!
//! One thread does the cheap half between a store and a load, another the heavy half between its
//! own store and load: they cannot both miss the other's store. `membarrier` turns the compiler
//! fence into a full one at the only moment when that matters.
//!
//! The heavy half cannot be replaced while threads run that make the cheap half: where the system refuses it from the
//! start there are no green threads, and where it does so later the process ends, and says why.

use crate::engine::atomic::{Ordering::SeqCst, compiler_fence};

/// Keeps the accesses before it in the program before the accesses after it.
#[inline(always)]
pub(crate) fn entry_fence() {
    // SeqCst, partner: the `barrier` of a thread that takes a processor away.
    compiler_fence(SeqCst);
}
