//! A queue that processors share, first in, first out, with preempted threads behind all others but not for ever; and
//! [`GlobalQueue`], the policy that has nothing else. Go's scheduler was like this before it had a queue for each processor;
//! the talk in the seeds shows that it does not scale.
//!
//! # Aging
//!
//! A *fresh* thread is new, was woken, or gave way by itself: it may need the processor for a moment only, and another
//! thread may be waiting for its result. A *preempted* thread computes. Where both wait, the fresh one goes first;
//! otherwise it would wait for as many time slices as there are threads that compute.
//!
//! When the preempted threads have been passed over for [`AGING`], one of them goes first. So beside any number of fresh
//! threads the n-th preempted one is taken from its queue after n × `AGING` and 2n looks at the queue, at the latest.
//!
//! One word ([`Aging`]) says since when the preempted threads have been passed over, on the monotonic clock.
//!
//! | word | `is_due` at `now` | new word |
//! |---|---|---|
//! | `NOT_YET` | no | `now` |
//! | less than `AGING` before `now` | no | the same |
//! | longer ago | yes, to one of the callers that ask at once | `NOT_YET` |
//!
//! The time counts from the next fresh thread that is taken, not from the preempted thread's turn. That turn may have
//! taken a whole time slice, after which the next one would be due at once, and no fresh thread would ever run.
//!
//! Memory orderings: all Relaxed. Threads are taken under the queue's lock. The word of the aging publishes nothing, and
//! the lengths are hints to callers without the lock, unless these have ordered themselves after the pushes (as the fences
//! of the idle handshake do).

use core::mem;

use super::tuning::AGING;
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat};
use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::engine::sched::{Fifo, Green};
use crate::engine::{sys::clock, sys::shared::Lock};

/// Measures since when the preempted threads have been passed over.
pub(super) struct Aging(AtomicU64);

const NOT_YET: u64 = u64::MAX;

impl Aging {
    pub(super) const fn new() -> Aging {
        Aging(AtomicU64::new(NOT_YET))
    }

    /// Returns whether it is a preempted thread's turn, now that such threads wait, and fresh ones unless `no_fresh`.
    #[inline]
    pub(super) fn is_turn(&self, no_fresh: bool) -> bool {
        if no_fresh && self.0.load(Relaxed) != NOT_YET {
            self.0.store(NOT_YET, Relaxed);
        }
        no_fresh || self.is_due(clock::now())
    }

    /// Returns whether preempted threads were passed over for long enough.
    #[inline]
    fn is_due(&self, now: u64) -> bool {
        let since = self.0.load(Relaxed);
        let new = match since {
            NOT_YET => now,
            since if now.saturating_sub(since) < AGING => return false,
            _ => NOT_YET,
        };
        let changed = self.0.compare_exchange(since, new, Relaxed, Relaxed);
        changed.is_ok() && new == NOT_YET
    }
}

/// Two lists under a lock, and their lengths beside the lock for callers that only look.
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

    /// Changes the lists, and publishes their lengths.
    #[inline]
    fn change<T>(&self, change: impl FnOnce(&mut Lists) -> T) -> T {
        let mut lists = self.lists.lock();
        let result = change(&mut lists);
        self.fresh.store(lists.fresh.len(), Relaxed);
        self.preempted.store(lists.preempted.len(), Relaxed);
        result
    }

    /// Adds a thread.
    pub(crate) fn push(&self, green: &'static Green, how: Readied) {
        let _always = self.push_if(|| true, green, how);
    }

    /// Adds a thread if `is_in_use`, which is asked under the lock (`contract`, invariant 3). False: the thread is still the caller's.
    #[must_use = "a thread that was not queued would never run"]
    pub(crate) fn push_if(
        &self,
        is_in_use: impl FnOnce() -> bool,
        green: &'static Green,
        how: Readied,
    ) -> bool {
        self.change(|lists| {
            let is_in_use = is_in_use();
            match how {
                _ if !is_in_use => {}
                Readied::Preempted => lists.preempted.push(green),
                _ => lists.fresh.push(green),
            }
            is_in_use
        })
    }

    /// Adds fresh threads behind those in the queue.
    pub(crate) fn append(&self, batch: Fifo) {
        self.change(|lists| lists.fresh.append(batch));
    }

    /// Moves all threads behind those in `heir`.
    pub(crate) fn move_to(&self, heir: &SharedQueue) {
        let left = self.change(mem::take);
        heir.change(|lists| {
            lists.fresh.append(left.fresh);
            lists.preempted.append(left.preempted);
        });
    }

    /// Takes the thread whose turn it is.
    pub(crate) fn take(&self) -> Option<Ready> {
        self.take_with_others(|_| 0).map(|(first, _)| first)
    }

    /// Takes the thread whose turn it is, if a fresh one waits.
    #[inline]
    pub(crate) fn take_if_fresh(&self) -> Option<Ready> {
        match self.fresh.load(Relaxed) {
            0 => None,
            _ => self.take(),
        }
    }

    /// Takes the thread whose turn it is. If it is fresh, takes more fresh ones with it: `share` says how many, given how
    /// many there are.
    pub(crate) fn take_with_others(
        &self,
        share: impl FnOnce(usize) -> usize,
    ) -> Option<(Ready, Fifo)> {
        if self.is_empty() {
            return None;
        }
        self.change(|Lists { fresh, preempted }| {
            if preempted.len() != 0 && self.aging.is_turn(fresh.len() == 0) {
                return Some((Ready::new(preempted.pop()?), Fifo::new()));
            }
            let first = Ready::new(fresh.pop()?);
            Some((first, fresh.take_first(share(fresh.len()))))
        })
    }

    /// Returns whether no thread waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.fresh.load(Relaxed) + self.preempted.load(Relaxed)
    }
}

