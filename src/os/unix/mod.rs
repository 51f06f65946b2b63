//! What Unix has, as in [`std::os::unix`].

pub mod fs;
pub mod net;
pub mod process;
pub mod thread;

#[allow(deprecated)]
#[doc(no_inline)]
pub use std::os::unix::{ffi, io, raw};

/// The traits of all these modules, and what descriptors are made of, as [`std::os::unix::prelude`].
///
/// ```
/// use greenthread::os::unix::prelude::*;
///
/// let (stream, _peer) = greenthread::os::unix::net::UnixStream::pair()?;
/// assert!(stream.as_raw_fd() > 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod prelude {
    #[doc(no_inline)]
    pub use super::ffi::{OsStrExt, OsStringExt};
    #[doc(no_inline)]
    pub use super::fs::{
        DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
    };
    #[doc(no_inline)]
    pub use super::io::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
    #[doc(no_inline)]
    pub use super::process::{CommandExt, ExitStatusExt};
    #[doc(no_inline)]
    pub use super::thread::JoinHandleExt;
}
