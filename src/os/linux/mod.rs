//! What Linux has, as in [`std::os::linux`].

pub mod fs;
pub mod net;
