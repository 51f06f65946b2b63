//! Extensions for Unix, like [`std::os::unix`].

pub mod fs;
#[cfg(feature = "net")]
pub mod net;
pub mod process;
pub mod thread;

#[allow(deprecated)]
#[doc(no_inline)]
pub use std::os::unix::{ffi, io, raw};

/// The traits of these modules and the types of descriptors, like [`std::os::unix::prelude`].
///
/// # Examples
///
/// ```
/// use greenthread::os::unix::prelude::*;
///
/// let file = greenthread::fs::File::open("/dev/null")?;
/// assert!(file.as_raw_fd() > 2);
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
