//! Stands in for the library's `outbox`: nobody sends.

use crate::engine::sched::{Green, Owned};

pub(crate) struct Outbox;

impl Outbox {
    pub(crate) fn expect(&mut self, _: &'static Green) {}
}

pub(super) fn take_senders(_: &mut Owned<'_>) -> impl Iterator<Item = &'static Green> + use<> {
    core::iter::empty()
}
