//! Stands in for the library's `driver`: its protocol files.

pub(crate) mod epoll {
    include!(concat!(env!("OUT_DIR"), "/parts/epoll.rs"));
}
#[path = "../../../src/engine/driver/watch.rs"]
pub(crate) mod watch;

/// No events come. Who collects knows of the instance for watched descriptors without it.
pub(crate) mod instance {
    use std::{io, os::fd::RawFd};

    use super::epoll::Readiness;
    use crate::engine::sched::Fifo;

    /// It serves one descriptor, in one direction.
    pub(crate) struct Record(pub(crate) Readiness);

    // SAFETY: the checker runs all threads on one.
    unsafe impl Sync for Record {}

    impl Record {
        pub(crate) fn acquire() -> &'static Record {
            Box::leak(Box::new(Record(Readiness::new())))
        }

        pub(crate) fn release(&self) {}

        pub(crate) fn close(&self) {
            self.0.close(&mut Fifo::new());
        }
    }

    pub(crate) struct Source;

    impl Source {
        pub(crate) fn closed() -> io::Error {
            io::ErrorKind::NotConnected.into()
        }
    }

    pub(crate) struct Instance;

    pub(crate) static INSTANCE: Instance = Instance;

    impl Instance {
        pub(crate) fn add_watched(&self, _: RawFd) -> io::Result<()> {
            Ok(())
        }

        pub(crate) fn start(&self) -> io::Result<()> {
            Ok(())
        }

        pub(crate) fn add(&self, _: RawFd, _: &'static Record) -> io::Result<()> {
            Ok(())
        }

        pub(crate) fn remove(&self, _: RawFd) {}
    }
}
