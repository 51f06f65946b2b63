//! What a select needs of a sender or receiver, whatever its messages are.

use std::time::Instant;

use super::cell::Entry;
use super::rights::{Attempt, Right};

pub(super) trait Handle {
    /// Selects the operation if it would not block. Else, if there is an entry, queues it.
    fn attempt(&self, entry: Option<&Entry<'_, '_>>) -> Attempt;

    /// Takes the entry out of the queue that `attempt` has put it in, if it is still there.
    fn leave(&self, entry: &Entry<'_, '_>);

    /// The operation, which was selected, is not completed.
    fn give_back(&self, right: Right);

    /// Whether it can be given back as if it had never been had: a place in a buffer can. A message
    /// that was promised cannot, where its sender has seen it received; nor can a peer, who waits.
    fn leaves_no_trace(&self, right: &Right) -> bool;

    /// Whether the operation would not block.
    fn is_ready(&self) -> bool;

    /// When it will be ready by itself.
    fn deadline(&self) -> Option<Instant>;
}
