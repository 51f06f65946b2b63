//! Extensions for particular systems, like [`std::os`].

pub mod linux;
pub mod unix;

#[doc(no_inline)]
pub use std::os::{fd, raw};

/// What this crate's extension traits ask for, so that nobody else implements them.
mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::process::Command {}
    #[cfg(feature = "net")]
    impl Sealed for crate::net::TcpStream {}
}
