//! An intrusive first-in-first-out list of green threads, and one that processors share.
//!
//! A thread is in one list at most: its link belongs to whoever owns the list.

use crate::atomic::{AtomicUsize, Ordering};
use crate::green::Green;
use crate::sys::lock::Lock;

/// A list, for whoever owns it.
#[derive(Default)]
pub(crate) struct Fifo {
    ends: Option<(&'static Green, &'static Green)>,
    len: usize,
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

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Moves all of `other` behind this list.
    pub(crate) fn append(&mut self, other: Fifo) {
        self.len += other.len;
        self.ends = match (self.ends, other.ends) {
            (Some((first, last)), Some((other_first, other_last))) => {
                last.next.set(Some(other_first));
                Some((first, other_last))
            }
            (mine, theirs) => mine.or(theirs),
        };
    }
}

/// A list under a lock, and its length beside it for those who only look.
pub(crate) struct SharedFifo {
    list: Lock<Fifo>,
    len: AtomicUsize,
}

impl SharedFifo {
    pub(crate) const fn new() -> SharedFifo {
        SharedFifo {
            list: Lock::new(Fifo::new()),
            len: AtomicUsize::new(0),
        }
    }

    pub(crate) fn push(&self, green: &'static Green) {
        let mut list = self.list.lock();
        list.push(green);
        self.len.store(list.len, Ordering::Relaxed);
    }

    pub(crate) fn append(&self, batch: Fifo) {
        let mut list = self.list.lock();
        list.append(batch);
        self.len.store(list.len, Ordering::Relaxed);
    }

    /// Takes one thread, and with it what `share` says of how many more: its argument is the
    /// queue's length.
    pub(crate) fn take(
        &self,
        share: impl FnOnce(usize) -> usize,
    ) -> Option<(&'static Green, Fifo)> {
        if self.is_empty() {
            return None;
        }
        let mut batch = Fifo::new();
        let mut list = self.list.lock();
        let first = list.pop()?;
        for _ in 0..share(list.len) {
            match list.pop() {
                Some(green) => batch.push(green),
                None => break,
            }
        }
        self.len.store(list.len, Ordering::Relaxed);
        Some((first, batch))
    }

    /// A hint unless the caller has ordered itself after the pushes (the idle handshake's fences
    /// do).
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl Default for SharedFifo {
    fn default() -> SharedFifo {
        SharedFifo::new()
    }
}

impl core::fmt::Debug for SharedFifo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} threads", self.len())
    }
}
