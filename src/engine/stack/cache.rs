//! Free slots, all of them initialised: those that a processor keeps for itself, and the common lists,
//! one for each class, of those that no processor keeps. They are linked through their headers.

use super::{CLASSES, Class, Slot, WANTED, release, trim};
use crate::engine::sys::{lock::Lock, perturb};
use std::sync::atomic::Ordering::*;

/// How many slots a cache takes from its class's list at a time.
pub(super) const BATCH: usize = 16;
/// The most that a cache keeps.
const MOST: usize = 1024;

pub(super) static COMMON: [Lock<Common>; CLASSES] = [const { Lock::new(Common::new()) }; CLASSES];

/// The last in is the first out.
pub(crate) struct List {
    head: Option<&'static Slot>,
}

impl List {
    const fn new() -> Self {
        List { head: None }
    }

    #[inline]
    fn push(&mut self, slot: &'static Slot) {
        slot.link.store(self.head.replace(slot), Relaxed);
    }

    #[inline]
    fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.head?;
        self.head = slot.link.load(Relaxed);
        Some(slot)
    }

    /// Gives them, trimmed, to their class's list in one piece.
    pub(super) fn release(mut self) {
        let mut trimmed = List::new();
        while let Some(slot) = self.pop() {
            // As in the parent's `release`.
            let _ = trim(slot);
            trimmed.push(slot);
        }
        perturb::point("stack: trimmed");
        let Some(first) = trimmed.head else { return };
        let mut free = common(first.class()).lock();
        while let Some(slot) = trimmed.pop() {
            free.push(slot);
        }
    }
}

/// The free slots of a class.
pub(super) struct Common {
    list: List,
    pub(super) length: usize,
    /// The smallest length since the last look of `reclaim`, and when that was.
    pub(super) fewest: usize,
    pub(super) looked_at: u64,
}

/// That of a class. Take the lock with preemption off.
pub(super) fn common(class: Class) -> &'static Lock<Common> {
    &COMMON[class.index()]
}

impl Common {
    const fn new() -> Common {
        Common {
            list: List::new(),
            length: 0,
            fewest: 0,
            looked_at: 0,
        }
    }

    pub(super) fn push(&mut self, slot: &'static Slot) {
        self.list.push(slot);
        self.length += 1;
    }

    pub(super) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.length -= 1;
        self.fewest = self.fewest.min(self.length);
        Some(slot)
    }
}

/// Free slots that one processor keeps for itself, so that most starts take no lock and make no
/// system call, and get a stack that is still in the CPU's cache.
///
/// All are of one class, that of the cluster's default size.
///
/// Giving memory back costs more than a thread's whole life, so it is not done at each death: a
/// slot's is given back when it leaves the cache.
pub(crate) struct Cache {
    list: List,
    class: Class,
    pub(super) length: usize,
}

impl Cache {
    /// For slots with at least `size` usable bytes.
    pub(crate) fn new(size: usize) -> Self {
        Cache {
            list: List::new(),
            class: Class::of(size),
            length: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sees to it that there are slots, if the class's list has any.
    pub(crate) fn fetch(&mut self) -> bool {
        self.length != 0 || self.fetch_some()
    }

    #[cold]
    fn fetch_some(&mut self) -> bool {
        let mut free = common(self.class).lock();
        for slot in std::iter::from_fn(|| free.pop()).take(BATCH) {
            self.list.push(slot);
            self.length += 1;
        }
        self.length != 0
    }

    /// The slot recycled last.
    pub(crate) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.length -= 1;
        Some(slot)
    }

    /// Keeps a slot that a thread has left, and gives half of all to others that want some; a slot of
    /// another class goes to that class's list.
    pub(crate) fn push(&mut self, slot: &'static Slot) {
        self.keep(slot);
        if WANTED.load(Relaxed) && WANTED.swap(false, Relaxed) {
            self.halve();
        }
    }

    /// The same for a slot that was acquired for this cache: perhaps it was this cache's owner that
    /// found the list empty.
    pub(crate) fn keep(&mut self, slot: &'static Slot) {
        if self.class != slot.class() {
            return release(slot);
        }
        if self.length == MOST {
            self.halve();
        }
        self.list.push(slot);
        self.length += 1;
    }

    /// Gives half of the slots, those recycled last, to the class's list.
    #[cold]
    fn halve(&mut self) {
        let mut given = List::new();
        let count = self.length.div_ceil(2);
        for slot in (0..count).map_while(|_| self.pop()) {
            given.push(slot);
        }
        given.release();
    }

    /// Takes all slots out.
    pub(crate) fn take(&mut self) -> Option<List> {
        self.length = 0;
        let head = Some(self.list.head.take()?);
        Some(List { head })
    }

    /// Gives all slots to the class's list.
    pub(crate) fn drain(&mut self) {
        self.take().into_iter().for_each(List::release);
    }
}
