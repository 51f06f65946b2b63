//! Extensions for Linux, like [`std::os::linux`].

pub mod fs;
pub mod net;

#[allow(deprecated)]
#[doc(no_inline)]
pub use std::os::linux::raw;
