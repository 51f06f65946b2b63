//! Lists of slots, linked through their headers; and the common lists, one for each class, of the
//! furnished slots that no processor keeps.
//!
//! A common list notes the fewest slots that it has had in an interval. So many has nobody needed
//! meanwhile, and they are the *excess*, but for [`FLOOR`] of them: what caches do with magazines
//! (Bonwick and Adams, "Magazines and Vmem", 2001). Who gives them back: `sched::rooms`.
//!
//! # Memory orderings
//! `OVER` is a hint: relaxed. What it is wrong about is put right by the next processor that lies
//! down. `ENDED` only makes one of several callers the one that ends an interval.

use super::{CLASSES, Class, Slot};
use crate::engine::sys::lock::Lock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Slots of each class, and of each cache, that are kept for ever.
pub(super) const FLOOR: usize = 16;

static COMMON: [Lock<Common>; CLASSES] = [const { Lock::new(Common::new()) }; CLASSES];
/// How many slots the common lists have beyond their floors.
static OVER: AtomicUsize = AtomicUsize::new(0);
/// When the last interval ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// The last in is the first out.
pub(super) struct List {
    pub(super) head: Option<&'static Slot>,
}

impl List {
    pub(super) const fn new() -> Self {
        List { head: None }
    }

    #[inline]
    pub(super) fn push(&mut self, slot: &'static Slot) {
        set_next(slot, self.head.replace(slot));
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.head?;
        self.head = next(slot);
        Some(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Slot> + use<> {
        std::iter::successors(self.head, |slot| next(slot))
    }
}

fn next(slot: &'static Slot) -> Option<&'static Slot> {
    // SAFETY: a link is null or came from a `&'static Slot` (`set_next`).
    unsafe { slot.link.load(Relaxed).as_ref() }
}

pub(super) fn set_next(slot: &'static Slot, next: Option<&'static Slot>) {
    let link = next.map_or(std::ptr::null(), |slot| slot as *const Slot);
    slot.link.store(link.cast_mut(), Relaxed);
}

/// The free slots of a class.
pub(super) struct Common {
    list: List,
    length: usize,
    /// The smallest length in this interval.
    fewest: usize,
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
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn push(&mut self, slot: &'static Slot) {
        self.list.push(slot);
        self.set_length(self.length + 1);
    }

    /// Puts `count` slots in at once, which are linked from `first` to `last`.
    pub(super) fn push_all(&mut self, first: &'static Slot, last: &'static Slot, count: usize) {
        set_next(last, self.list.head.replace(first));
        self.set_length(self.length + count);
    }

    pub(super) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.set_length(self.length - 1);
        self.fewest = self.fewest.min(self.length);
        Some(slot)
    }

    fn over(&self) -> usize {
        self.length.saturating_sub(FLOOR)
    }

    fn set_length(&mut self, length: usize) {
        let before = self.over();
        self.length = length;
        // Wrapping: the sum of all lists is right.
        let more = self.over().wrapping_sub(before);
        if more != 0 {
            OVER.fetch_add(more, Relaxed);
        }
    }
}

/// Whether the common lists have so many slots that it is worth while to look for an excess later.
pub(crate) fn is_overstocked() -> bool {
    OVER.load(Relaxed) != 0
}

/// Free slots that are to be given back.
pub(crate) struct Excess {
    left: [usize; CLASSES],
}

impl Excess {
    /// The slots that nobody has needed in the interval that ends `now`. `None`: the last one ended
    /// less than `interval` ago. Preemption is off.
    pub(crate) fn of_interval(now: u64, interval: u64) -> Option<Excess> {
        let ended = ENDED.load(Relaxed);
        if now < ended.saturating_add(interval)
            || ENDED
                .compare_exchange(ended, now, Relaxed, Relaxed)
                .is_err()
        {
            return None;
        }
        Some(Excess::count(|common| {
            std::mem::replace(&mut common.fewest, common.length)
        }))
    }

    /// All slots that no processor has. Preemption is off.
    pub(crate) fn all() -> Excess {
        Excess::count(|common| common.length)
    }

    fn count(of: impl Fn(&mut Common) -> usize) -> Excess {
        let left = COMMON.each_ref().map(|common| of(&mut common.lock()));
        Excess {
            left: left.map(|count| count.saturating_sub(FLOOR)),
        }
    }

    /// Takes the next of them out of its list, if it is still too much there. Preemption is off.
    pub(crate) fn next(&mut self) -> Option<&'static Slot> {
        for (left, common) in self.left.iter_mut().zip(&COMMON) {
            if *left == 0 {
                continue;
            }
            let mut common = common.lock();
            *left = (*left).min(common.over());
            if *left != 0 {
                *left -= 1;
                return common.pop();
            }
        }
        None
    }
}
