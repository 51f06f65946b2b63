//! What Linux has, as in [`std::os::linux`].

pub mod net;
