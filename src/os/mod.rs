//! Extensions for particular systems, like [`std::os`].

pub mod linux;
pub mod unix;

#[doc(no_inline)]
pub use std::os::{fd, raw};
