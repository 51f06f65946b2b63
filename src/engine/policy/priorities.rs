//! Priorities: a queue for each level at each processor, and aging, so that no thread starves.
//!
//! The talk in the seeds names priorities among the things that Go's scheduler lacks. The Cforall
//! proposal says why they are dangerous: as long as threads of a higher priority want to run,
//! others never do. Hence the aging.
//!
//! - *Levels.* [`HIGHEST`](super::Priority::HIGHEST) to [`LOW`](super::Priority::LOW); larger
//!   values count as `LOW`. Each priority has two levels, one for fresh threads and behind it one
//!   for preempted threads. Each level is first in, first out.
//! - *Order across processors.* Each processor publishes the rank of its best thread: its level,
//!   and since when it has waited. Before a processor takes a thread of its own, it looks at the
//!   rank of one other processor, chosen at random. It takes that thread if its level is better, or
//!   if in the same level it has waited longer by more than [`SLACK`]. So the other processors find
//!   a thread that waits at a busy processor, or at one that the system does not run, within a few
//!   of their picks, without a common queue. A processor that has nothing takes from one that has
//!   the best.
//! - *Where a thread waits.* At the processor that made it ready. A thread from outside, and a
//!   preempted one, goes to the shorter of two queues: otherwise hogs would stay where they are,
//!   and a processor with more of them would give each of them less.
//! - *Aging.* Every [`OLDEST_INTERVAL`]th pick of a processor takes the thread that has waited longest there,
//!   whatever its level.
//!
//! Bound: a thread that waits at a processor together with n others runs after at most (n + 1) ×
//! OLDEST_INTERVAL more picks of that processor. For no thread that comes later has waited longer, so every
//! aging pick takes the thread itself or one of those n; and if one of the n comes back, it stands
//! behind the thread.
//!
//! Invariants:
//! 1. A worker's `rank` and `len` are written under its lock.
//! 2. No thread is given to a processor that has left (`contract`, invariant 3).
//! 3. A level's threads stand in the order of their stamps: the first one has waited longest.
//! 4. No thread holds the locks of two workers.

use core::mem;

use super::contract::Seats;
use super::relaxed_fifo::{below, roll};
use super::tuning::OLDEST_INTERVAL;
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::arch;
use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::{Fifo, Green};
use crate::engine::sys::shared::{Guard, Lock};

/// Two levels for each priority: see [`level`].
const LEVELS: usize = 8;
/// The number of bits of a rank that hold the stamp; the level is in the bits above them.
const SHIFT: u32 = 61;
/// The rank of a processor without threads.
const NONE: u64 = u64::MAX;
/// About a tenth of a millisecond, in ticks: for a smaller difference it does not pay to move a
/// thread.
const SLACK: u64 = 1 << 18;

/// Runs threads of a higher priority first; [`Builder::priority`](crate::Builder::priority) and
/// [`set_priority`](super::set_priority) set a thread's priority.
///
/// There are four levels, [`HIGHEST`](super::Priority::HIGHEST) to [`LOW`](super::Priority::LOW);
/// larger values count as `LOW`. A processor runs the threads that wait at it in this order, and
/// now and then checks whether another processor has a better one.
///
/// No thread starves: every 16th pick of a processor takes the thread that has waited longest.
/// Where n threads wait for a processor, each of them runs at least once in 16 × n picks, even if
/// all others have a higher priority.
///
/// # Examples
///
/// ```
/// use greenthread::policy::{Priorities, Priority};
/// use greenthread::runtime::Runtime;
///
/// let runtime = Runtime::builder().policy(Priorities::new()).build()?;
/// let low = runtime.spawn(|| {
///     let low = greenthread::Builder::new().priority(Priority::LOW);
///     low.spawn(|| "ran, when nothing else wanted to").unwrap().join()
/// });
/// assert!(low.join().unwrap().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Priorities {
    workers: Seats<Worker>,
    /// Chooses the two processors that may get the next thread from outside.
    turn: AtomicUsize,
}

struct Worker {
    queues: Lock<Queues>,
    /// The rank of the best thread: the smaller the better.
    rank: AtomicU64,
    /// For the holder of the seat.
    dice: AtomicU64,
    len: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    levels: [Fifo; LEVELS],
    picks: u32,
}

