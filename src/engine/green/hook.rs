//! An address that an owner in a folder above keeps in a record. This folder cannot look behind it.

use crate::engine::atomic::{AtomicPtr, Ordering, const_fn};

/// An address that belongs to the owner, or null.
pub(crate) struct Hook(AtomicPtr<()>);

impl Hook {
    const_fn! {
        pub(super) const fn new() -> Hook {
            Hook(AtomicPtr::new(core::ptr::null_mut()))
        }
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

    // For who has no part in the handovers, as a report:

    /// [`get`](Hook::get) from outside: what came before the [`publish`](Hook::publish) is seen, too.
    pub(crate) fn look(&self) -> *const () {
        // Acquire: partner: Release in `publish`.
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn publish(&self, address: *const ()) {
        // Release: partner: Acquire in `look`.
        self.0.store(address.cast_mut(), Ordering::Release);
    }
}