impl core::fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} threads", self.len())
    }
}

/// Keeps all ready threads in one first-in-first-out queue, which all processors share under a
/// lock.
///
/// Preempted threads stand behind all others, but while others keep coming one preempted thread
/// goes first every 10 ms. Apart from that the queue is perfectly fair.
///
/// It becomes slower with each processor, because every switch takes the one lock. It is here for
/// comparison.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::GlobalQueue, runtime::Runtime};
///
/// let runtime = Runtime::builder().policy(GlobalQueue::new()).build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct GlobalQueue(SharedQueue);

impl GlobalQueue {
    /// Creates a policy with an empty queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{GlobalQueue, Policy};
    ///
    /// let policy = GlobalQueue::new();
    /// assert_eq!(policy.len(None), 0);
    /// ```
    pub const fn new() -> GlobalQueue {
        GlobalQueue(SharedQueue::new())
    }
}

impl Policy for GlobalQueue {
    fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> ForOthers {
        self.0.push(thread.into_green(), how);
        ForOthers::Work
    }

    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        self.0.take().map(Next::from)
    }

    fn len(&self, processor: Option<usize>) -> usize {
        processor.map_or_else(|| self.0.len(), |_| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::stand_ins;
    use crate::engine::policy::tuning::AGING;

    fn index(green: &Green) -> u64 {
        green.priority.load(Relaxed)
    }

    fn take_from(queue: &SharedQueue) -> Option<&'static Green> {
        queue.take().map(Ready::into_green)
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
        let [late, last] = [take_from(&queue).unwrap(), take_from(&queue).unwrap()];
        queue.push(last, Readied::Preempted);
        queue.push(late, Readied::Arrived);
        let order: Vec<_> = core::iter::from_fn(|| take_from(&queue))
            .map(index)
            .collect();
        assert_eq!(order, [2, 0, 3, 4, 1]);
    }

    #[test]
    fn others_come_with_a_fresh_one_only() {
        let Some(queue) = queue(5, 2) else { return };
        let others = |share: fn(usize) -> usize| {
            let (first, mut others) = queue.take_with_others(share).unwrap();
            first.into_green();
            core::iter::from_fn(|| others.pop()).count()
        };
        assert_eq!((others(|left| left), queue.len()), (4, 2));
        assert!(queue.take_if_fresh().is_none());
        assert_eq!((others(|_| 1), queue.len()), (0, 1));
        assert!(take_from(&queue).is_some());
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
            let green = take_from(&queue).unwrap();
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
        assert_eq!(core::iter::from_fn(|| take_from(&queue)).count(), 2);
    }

    #[test]
    fn one_turn_each_time() {
        let aging = Aging::new();
        let looks = (0..10 * AGING).step_by(AGING as usize / 10);
        let turns: Vec<_> = looks.filter(|&now| aging.is_due(now)).collect();
        let each = AGING + AGING / 10;
        let expected: Vec<_> = (0..9).map(|turn| AGING + turn * each).collect();
        assert_eq!(turns, expected);
        // Where a turn takes as long as aging, fresh threads have every other look.
        let looks = (20 * AGING..30 * AGING).step_by(AGING as usize);
        assert_eq!(looks.filter(|&now| aging.is_due(now)).count(), 5);
        assert!(aging.is_turn(true), "no fresh thread waits");
        assert!(!aging.is_due(40 * AGING), "nobody was passed over");
        assert!(aging.is_due(50 * AGING));
    }
}
