//! An intrusive stack of records that are never freed. A record is in one stack at most: its link
//! belongs to the owner of the stack.

use core::cell::Cell;

/// A record that can be in a [`Lifo`].
pub(super) trait Linked: 'static {
    /// The link to the record below.
    fn below(&self) -> &Cell<Option<&'static Self>>;
}

pub(super) struct Lifo<T: Linked> {
    top: Option<&'static T>,
    len: usize,
}

impl<T: Linked> Lifo<T> {
    pub(super) const fn new() -> Lifo<T> {
        Lifo { top: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn top(&self) -> Option<&'static T> {
        self.top
    }

    pub(super) fn push(&mut self, record: &'static T) {
        record.below().set(self.top);
        self.top = Some(record);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<&'static T> {
        let record = self.top?;
        self.top = record.below().take();
        self.len -= 1;
        Some(record)
    }

    /// Takes `record` out of the middle. False: it is not in the stack.
    pub(super) fn remove(&mut self, record: &'static T) -> bool {
        let mut above = Lifo::new();
        let mut found = false;
        while !found && let Some(top) = self.pop() {
            match core::ptr::eq(top, record) {
                true => found = true,
                false => above.push(top),
            }
        }
        self.put_back(above);
        found
    }

    /// Takes out all records that `takes` accepts; the others stay in order.
    pub(super) fn take_out(&mut self, mut takes: impl FnMut(&'static T) -> bool) {
        let mut kept = Lifo::new();
        while let Some(record) = self.pop() {
            if !takes(record) {
                kept.push(record);
            }
        }
        self.put_back(kept);
    }

    fn put_back(&mut self, mut above: Lifo<T>) {
        while let Some(record) = above.pop() {
            self.push(record);
        }
    }
}
