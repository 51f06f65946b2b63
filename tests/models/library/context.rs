//! Stands in for the library's `context`: what a green thread can ask for in the models.

use crate::engine::wait::Waiter;

pub(crate) enum Action {
    /// It waits here.
    Park(*const Waiter),
    /// It waits, and nobody knows of it but the thread in its `next`, which goes on in its place.
    HandOver,
}
