//! Stands in for the library's `driver`: its protocol files.

#[path = "../../../src/engine/driver/uring/inbox.rs"]
pub(crate) mod inbox;
#[path = "../../../src/engine/driver/readiness.rs"]
pub(crate) mod readiness;
pub(crate) use self::with_folders::watch;

/// Files that have a folder of their own.
#[path = "../../../src/engine/driver"]
mod with_folders {
    use super::epoll;
    #[allow(unused_imports)] // its public names
    pub(crate) mod watch;
}

/// Who collects knows of the instance for watched descriptors without it.
pub(crate) mod epoll {
    use std::{io, os::fd::RawFd};

    pub(crate) struct Instance;

    pub(crate) static INSTANCE: Instance = Instance;

    impl Instance {
        pub(crate) fn add_watched(&self, _: RawFd) -> io::Result<()> {
            Ok(())
        }
    }
}
