//! The stand-in for `runtime::bare`: std's threads do not work in a forked child here.

use core::convert::Infallible;
use std::io;
#[cfg(unix)]
use std::os::unix::thread::RawPthread;

pub(crate) struct Handle(Infallible);

impl Handle {
    pub(crate) fn join(self) {
        match self.0 {}
    }

    #[cfg(unix)]
    pub(crate) fn pthread(&self) -> RawPthread {
        match self.0 {}
    }

    #[cfg(unix)]
    pub(crate) fn into_pthread(self) -> RawPthread {
        match self.0 {}
    }
}

/// # Safety
/// None is needed.
pub(super) unsafe fn spawn<F>(_: Option<usize>, _: F) -> io::Result<Handle> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn set_name(_: &str) {}
