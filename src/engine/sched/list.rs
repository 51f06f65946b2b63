//! Intrusive lists: a queue of green threads ([`Fifo`]), a stack of any records that are never freed
//! ([`Lifo`]), and the links by which heaps hold threads ([`Links`]).
//!
//! Invariants:
//! 1. A record is in one list at most: its link belongs to the owner of the list. (A thread's link in a
//!    queue is `next`. One that is in no heap lends its link there to other lists.)
//! 2. A queue is dropped empty: its threads would never run.

use core::cell::Cell;

use crate::engine::sched::Green;

/// A list of green threads, used by its owner only.
#[derive(Default)]
pub(crate) struct Fifo {
    ends: Option<(&'static Green, &'static Green)>,
    len: usize,
}

impl Drop for Fifo {
    #[inline]
    fn drop(&mut self) {
        if self.len != 0 {
            crate::engine::sys::die("a list was dropped with ready threads in it")
        }
    }
}

impl Fifo {
    pub(crate) const fn new() -> Fifo {
        Fifo { ends: None, len: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        green.next.set(None);
        self.ends = match self.ends {
            None => Some((green, green)),
            Some((first, last)) => {
                last.next.set(Some(green));
                Some((first, green))
            }
        };
        self.len += 1;
    }

    /// Puts `green` in front of all others.
    pub(crate) fn push_first(&mut self, green: &'static Green) {
        let others = core::mem::take(self);
        self.push(green);
        self.append(others);
    }

    /// Takes out the last threads, all but `count`.
    pub(crate) fn split_off(&mut self, count: usize) -> Fifo {
        let mut others = core::mem::take(self);
        for _ in 0..count {
            match others.pop() {
                Some(green) => self.push(green),
                None => break,
            }
        }
        others
    }

    /// Takes out the first threads, `count` at most.
    pub(crate) fn take_first(&mut self, count: usize) -> Fifo {
        let others = self.split_off(count);
        core::mem::replace(self, others)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        let (first, last) = self.ends?;
        self.ends = first.next.take().map(|second| (second, last));
        self.len -= 1;
        Some(first)
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&'static Green> {
        self.ends.map(|(first, _)| first)
    }

    /// The first two threads, in their order.
    #[inline(always)]
    pub(crate) fn first_two(&self) -> Option<(&'static Green, &'static Green)> {
        let first = self.first()?;
        Some((first, first.next.get()?))
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves all threads of `other` to the end of this list.
    pub(crate) fn append(&mut self, mut other: Fifo) {
        self.len += core::mem::take(&mut other.len);
        self.ends = match (self.ends, other.ends) {
            (Some((first, last)), Some((other_first, other_last))) => {
                last.next.set(Some(other_first));
                Some((first, other_last))
            }
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// Moves all threads of `other` into this list. Both lists are in the order of their stamps,
    /// and so is the result.
    pub(crate) fn merge(&mut self, mut other: Fifo) {
        let mut mine = core::mem::take(self);
        while let (Some(first), Some(others)) = (mine.first(), other.first()) {
            let from = match first.heap.stamp() <= others.heap.stamp() {
                true => &mut mine,
                false => &mut other,
            };
            from.pop().into_iter().for_each(|green| self.push(green));
        }
        self.append(mine);
        self.append(other);
    }
}

/// A record that can be in a [`Lifo`]. Its link is not used elsewhere meanwhile.
pub(super) trait Linked: 'static {
    /// The link to the record below.
    fn below(&self) -> &Cell<Option<&'static Self>>;
}

pub(super) struct Lifo<T: Linked> {
    top: Cell<Option<&'static T>>,
    len: usize,
}

impl<T: Linked> Lifo<T> {
    pub(super) const fn new() -> Lifo<T> {
        Lifo {
            top: Cell::new(None),
            len: 0,
        }
    }

    /// The stack of `len` records that begins with `top`.
    pub(super) fn from_top(top: &'static T, len: usize) -> Lifo<T> {
        Lifo {
            top: Cell::new(Some(top)),
            len,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The records, the top one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> {
        core::iter::successors(self.top.get(), |record| record.below().get())
    }

    pub(super) fn push(&mut self, record: &'static T) {
        record.below().set(self.top.replace(Some(record)));
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<&'static T> {
        let record = self.top.get()?;
        self.top.set(record.below().take());
        self.len -= 1;
        Some(record)
    }

    /// Takes `record` out of the middle. False: it is not in the stack.
    pub(super) fn remove(&mut self, record: &'static T) -> bool {
        let mut link = &self.top;
        while let Some(other) = link.get() {
            if core::ptr::eq(other, record) {
                link.set(record.below().take());
                self.len -= 1;
                return true;
            }
            link = other.below();
        }
        false
    }

    /// Takes out all records that `takes` accepts; the others stay in order.
    pub(super) fn take_out(&mut self, mut takes: impl FnMut(&'static T) -> bool) {
        let mut link = &self.top;
        while let Some(record) = link.get() {
            if takes(record) {
                link.set(record.below().take());
                self.len -= 1;
            } else {
                link = record.below();
            }
        }
    }
}

/// A record's place in a heap, such as `policy`'s: its first child and its rank. The next sibling is the record's link
/// in any queue.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) child: Cell<Option<&'static Green>>,
    /// The key and, behind it, the record's number in the order of arrival: equal keys keep that
    /// order.
    pub(crate) rank: Cell<(u64, u64)>,
}

impl Links {
    /// Notes the time when the record came into a queue, in [`ticks`](crate::engine::arch::ticks).
    pub(crate) fn set_stamp(&self, stamp: u64) {
        self.rank.set((0, stamp));
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.rank.get().1
    }
}
