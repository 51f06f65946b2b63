//! Extensions for Linux, like [`std::os::linux`].

pub mod fs;
#[cfg(feature = "net")]
pub mod net;

#[allow(deprecated)]
#[doc(no_inline)]
pub use std::os::linux::raw;
