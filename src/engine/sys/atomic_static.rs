//! An atomic `Option<&'static T>`: an address that is null, or leads to what is never freed.

use core::ptr;

use crate::engine::atomic::{AtomicPtr, Ordering, const_fn};

pub(crate) struct AtomicStatic<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Default for AtomicStatic<T> {
    fn default() -> Self {
        AtomicStatic::none()
    }
}

impl<T: Sync> AtomicStatic<T> {
    const_fn! {
        pub(crate) const fn none() -> Self {
            AtomicStatic(AtomicPtr::new(ptr::null_mut()))
        }
    }

    #[inline(always)]
    fn pointer(target: Option<&'static T>) -> *mut T {
        target.map_or(ptr::null_mut(), |target| ptr::from_ref(target).cast_mut())
    }

    /// # Safety
    /// `pointer` was made by [`pointer`](AtomicStatic::pointer).
    #[inline(always)]
    unsafe fn target(pointer: *mut T) -> Option<&'static T> {
        // SAFETY: the caller's promise.
        unsafe { pointer.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static T> {
        // SAFETY: `store` and `swap` alone write it.
        unsafe { Self::target(self.0.load(order)) }
    }

    #[inline(always)]
    pub(crate) fn store(&self, target: Option<&'static T>, order: Ordering) {
        self.0.store(Self::pointer(target), order);
    }

    /// Leaves `target` there; what was there before.
    #[inline(always)]
    pub(crate) fn swap(&self, target: Option<&'static T>, order: Ordering) -> Option<&'static T> {
        // SAFETY: as in `load`.
        unsafe { Self::target(self.0.swap(Self::pointer(target), order)) }
    }

    /// Leaves `new` there if it leads to `old`; otherwise tells where it leads.
    pub(crate) fn replace(
        &self,
        old: Option<&'static T>,
        new: &'static T,
        order: Ordering,
    ) -> Result<(), Option<&'static T>> {
        let (old, new) = (Self::pointer(old), Self::pointer(Some(new)));
        let replaced = self
            .0
            .compare_exchange_weak(old, new, order, Ordering::Relaxed);
        // SAFETY: as in `load`.
        replaced.map_or_else(|now| Err(unsafe { Self::target(now) }), |_| Ok(()))
    }

    /// Whether it leads to `target` now.
    #[inline(always)]
    pub(crate) fn is(&self, target: &T, order: Ordering) -> bool {
        ptr::eq(self.0.load(order), target)
    }

    /// Whether it leads nowhere now.
    #[inline(always)]
    pub(crate) fn is_none(&self, order: Ordering) -> bool {
        self.0.load(order).is_null()
    }
}
