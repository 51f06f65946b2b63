//! Waiting in queues: locks, channels and descriptors build on these modules.
//!
//! | file | idea |
//! |---|---|
//! | `queue` | one wait in several queues is ended once, by one of them or by the clock; a list, its lock and its owner's flags in one word |
//! | `side` | two threads take turns, and one goes on in the other's place |
//!
//! How one thread waits and another wakes it is in `sched::park`.

pub(crate) mod queue;
pub(crate) mod side;

pub(crate) use super::inspect::notes::{Facts, Locator, WaitKind, WaitReason};
pub(crate) use super::sched::cancel::Token;
#[cfg(green)]
pub(crate) use super::sched::frames::refusal;
pub(crate) use super::sched::frames::{
    Adopted, Surroundings, What, cancelled, ends_at, is_in_frame, raise, run, shielded,
};
pub(crate) use crate::engine::sched::park::{Outcome, Waiter};
