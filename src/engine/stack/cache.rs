//! Free slots that one processor keeps for itself.

use super::list::{FLOOR, List, common, set_next};
use super::{Class, Slot, WANTED, release, trim};
use crate::engine::sys::perturb;
use std::sync::atomic::Ordering::*;

/// Free slots that one processor keeps for itself, so that most starts take no lock and make no
/// system call, and get a stack that is still in the CPU's cache.
///
/// All are of one class, that of the first slot pushed: push those of the cluster's default size.
///
/// Giving memory back costs more than a thread's whole life, so it is not done at each death: a
/// slot's is given back every [`USES`](Cache::USES)th time, when it leaves the cache, and when the
/// processor has nothing else to do.
pub(crate) struct Cache {
    list: List,
    class: Option<Class>,
    pub(super) length: usize,
    dirty: usize,
}

/// Slots that were taken out of a cache together.
pub(crate) struct Taken {
    first: &'static Slot,
    count: usize,
}

impl Cache {
    const MOST: usize = 1024;
    const USES: u32 = 256;
    /// How many slots are trimmed between two looks at whether there is something better to do, and
    /// how many are taken from the class's list at a time.
    const BATCH: usize = 16;

    pub(crate) const fn new() -> Self {
        Cache {
            list: List::new(),
            class: None,
            length: 0,
            dirty: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sees to it that there are slots, of `size` bytes at least, if the class's list has any.
    pub(crate) fn fetch(&mut self, size: usize) -> bool {
        self.length != 0 || self.fetch_some(size)
    }

    #[cold]
    fn fetch_some(&mut self, size: usize) -> bool {
        let Ok(class) = Class::of(size) else {
            return false;
        };
        if *self.class.get_or_insert(class) != class {
            return false;
        }
        let mut free = common(class).lock();
        while self.length < Self::BATCH
            && let Some(slot) = free.pop()
        {
            slot.dirty.store(false, Relaxed);
            self.list.push(slot);
            self.length += 1;
        }
        self.length != 0
    }

    /// The slot recycled last.
    pub(crate) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.length -= 1;
        self.dirty -= usize::from(slot.dirty.load(Relaxed));
        Some(slot)
    }

    /// Keeps a slot that a thread has left, unless others want it; one of another class goes to that
    /// class's list.
    pub(crate) fn push(&mut self, slot: &'static Slot) {
        if WANTED.load(Relaxed) && WANTED.swap(false, Relaxed) {
            self.shrink(0);
            return release(slot);
        }
        self.keep(slot);
    }

    /// The same for a slot that was acquired for this cache: perhaps it was this cache's owner that
    /// found the list empty.
    pub(crate) fn keep(&mut self, slot: &'static Slot) {
        if *self.class.get_or_insert(slot.class()) != slot.class() {
            return release(slot);
        }
        if self.length == Self::MOST {
            self.shrink(Self::MOST / 2);
        }
        let uses = slot.uses.load(Relaxed).wrapping_add(1);
        slot.uses.store(uses, Relaxed);
        let is_dirty = !uses.is_multiple_of(Self::USES);
        if !is_dirty {
            trim(slot);
        }
        slot.dirty.store(is_dirty, Relaxed);
        self.list.push(slot);
        self.length += 1;
        self.dirty += usize::from(is_dirty);
    }

    /// Gives back the memory of the slots recycled since the last call, as long as `go_on` agrees.
    /// For a processor going idle.
    pub(crate) fn trim_dirty(&mut self, go_on: impl Fn() -> bool) {
        let mut slots = self.list.iter();
        while self.dirty != 0 && go_on() {
            let batch = slots
                .by_ref()
                .filter(|slot| slot.dirty.swap(false, Relaxed));
            // No more than there are: the dirty ones are at the front, and the list is long.
            let few = Self::BATCH.min(self.dirty);
            let trimmed = batch.take(few).map(trim).count();
            self.dirty -= trimmed;
        }
    }

    /// Gives all slots to their class's list.
    pub(crate) fn drain(&mut self) {
        self.shrink(0);
    }

    /// Whether it has more than are kept for ever.
    pub(crate) fn is_overstocked(&self) -> bool {
        self.length > FLOOR
    }

    /// Takes out the slots that are more than are kept for ever. It takes as long as a few cache
    /// misses, however many they are.
    pub(crate) fn take_excess(&mut self) -> Option<Taken> {
        self.take_after(FLOOR)
    }

    /// Takes out all but the first `keep` slots.
    fn take_after(&mut self, keep: usize) -> Option<Taken> {
        let mut slots = self.list.iter();
        let kept = slots.by_ref().take(keep);
        let (last, dirty) = kept.fold((None, 0), |(_, dirty), slot| {
            (Some(slot), dirty + usize::from(slot.dirty.load(Relaxed)))
        });
        let first = slots.next()?;
        match last {
            Some(slot) => set_next(slot, None),
            None => self.list.head = None,
        }
        let count = self.length - keep;
        (self.length, self.dirty) = (keep, dirty);
        Some(Taken { first, count })
    }

    /// Keeps the first `keep` slots; the others go to their class's list.
    fn shrink(&mut self, keep: usize) {
        if let Some(taken) = self.take_after(keep) {
            taken.release();
        }
    }
}

impl Taken {
    /// Gives them, trimmed, to their class's list in one piece.
    pub(crate) fn release(self) {
        let list = List {
            head: Some(self.first),
        };
        let dirty = |slot: &&'static Slot| slot.dirty.swap(false, Relaxed);
        list.iter().filter(dirty).for_each(trim);
        perturb::point("stack: trimmed");
        let last = list.iter().last().unwrap_or(self.first);
        let mut free = common(self.first.class()).lock();
        free.push_all(self.first, last, self.count);
    }
}
