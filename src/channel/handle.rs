//! The operations of a sender or receiver that a select uses, whatever the type of the messages.

use std::time::Instant;

use super::cell::Entry;
use super::rights::{Attempt, Right};

pub(super) trait Handle {
    /// Selects the operation if it would not block. Otherwise queues the entry, if there is one.
    fn attempt(&self, entry: Option<&Entry<'_, '_>>) -> Attempt;

    /// Takes the entry out of the queue that `attempt` has put it in, if it is still there.
    fn leave(&self, entry: &Entry<'_, '_>);

    /// Gives the right to a selected operation back without completing it.
    fn give_back(&self, right: Right);

    /// Returns whether giving the right back leaves no trace. A place in a buffer leaves none. A
    /// promised message leaves one if its sender has seen it received, and so does a peer, which
    /// waits.
    fn leaves_no_trace(&self, right: &Right) -> bool;

    /// Returns whether the operation would not block.
    fn is_ready(&self) -> bool;

    /// Returns the instant at which the operation becomes ready by itself, if it does.
    fn deadline(&self) -> Option<Instant>;
}
