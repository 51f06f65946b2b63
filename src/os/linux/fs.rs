//! Linux extensions of [`fs`](crate::fs), like [`std::os::linux::fs`].

#[doc(no_inline)]
pub use std::os::linux::fs::MetadataExt;
