//! The links by which heaps, such as `policy`'s, hold records. A record that is in no heap lends
//! its link to other lists.

use core::cell::Cell;

use super::Green;

/// A record's place in a heap: its first child and its rank. The next sibling is the record's link
/// in any queue.
pub(crate) struct Links {
    pub(crate) child: Cell<Option<&'static Green>>,
    /// The key and, behind it, the record's number in the order of arrival: equal keys keep that
    /// order.
    pub(crate) rank: Cell<(u64, u64)>,
}

impl Links {
    pub(crate) const fn new() -> Links {
        Links {
            child: Cell::new(None),
            rank: Cell::new((0, 0)),
        }
    }

    /// Sets the record's link in another list. The record is in no queue.
    pub(crate) fn set_link(&self, link: Option<&'static Green>) {
        self.child.set(link);
    }

    pub(crate) fn take_link(&self) -> Option<&'static Green> {
        self.child.take()
    }

    /// Notes the time when the record came into a queue, in [`ticks`](crate::engine::arch::ticks).
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.rank.set((0, stamp));
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.rank.get().1
    }
}