/// Returns the level of a thread that became ready in this way.
fn level(green: &Green, how: Readied) -> usize {
    let priority = green.priority.load(Ordering::Relaxed);
    let lowest = LEVELS / 2 - 1;
    let priority = usize::try_from(priority).map_or(lowest, |priority| priority.min(lowest));
    2 * priority + usize::from(how == Readied::Preempted)
}

impl Queues {
    /// Returns the best level that holds a thread, and the time since which its first thread has
    /// waited.
    fn best(&self) -> Option<(usize, u64)> {
        (0..LEVELS).find_map(|level| self.first(level))
    }

    /// Returns the level whose first thread has waited longest.
    fn oldest(&self) -> Option<usize> {
        let firsts = (0..LEVELS).filter_map(|level| self.first(level));
        Some(firsts.min_by_key(|first| first.1)?.0)
    }

    fn first(&self, level: usize) -> Option<(usize, u64)> {
        Some((level, self.levels[level].first()?.heap.stamp()))
    }

    fn rank(&self) -> u64 {
        let rank = |(level, stamp)| (level as u64) << SHIFT | stamp & ((1 << SHIFT) - 1);
        self.best().map_or(NONE, rank)
    }
}

impl Worker {
    fn new(index: usize) -> Worker {
        Worker {
            queues: Lock::default(),
            rank: AtomicU64::new(NONE),
            dice: AtomicU64::new(index as u64),
            len: AtomicUsize::new(0),
        }
    }

    /// Queues a thread if the worker `is_in_use`, which is asked under the lock. False: it is not.
    fn push_if(
        &self,
        is_in_use: impl FnOnce() -> bool,
        green: &'static Green,
        how: Readied,
    ) -> bool {
        let level = level(green, how);
        let mut queues = self.queues.lock();
        if !is_in_use() {
            return false;
        }
        // The stamp is taken under the lock, so that the stamps of a level are in order.
        green.heap.set_stamp(arch::ticks());
        queues.levels[level].push(green);
        self.publish(&queues);
        true
    }

    /// Moves the threads to `heir`, each to where it would be if it had always waited there.
    fn move_to(&self, heir: &Worker) {
        let mut queues = self.queues.lock();
        let mut left = mem::take(&mut queues.levels);
        self.publish(&queues);
        drop(queues);
        let mut queues = heir.queues.lock();
        for (from, to) in left.iter_mut().zip(&mut queues.levels) {
            to.merge(mem::take(from));
        }
        heir.publish(&queues);
    }

    fn take(&self, mut queues: Guard<'_, Queues>, level: usize) -> Option<Ready> {
        let green = queues.levels[level].pop()?;
        self.publish(&queues);
        Some(Ready::new(green))
    }

    fn take_best(&self) -> Option<Ready> {
        let queues = self.queues.lock();
        let (level, _) = queues.best()?;
        self.take(queues, level)
    }

