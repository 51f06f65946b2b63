//! The stand-in for `thread`: a record that no code can make.

use core::cell::Cell;
use core::convert::Infallible;

use super::list::Links;
use super::park::Parking;
use super::{Cluster, Identity};
use crate::engine::atomic::{AtomicPtr, AtomicU64};

pub(crate) struct Green {
    pub(crate) next: Cell<Option<&'static Green>>,
    pub(crate) identity: AtomicPtr<Identity>,
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    /// The value that cannot exist, so that no record can.
    pub(super) never: Infallible,
}

// SAFETY: there is no record.
unsafe impl Sync for Green {}

impl Green {
    pub(crate) fn cluster(&self) -> &'static Cluster {
        match self.never {}
    }

    pub(crate) fn expect(&self, _: *const Parking) {
        match self.never {}
    }

    pub(crate) fn expect_on_stack(&self, _: *const Parking) {
        match self.never {}
    }

    pub(crate) fn goes_on(&self) {
        match self.never {}
    }

    pub(crate) fn prefetch_record(&self) {
        match self.never {}
    }

    pub(crate) fn prefetch_two(next: &Green, _: &Green) {
        match next.never {}
    }
}
