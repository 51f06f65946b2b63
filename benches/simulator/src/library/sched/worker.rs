//! Stands in for the library's `worker`: what a kernel thread has of its own.

use core::cell::Cell;

use crate::engine::atomic::{AtomicUsize, Ordering, fence};
use crate::engine::sched::idle::Parker;
use crate::engine::sched::processor::Ownership;
use crate::engine::sched::{Cluster, Green, Processor};
use crate::engine::sys::kernel_thread;
use crate::engine::sys::shared::Linked;
use crate::virtual_time::{self, Access};

/// The fields lie on three lines, as the library's.
#[repr(C, align(128))]
pub(crate) struct Worker {
    pub(crate) processor: Ownership<Processor>,
    first: [u64; 7],
    below: Cell<Option<&'static Worker>>,
    pub(crate) handed: Cell<Option<&'static Green>>,
    second: [u64; 6],
    cluster: Cell<Option<&'static Cluster>>,
    pub(super) parker: Parker,
    pub(crate) searching: Cell<bool>,
    /// Somebody has woken it and it has found nothing to run yet. Bookkeeping, which costs nothing.
    pub(crate) was_woken: Cell<bool>,
}

// SAFETY: the simulation runs on one kernel thread.
unsafe impl Sync for Worker {}

impl Linked for Worker {
    fn below(&self) -> &Cell<Option<&'static Worker>> {
        virtual_time::access(core::ptr::from_ref(&self.below).addr(), Access::Store);
        &self.below
    }
}

impl Worker {
    pub(crate) fn new() -> Worker {
        Worker {
            processor: Ownership::default(),
            first: [0; 7],
            below: Cell::new(None),
            handed: Cell::new(None),
            second: [0; 6],
            cluster: Cell::new(None),
            parker: Parker::default(),
            searching: Cell::new(false),
            was_woken: Cell::new(false),
        }
    }

    pub(crate) fn set_cluster(&self, cluster: &'static Cluster) {
        self.cluster.set(Some(cluster));
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster.get().expect("its cluster has not started")
    }

    /// Writing the thread pointer is a part of what a switch costs.
    pub(crate) fn use_native_tls(&self) {}

    pub(crate) fn sleep(&self, deadline: Option<u64>) -> bool {
        let is_woken = self.parker.sleep(deadline);
        self.was_woken.set(is_woken);
        is_woken
    }

    pub(crate) fn sleep_until_woken(&self) {
        while !self.sleep(None) {}
    }
}
