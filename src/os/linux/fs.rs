//! What only Linux file systems have, as [`std::os::linux::fs`].

#[doc(no_inline)]
pub use std::os::linux::fs::MetadataExt;