    fn publish(&self, queues: &Queues) {
        let len = queues.levels.iter().map(Fifo::len).sum();
        self.rank.store(queues.rank(), Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
    }

    fn rank(&self) -> u64 {
        self.rank.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl Priorities {
    /// Creates a policy with empty queues.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{ForOthers, Policy, Priorities};
    ///
    /// let policy = Priorities::new();
    /// assert_eq!(policy.work_for_others(), ForOthers::Nothing);
    /// ```
    pub fn new() -> Priorities {
        let policy = Priorities {
            workers: Seats::new(),
            turn: AtomicUsize::new(0),
        };
        policy.resize(1);
        policy
    }

    /// Returns the worker with the shorter queue of two, which change each time.
    fn shorter(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let [one, other] = [turn, turn.wrapping_add(1)].map(|turn| turn % self.workers.in_use());
        let len = |index| self.workers.get(index).len();
        if len(other) < len(one) { other } else { one }
    }
}

impl Policy for Priorities {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let own = seat.filter(|seat| {
            let own = self.workers.of(seat);
            // A preempted thread stays if no other thread waits where it ran.
            how != Readied::Preempted || own.len() == 0
        });
        let mut to = own.map_or_else(|| self.shorter(), Seat::index);
        let green = thread.into_green();
        let push = |to| {
            let worker = self.workers.get(to);
            worker.push_if(|| self.workers.uses(to), green, how)
        };
        while !push(to) {
            to = self.shorter(); // the processor has left meanwhile
        }
        // A processor whose thread gives way takes another thread in exchange, so the other processors have no more work
        // than before.
        ForOthers::when(!(seat.is_some() && how == Readied::Yielded))
    }

    fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
        let own = self.workers.of(seat);
        if own.len() == 0 {
            return None;
        }
        let mut queues = own.queues.lock();
        queues.picks = queues.picks.wrapping_add(1);
        if queues.picks.is_multiple_of(OLDEST_INTERVAL) {
            let level = queues.oldest()?;
            return own.take(queues, level).map(Next::from);
        }
        let (level, _) = queues.best()?;
        let other = below(self.workers.in_use(), roll(&own.dice) as u32);
        let other = self.workers.find(other);
        match other.filter(|other| other.rank().saturating_add(SLACK) < queues.rank()) {
            None => own.take(queues, level),
            Some(other) => {
                drop(queues);
                other.take_best().or_else(|| own.take_best())
            }
        }
        .map(Next::from)
    }

    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        self.workers.of(seat);
        let victims = victims.filter_map(|index| self.workers.find(index));
        // An empty queue's rank has the level of the least urgent threads.
        let victims = victims.filter(|victim| victim.rank() != NONE);
        // Among equal levels this finds the first victim, which is the nearest.
        let best = victims.min_by_key(|victim| victim.rank() >> SHIFT);
        best?.take_best()
    }

    fn resize(&self, processors: usize) {
        self.workers
            .resize(processors, Worker::new, Worker::move_to);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        let worker = processor.and_then(|index| self.workers.find(index));
        worker.map_or(0, Worker::len)
    }

