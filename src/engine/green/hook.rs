//! An address that an owner in a folder above keeps in a record. This folder cannot look behind it.

use crate::engine::atomic::{AtomicPtr, Ordering};

/// An address that belongs to the owner, or null.
pub(crate) struct Hook(AtomicPtr<()>);

impl Hook {
    pub(super) const fn new() -> Hook {
        Hook(AtomicPtr::new(core::ptr::null_mut()))
    }

    // Relaxed: the handover of the record publishes the data behind the address.

    #[inline(always)]
    pub(crate) fn get(&self) -> *const () {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, address: *const ()) {
        self.0.store(address.cast_mut(), Ordering::Relaxed);
    }
}
