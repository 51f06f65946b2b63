//! Stands in for `green`: a record that nobody can make.

use core::cell::Cell;
use core::convert::Infallible;

use super::sched::Cluster;
use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use crate::engine::policy::Links;
use crate::engine::wait::Waiter;
use crate::thread::handle::Shared;

pub(crate) struct Green {
    pub(crate) next: Cell<Option<&'static Green>>,
    pub(crate) announced: AtomicBool,
    pub(crate) shared: AtomicPtr<Shared>,
    pub(crate) waiter: Cell<*const Waiter>,
    pub(crate) deadline: Cell<u64>,
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    /// Why there is none.
    pub(super) never: Infallible,
}

// SAFETY: there is none.
unsafe impl Sync for Green {}

impl Green {
    pub(crate) fn cluster(&self) -> &'static Cluster {
        match self.never {}
    }

    pub(crate) fn prefetch_record(&self) {
        match self.never {}
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match self.never {}
    }
}