    fn work_for_others(&self) -> ForOthers {
        ForOthers::when(self.workers.iter().any(|worker| worker.rank() != NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::{dismiss, next, seats, stand_ins, wait_for_tick};

    /// Returns the picks of one processor among threads of these priorities, which give way for
    /// ever.
    fn picks(priorities: &[u64], picks: usize) -> Option<Vec<usize>> {
        let policy = Priorities::new();
        policy.resize(1);
        let seat = &seats(1)[0];
        let threads = stand_ins(priorities.len() as u64);
        if threads.is_empty() {
            return None;
        }
        let mut who = std::collections::HashMap::new();
        for (index, thread) in threads.into_iter().enumerate() {
            let green = thread.into_green();
            who.insert(core::ptr::from_ref(green).addr(), index);
            green.priority.store(priorities[index], Ordering::Relaxed);
            policy.ready(Ready::new(green), Readied::Spawned, Some(seat));
        }
        let mut picked = Vec::new();
        for _ in 0..picks {
            let (_, thread) = next(&policy, seat).unwrap();
            let green = thread.into_green();
            picked.push(who[&core::ptr::from_ref(green).addr()]);
            let for_others = policy.ready(Ready::new(green), Readied::Yielded, Some(seat));
            assert_eq!(for_others, ForOthers::Nothing);
        }
        dismiss(core::iter::from_fn(|| {
            policy.steal(seat, Victims::new(1, 2, 0, true))
        }));
        assert_eq!(policy.len(Some(0)), 0);
        Some(picked)
    }

    #[test]
    fn nobody_waits_longer_than_stated() {
        const PICKS: usize = 40_000;
        for priorities in [
            &[0, 3][..],
            &[1, 1, 1, 1, 3, 3],
            &[0, 1, 2, 3, u64::MAX],
            &[2; 7],
            &[
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3,
            ],
        ] {
            let Some(picked) = picks(priorities, PICKS) else {
                return;
            };
            // All threads but one wait, and that one does so too when it gives way.
            let bound = OLDEST_INTERVAL as usize * priorities.len();
            for thread in 0..priorities.len() {
                let turns = picked.iter().enumerate().filter(|turn| *turn.1 == thread);
                let turns: Vec<_> = turns.map(|(at, _)| at).collect();
                let longest = turns.windows(2).map(|two| two[1] - two[0]).max();
                eprintln!(
                    "{priorities:?}: {thread} {} times, {longest:?}",
                    turns.len()
                );
                assert!(turns[0] < bound && longest.unwrap() <= bound);
                assert!(turns.len() >= PICKS / bound);
            }
            // The other picks, 15 of 16, take a thread of the highest priority.
            let highest = picked.iter().filter(|&&i| priorities[i] == priorities[0]);
            assert!(highest.count() >= PICKS - PICKS / OLDEST_INTERVAL as usize);
        }
    }

    #[test]
    fn the_best_is_found_wherever_it_waits() {
        let policy = Priorities::new();
        policy.resize(4);
        let seats = seats(4);
        let threads = stand_ins(12);
        if threads.is_empty() {
            return;
        }
        // The stand-ins' indices are their priorities: 4 and more are low.
        let mut threads = threads.into_iter();
        let best: Vec<_> = threads.by_ref().take(2).collect();
        for thread in threads {
            policy.ready(thread, Readied::Woken, Some(&seats[0]));
        }
        for thread in best {
            policy.ready(thread, Readied::Woken, Some(&seats[3]));
        }
        // A thief takes the best of all threads, and keeps the order of equals.
        let steal = || {
            policy
                .steal(&seats[1], Victims::new(1, 4, 2, false))
                .unwrap()
        };
        let (first, second) = (steal(), steal());
        assert_eq!((first.priority().get(), second.priority().get()), (0, 1));
        // A processor with threads of its own finds a better one elsewhere, though not at once.
        policy.ready(first, Readied::Woken, Some(&seats[3]));
        let mut picks = 0;
        loop {
            let (priority, thread) = next(&policy, &seats[0]).unwrap();
            if priority == 0 {
                dismiss([thread, second]);
                break;
            }
            policy.ready(thread, Readied::Yielded, Some(&seats[0]));
            picks += 1;
            assert!(picks < 200, "not found");
        }
        assert!(policy.work_for_others() == ForOthers::Nothing || policy.len(Some(3)) == 0);
        // No thread is lost when there are fewer processors.
        policy.resize(1);
        let rest: Vec<_> = core::iter::from_fn(|| next(&policy, &seats[0])).collect();
        assert_eq!(rest.len(), 10);
        dismiss(rest.into_iter().map(|(_, thread)| thread));
    }

    #[test]
    fn who_has_waited_longer_stays_before_when_there_are_fewer() {
        let policy = Priorities::new();
        policy.resize(3);
        let seats = seats(3);
        let mut threads = stand_ins(15).into_iter();
        // All others are low.
        dismiss(threads.by_ref().take(3));
        for (thread, seat) in threads.zip(seats.iter().rev().cycle()) {
            wait_for_tick();
            policy.ready(thread, Readied::Woken, Some(seat));
        }
        policy.resize(1);
        let rest: Vec<_> = core::iter::from_fn(|| next(&policy, &seats[0])).collect();
        let order: Vec<_> = rest.iter().map(|rest| rest.0).collect();
        dismiss(rest.into_iter().map(|(_, thread)| thread));
        assert!(order.is_sorted(), "{order:?}");
    }

    /// A victim without threads is nearer than one with a thread of the last level.
    #[test]
    fn a_thief_finds_the_least_urgent_thread_behind_an_empty_queue() {
        let policy = Priorities::new();
        policy.resize(3);
        let seats = seats(3);
        let Some(thread) = stand_ins(1).pop() else {
            return;
        };
        let green = thread.into_green();
        green.priority.store(u64::MAX, Ordering::Relaxed);
        policy.ready(Ready::new(green), Readied::Preempted, Some(&seats[2]));
        assert_eq!(policy.work_for_others(), ForOthers::Work);
        let stolen = policy.steal(&seats[0], Victims::new(0, 3, 0, true));
        let is_found = stolen.is_some();
        let rest = || next(&policy, &seats[2]).map(|(_, thread)| thread);
        dismiss(stolen.or_else(rest));
        assert!(is_found);
    }
}
