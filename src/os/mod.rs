//! What only some systems have, as in [`std::os`].

pub mod linux;
pub mod unix;
