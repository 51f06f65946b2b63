//! A queue that processors share: first in, first out, with preempted threads behind all others
//! ([`aging`](super::aging)).

use super::Readied;
use super::aging::{Aging, is_preempted};
use crate::engine::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::engine::green::Green;
use crate::engine::green::fifo::Fifo;
use crate::engine::sys::clock;
use crate::engine::sys::lock::Lock;

/// Two lists under a lock, and their lengths beside it for callers that only look.
pub(crate) struct SharedQueue {
    lists: Lock<Lists>,
    fresh: AtomicUsize,
    preempted: AtomicUsize,
    aging: Aging,
}

#[derive(Default)]
struct Lists {
    fresh: Fifo,
    preempted: Fifo,
}

impl SharedQueue {
    pub(crate) const fn new() -> SharedQueue {
        SharedQueue {
            lists: Lock::new(Lists {
                fresh: Fifo::new(),
                preempted: Fifo::new(),
            }),
            fresh: AtomicUsize::new(0),
            preempted: AtomicUsize::new(0),
            aging: Aging::new(),
        }
    }

    pub(crate) fn push(&self, green: &'static Green, how: Readied) {
        let mut lists = self.lists.lock();
        match is_preempted(how) {
            true => lists.preempted.push(green),
            false => lists.fresh.push(green),
        }
        self.publish(&lists);
    }

    /// Adds fresh threads behind those in the queue.
    pub(crate) fn append(&self, batch: Fifo) {
        let mut lists = self.lists.lock();
        lists.fresh.append(batch);
        self.publish(&lists);
    }

    /// Moves all threads of `other` behind those in this queue.
    pub(crate) fn append_all_of(&self, other: &SharedQueue) {
        let theirs = {
            let mut lists = other.lists.lock();
            let theirs = core::mem::take(&mut *lists);
            other.publish(&lists);
            theirs
        };
        let mut lists = self.lists.lock();
        lists.fresh.append(theirs.fresh);
        lists.preempted.append(theirs.preempted);
        self.publish(&lists);
    }

    /// Takes the thread whose turn it is.
    pub(crate) fn take(&self) -> Option<&'static Green> {
        self.take_with_others(|_| 0).map(|(first, _)| first)
    }

    /// Takes the thread whose turn it is, if a fresh one waits.
    #[inline]
    pub(crate) fn take_if_fresh(&self) -> Option<&'static Green> {
        match self.fresh.load(Relaxed) {
            0 => None,
            _ => self.take(),
        }
    }

    /// Takes the thread whose turn it is. If it is fresh, takes more fresh ones with it: `share`
    /// says how many, given how many there are.
    pub(crate) fn take_with_others(
        &self,
        share: impl FnOnce(usize) -> usize,
    ) -> Option<(&'static Green, Fifo)> {
        if self.is_empty() {
            return None;
        }
        let mut lists = self.lists.lock();
        if lists.preempted.len() != 0 {
            if lists.fresh.len() == 0 {
                self.aging.reset();
            }
            if lists.fresh.len() == 0 || self.aging.is_due(clock::now()) {
                let first = lists.preempted.pop()?;
                self.publish(&lists);
                return Some((first, Fifo::new()));
            }
        }
        let first = lists.fresh.pop()?;
        let mut batch = Fifo::new();
        for _ in 0..share(lists.fresh.len()) {
            match lists.fresh.pop() {
                Some(green) => batch.push(green),
                None => break,
            }
        }
        self.publish(&lists);
        Some((first, batch))
    }

    fn publish(&self, lists: &Lists) {
        self.fresh.store(lists.fresh.len(), Relaxed);
        self.preempted.store(lists.preempted.len(), Relaxed);
    }

    /// Returns whether no thread waits. The answer is a hint, unless the caller has ordered itself
    /// after the pushes (as the fences of the idle handshake do).
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.fresh.load(Relaxed) + self.preempted.load(Relaxed)
    }
}

impl Default for SharedQueue {
    fn default() -> SharedQueue {
        SharedQueue::new()
    }
}

impl core::fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} threads", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::Ready;
    use crate::engine::policy::stand_ins::stand_ins;
    use crate::engine::policy::tuning::AGING;

    fn index(green: &Green) -> u64 {
        green.priority.load(Relaxed)
    }

    fn queue(fresh: u64, preempted: u64) -> Option<SharedQueue> {
        let queue = SharedQueue::new();
        let threads = stand_ins(fresh + preempted);
        for green in threads.into_iter().map(Ready::into_green) {
            let how = match index(green) < fresh {
                true => Readied::Woken,
                false => Readied::Preempted,
            };
            queue.push(green, how);
        }
        (!queue.is_empty()).then_some(queue)
    }

    #[test]
    fn who_was_preempted_stands_behind() {
        let Some(queue) = queue(3, 2) else { return };
        let [late, last] = [queue.take().unwrap(), queue.take().unwrap()];
        queue.push(last, Readied::Preempted);
        queue.push(late, Readied::Arrived);
        let order: Vec<_> = core::iter::from_fn(|| queue.take()).map(index).collect();
        assert_eq!(order, [2, 0, 3, 4, 1]);
    }

    #[test]
    fn others_come_with_a_fresh_one_only() {
        let Some(queue) = queue(5, 2) else { return };
        let others = |share: fn(usize) -> usize| {
            let (_, mut others) = queue.take_with_others(share).unwrap();
            core::iter::from_fn(|| others.pop()).count()
        };
        assert_eq!((others(|left| left), queue.len()), (4, 2));
        assert!(queue.take_if_fresh().is_none());
        assert_eq!((others(|_| 1), queue.len()), (0, 1));
        assert!(queue.take().is_some());
    }

    /// Checks that preempted threads have their turns beside fresh threads without end.
    #[test]
    fn those_preempted_have_turns_when_they_are_due() {
        let Some(queue) = queue(2, 4) else { return };
        // The queue looks at the clock between our two looks.
        let timed = |take: &dyn Fn() -> u64| {
            let before = clock::now();
            let taken = take();
            (before, taken, clock::now())
        };
        let take = || {
            let green = queue.take().unwrap();
            if index(green) < 2 {
                queue.push(green, Readied::Woken);
            }
            index(green)
        };
        // The look since which the preempted threads are passed over, and the last one before this.
        let mut first = timed(&take);
        let mut previous = first;
        let mut turns = Vec::new();
        while turns.len() < 4 {
            let this = timed(&take);
            if this.1 < 2 {
                previous = this;
                continue;
            }
            assert!(this.2 >= first.0 + AGING, "early");
            assert!(previous.0 < first.2 + AGING, "the look before was late");
            turns.push(this.1);
            first = timed(&take);
            previous = first;
            assert!(first.1 < 2 || turns.len() == 4, "twice in a row");
        }
        assert_eq!(turns, [2, 3, 4, 5]);
        assert_eq!(core::iter::from_fn(|| queue.take()).count(), 2);
    }
}
