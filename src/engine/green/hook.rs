//! An address in a record that its owner, in a folder above, keeps there. This folder cannot look behind it.

use crate::engine::atomic::{AtomicPtr, Ordering};

/// Where the owner keeps an address, or null.
pub(crate) struct Hook(AtomicPtr<()>);

impl Hook {
    pub(super) const fn new() -> Hook {
        Hook(AtomicPtr::new(core::ptr::null_mut()))
    }

    // Relaxed: whatever hands the record over publishes what it holds.

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, address: *const ()) {
        self.0.store(address.cast_mut(), Ordering::Relaxed);
    }
}
