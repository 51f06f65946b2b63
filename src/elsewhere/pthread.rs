//! The stand-in for `runtime::pthread`: std's kernel threads alone.

use std::io;
#[cfg(unix)]
use std::os::unix::thread::{JoinHandleExt, RawPthread};

pub(crate) struct Pthread(std::thread::JoinHandle<()>);

impl Pthread {
    pub(crate) fn join(self) {
        drop(self.0.join());
    }

    #[cfg(unix)]
    pub(crate) fn pthread(&self) -> RawPthread {
        self.0.as_pthread_t()
    }

    #[cfg(unix)]
    pub(crate) fn into_pthread(self) -> RawPthread {
        self.0.into_pthread_t()
    }
}

pub(super) fn spawn(
    name: Option<&str>,
    stack_size: Option<usize>,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<Pthread> {
    let mut builder = std::thread::Builder::new();
    if let Some(name) = name {
        builder = builder.name(name.into());
    }
    if let Some(size) = stack_size {
        builder = builder.stack_size(size);
    }
    builder.spawn(main).map(Pthread)
}
