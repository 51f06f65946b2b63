//! What Unix has, as in [`std::os::unix`].

#[allow(unsafe_code, reason = "descriptors")]
pub mod net;
