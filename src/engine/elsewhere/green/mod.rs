//! The stand-in for `green`: a record that no code can make.

pub(crate) mod current;
#[path = "../../green/fifo.rs"]
pub(crate) mod fifo;
#[path = "../../green/identity.rs"]
pub(crate) mod identity;
#[path = "../../green/links.rs"]
mod links;
#[path = "../../green/places.rs"]
pub(crate) mod places;
/// For tests of policies, which do without records in kernel-thread mode.
#[cfg(test)]
pub(crate) mod records {
    pub(crate) fn create() -> std::io::Result<&'static super::Green> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
#[path = "../../green/ticket.rs"]
pub(crate) mod ticket;
#[path = "../../green/waiter.rs"]
pub(crate) mod waiter;

use core::cell::Cell;
use core::convert::Infallible;

pub(crate) use self::identity::Identity;
pub(crate) use self::links::Links;
use self::waiter::Parking;
use super::sched::Cluster;
use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU64};

pub(crate) struct Green {
    pub(crate) next: Cell<Option<&'static Green>>,
    pub(crate) announced: AtomicBool,
    pub(crate) unhooked: Cell<bool>,
    pub(crate) identity: AtomicPtr<Identity>,
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    /// The value that cannot exist, so that no record can.
    pub(in crate::engine::elsewhere) never: Infallible,
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

pub(crate) mod context {
    /// The action that a green thread would ask of the run loop.
    #[derive(Clone, Copy)]
    pub(crate) enum Action {
        Yield,
        Park,
        HandOver,
    }
}
