//! What Unix has, as in [`std::os::unix`].

pub mod fs;
#[allow(unsafe_code, reason = "descriptors")]
pub mod net;

/// What only Unix processes have: std's own. What its `CommandExt` does,
/// [`Command`](crate::process::Command) has as methods.
pub mod process {
    #[doc(no_inline)]
    pub use std::os::unix::process::{ExitStatusExt, parent_id};
}
