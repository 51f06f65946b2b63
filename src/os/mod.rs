//! What only some systems have, as in [`std::os`].

pub mod linux;
pub mod unix;

#[doc(no_inline)]
pub use std::os::{fd, raw};
