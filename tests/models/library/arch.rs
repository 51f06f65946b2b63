//! Stands in for the library's `arch`: nothing of it orders anything.

pub(crate) fn prefetch(_: *const u8) {}

/// # Safety
/// None is needed.
pub(crate) unsafe fn set_thread_pointer(_: *mut u8) {}

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct FloatControl(pub(crate) u32);

impl FloatControl {
    pub(crate) const DEFAULT: FloatControl = FloatControl(0);

    pub(crate) fn current() -> FloatControl {
        FloatControl::DEFAULT
    }

    pub(crate) fn set(self) {}
}
