//! Relaxed first-in-first-out: an array of strict queues. A push goes to any queue. A pop looks at
//! two queues, and takes from the queue whose first thread has waited longer.
//!
//! The design is the one proposed for Cforall's runtime (Delisle, in the seeds), on a queue by
//! Alistarh and others ("Relaxed schedulers can efficiently parallelize iterative algorithms",
//! 2018). It has no queue for each processor. Such queues give threads implicit priorities: those
//! in the queue of a busy processor starve.
//!
//! - *Lanes.* There are [`LANES`] queues for each processor, so that two processors seldom meet at
//!   one. A processor alone has one lane: more would relax the order without any gain.
//! - *Stamps.* A thread gets a time stamp when it comes into its lane. Taking the older of two
//!   lanes evens out what random pushes make uneven; without it, lanes would drift apart for ever.
//! - *Hints.* A bit for each lane says whether it holds a thread. In a loaded system no
//!   processor looks at the bits, and they hardly ever change: two random lanes suffice. Only a
//!   processor that finds one of its two lanes empty looks at the bits, and takes the oldest of up
//!   to [`FEW`] lanes that are in use. So where few threads wait, the order is nearly strict.
//! - *Classes.* There are two arrays of lanes: preempted threads stand behind all others (`shared_queue`).
//!
//! Fairness, as the proposal defines it: let a thread X wait. The odds that a thread Y runs N times
//! before X fall exponentially in N, if X and Y are of one class. For each time, X's lane is one of
//! the two chosen with a probability p that depends on the number of lanes only, and once X is
//! among the oldest, its lane wins. The test at the end counts it.
//!
//! Invariants:
//! 1. A lane's bit is set, and its stamp is not [`EMPTY`], if and only if a thread is in it. Both
//!    are written under the lane's lock. So a pusher that fences and then reads the bits misses
//!    nothing: no further scan is needed before a processor sleeps.
//! 2. Lanes are never freed. Where there are fewer processors, fewer lanes are in use. Their number is stored before the
//!    others are emptied under their locks, and a pusher reads the number under the lock of its lane: so no thread stays
//!    behind in a lane that is out of use (as with `contract`, invariant 3).
//!
//! Rejected: the dense bits as the first thing to look at (all processors write them whenever a
//! queue runs empty); a counter as the clock (one cache line for all).

use core::mem;

use super::contract::Seats;
use super::shared_queue::Aging;
use super::tuning::LANES;
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat};
use crate::engine::arch;
use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::{Fifo, Green, current};
use crate::engine::sys::shared::{Lock, Table, mix};

/// The number of lanes that a push tries to find one that is not locked.
const TRIES: usize = 3;
/// The number of stamps to compare where few lanes are in use.
const FEW: usize = 4;
/// The stamp of an empty lane.
const EMPTY: u64 = u64::MAX;

/// Runs threads in nearly the order in which they became ready: the longer a thread has waited, the
/// less likely it is that another one still overtakes it.
///
/// Threads do not wait at a processor, but in an array of queues that all processors share. So each
/// thread gets its turn, wherever it became ready and however busy that processor is. The design is
/// that of the scheduler proposed for Cforall: the odds that one thread runs N times while another
/// one waits fall exponentially in N.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::RelaxedFifo, runtime::Runtime};
///
/// let runtime = Runtime::builder().policy(RelaxedFifo::new()).build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RelaxedFifo {
    fresh: Lanes,
    /// They stand behind the fresh ones.
    preempted: Lanes,
    aging: Aging,
    resizing: Lock<()>,
    dice: Seats<AtomicU64>,
    /// The dice of callers without a seat.
    shared_dice: AtomicU64,
}

/// A table has this many segments: there are more lanes than processors.
const SEGMENTS: usize = 15;

struct Lanes {
    lanes: Table<Lane, SEGMENTS>,
    used: Table<Bits>,
    in_use: AtomicUsize,
}

#[repr(align(128))]
struct Lane {
    list: Lock<Fifo>,
    /// The time since which the first thread has waited.
    oldest: AtomicU64,
    len: AtomicUsize,
}

/// A bit for each of 64 lanes: whether a thread is in it.
#[repr(align(128))]
struct Bits(AtomicU64);

/// The `n`th random number is `mix(n * STEP)`.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the next random number. (Of two callers at once, both may get the same one.)
pub(super) fn roll(dice: &AtomicU64) -> u64 {
    let n = dice.load(Ordering::Relaxed).wrapping_add(STEP);
    dice.store(n, Ordering::Relaxed);
    mix(n)
}

/// Returns a number below `bound`, evenly distributed.
#[inline(always)]
pub(super) fn below(bound: usize, random: u32) -> usize {
    ((random as u64 * bound as u64) >> 32) as usize
}

impl Lanes {
    fn new() -> Lanes {
        Lanes {
            lanes: Table::new(),
            used: Table::new(),
            in_use: AtomicUsize::new(0),
        }
    }

    fn push(&self, green: &'static Green, dice: &AtomicU64) {
        for tries in 0.. {
            let index = below(self.in_use.load(Ordering::Relaxed), roll(dice) as u32);
            let lane = self.lanes.get(index);
            let list = match tries < TRIES {
                true => lane.list.try_lock(),
                false => Some(lane.list.lock()),
            };
            // The number is read under the lock (invariant 2).
            let is_in_use = || index < self.in_use.load(Ordering::Relaxed);
            if let Some(mut list) = list
                && is_in_use()
            {
                // The stamp is taken under the lock, so that the stamps of a lane are in order.
                green.heap.set_stamp(arch::ticks());
                list.push(green);
                return self.publish(index, &list);
            }
        }
    }

    fn pop(&self, dice: &AtomicU64) -> Option<&'static Green> {
        let (random, lanes) = (roll(dice), self.in_use.load(Ordering::Relaxed));
        let [one, other] = [random as u32, (random >> 32) as u32].map(|r| below(lanes, r));
        let [mine, others] = [one, other].map(|index| self.oldest(index));
        let mut found = None;
        if mine != EMPTY && others != EMPTY {
            found = self.change(if others < mine { other } else { one }, Fifo::pop);
        }
        while found.is_none() {
            // The lane may be empty by now, if other processors were faster.
            found = self.change(self.oldest_used(roll(dice))?, Fifo::pop);
        }
        found
    }

    /// Returns the lane whose first thread has waited longest, of up to [`FEW`] lanes whose bits
    /// are set. The search starts at a random bit of a random word.
    fn oldest_used(&self, random: u64) -> Option<usize> {
        let words = self.used.len();
        let first = below(words, random as u32);
        let rotation = (random >> 32) as u32 % 64;
        (first..words).chain(0..first).find_map(|word| {
            let mut bits = self.used.get(word).0.load(Ordering::Relaxed);
            bits = bits.rotate_right(rotation);
            let used = core::iter::from_fn(|| {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word * 64 + ((bit + rotation) % 64) as usize)
            });
            used.take(FEW).min_by_key(|&index| self.oldest(index))
        })
    }

    fn oldest(&self, index: usize) -> u64 {
        self.lanes.get(index).oldest.load(Ordering::Relaxed)
    }

    fn change<T>(&self, index: usize, change: impl FnOnce(&mut Fifo) -> T) -> T {
        let mut list = self.lanes.get(index).list.lock();
        let result = change(&mut list);
        self.publish(index, &list);
        result
    }

    /// Publishes the contents of a lane, which the caller has locked.
    fn publish(&self, index: usize, list: &Fifo) {
        let lane = self.lanes.get(index);
        let oldest = list.first().map_or(EMPTY, |green| green.heap.stamp());
        let bits = &self.used.get(index / 64).0;
        let bit = 1 << (index % 64);
        let was_empty = lane.oldest.load(Ordering::Relaxed) == EMPTY;
        match (was_empty, oldest == EMPTY) {
            (true, false) => _ = bits.fetch_or(bit, Ordering::Relaxed),
            (false, true) => _ = bits.fetch_and(!bit, Ordering::Relaxed),
            _ => {}
        }
        lane.oldest.store(oldest, Ordering::Relaxed);
        lane.len.store(list.len(), Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        let is_zero = |bits: &Bits| bits.0.load(Ordering::Relaxed) == 0;
        self.used.iter().all(is_zero)
    }

    fn len(&self) -> usize {
        let len = |lane: &Lane| lane.len.load(Ordering::Relaxed);
        self.lanes.iter().map(len).sum()
    }

    /// Makes lanes until there are so many. Allocates.
    fn grow_to(&self, lanes: usize) {
        self.used
            .grow_to(lanes.div_ceil(64), |_| Bits(AtomicU64::new(0)));
        self.lanes.grow_to(lanes, |_| Lane {
            list: Lock::new(Fifo::new()),
            oldest: AtomicU64::new(EMPTY),
            len: AtomicUsize::new(0),
        });
    }

    /// Uses so many lanes; the threads in the others go to these. One thread at a time may call it.
    fn resize(&self, lanes: usize) {
        // Relaxed: the locks of the lanes order it (invariant 2).
        self.in_use.store(lanes, Ordering::Relaxed);
        for index in lanes..self.lanes.len() {
            let left = self.change(index, mem::take);
            self.change(index % lanes, |heir| heir.merge(left));
        }
    }
}

impl RelaxedFifo {
    /// Creates a policy without threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Policy, RelaxedFifo};
    ///
    /// let policy = RelaxedFifo::new();
    /// policy.resize(4);
    /// assert_eq!(policy.len(None), 0);
    /// ```
    pub fn new() -> RelaxedFifo {
        let policy = RelaxedFifo {
            fresh: Lanes::new(),
            preempted: Lanes::new(),
            aging: Aging::new(),
            resizing: Lock::new(()),
            dice: Seats::new(),
            shared_dice: AtomicU64::new(0),
        };
        policy.resize(1);
        policy
    }

    fn pop(&self, dice: &AtomicU64) -> Option<&'static Green> {
        if !self.preempted.is_empty()
            && self.aging.is_turn(self.fresh.is_empty())
            && let Some(green) = self.preempted.pop(dice)
        {
            return Some(green);
        }
        let fresh = self.fresh.pop(dice);
        fresh.or_else(|| self.preempted.pop(dice))
    }
}

impl Policy for RelaxedFifo {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let dice = seat.map_or(&self.shared_dice, |seat| self.dice.of(seat));
        let lanes = match how {
            Readied::Preempted => &self.preempted,
            _ => &self.fresh,
        };
        lanes.push(thread.into_green(), dice);
        // A processor whose thread gives way takes another thread in exchange, so the other processors have no more work
        // than before.
        ForOthers::when(!(seat.is_some() && matches!(how, Readied::Yielded | Readied::Preempted)))
    }

    fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
        Some(Ready::new(self.pop(self.dice.of(seat))?).into())
    }

    fn resize(&self, processors: usize) {
        let dice = |index| AtomicU64::new(mix(index as u64));
        self.dice.grow_to(processors, dice);
        let lanes = match processors {
            1 => 1,
            _ => LANES * processors,
        };
        let classes = [&self.fresh, &self.preempted];
        classes.iter().for_each(|class| class.grow_to(lanes));
        let _off = current::preemption_off();
        let _resizing = self.resizing.lock();
        classes.iter().for_each(|class| class.resize(lanes));
    }

    fn len(&self, processor: Option<usize>) -> usize {
        processor.map_or_else(|| self.fresh.len() + self.preempted.len(), |_| 0)
    }

    fn work_for_others(&self) -> ForOthers {
        ForOthers::when(!self.fresh.is_empty() || !self.preempted.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::{dismiss, next, seats, stand_ins, wait_for_tick};

    fn policy(processors: usize, seed: u64) -> RelaxedFifo {
        let policy = RelaxedFifo::new();
        policy.resize(processors);
        for index in 0..processors {
            let dice = policy.dice.get(index);
            dice.store(mix(seed + index as u64), Ordering::Relaxed);
        }
        policy
    }

    /// Counts overtakings. Threads give way in turn on processors that come in a random order. For
    /// each wait of a thread X and each other thread Y it counts how often Y ran meanwhile. `[n]`
    /// is the number of pairs in which Y ran at least `n` times.
    fn overtakings(processors: usize, threads: u64, seed: u64) -> Option<Vec<u64>> {
        const STEPS: usize = 60_000;
        let policy = policy(processors, seed);
        let seats = seats(processors);
        let waiting = stand_ins(threads);
        if waiting.is_empty() {
            return None;
        }
        for (thread, seat) in waiting.into_iter().zip(seats.iter().cycle()) {
            policy.ready(thread, Readied::Spawned, Some(seat));
        }
        let mut histogram = Vec::new();
        // [y * threads + x]: runs of Y since X began to wait.
        let n = threads as usize;
        let mut runs = vec![0usize; n * n];
        let mut running: Vec<_> = seats.iter().map(|_| None).collect();
        for step in 0..STEPS {
            let at = below(
                processors,
                mix(seed ^ (step as u64).wrapping_mul(STEP)) as u32,
            );
            if let Some((x, thread)) = running[at].take() {
                policy.ready(thread, Readied::Yielded, Some(&seats[at]));
                (0..n).for_each(|y| runs[y * n + x as usize] = 0);
            }
            running[at] = next(&policy, &seats[at]);
            let &Some((id, _)) = &running[at] else {
                panic!("there are threads, and none was found")
            };
            let id = id as usize;
            for other in (0..n).filter(|&other| other != id) {
                runs[id * n + other] += 1;
                // X's wait has ended.
                let times = runs[other * n + id];
                histogram.resize(histogram.len().max(times + 1), 0);
                histogram[..=times].iter_mut().for_each(|pairs| *pairs += 1);
            }
        }
        let waiting = core::iter::from_fn(|| next(&policy, &seats[0]));
        let all = running.into_iter().flatten().chain(waiting);
        dismiss(all.map(|(_, thread)| thread));
        Some(histogram)
    }

    /// Checks the proposal's guarantee: each further overtaking is at most half as likely. The
    /// measured factors are 0.1 for a loaded system, 0.01 for an underloaded one, and 0.2 to 0.35
    /// between them.
    #[test]
    fn the_more_overtakings_the_less_likely() {
        // Loaded: many threads for each lane. Underloaded: most lanes are empty. And between.
        for (processors, threads) in [(4, 160), (4, 40), (2, 3), (4, 6), (16, 20), (20, 90)] {
            let seed = 1 + threads;
            let Some(pairs) = overtakings(processors, threads, seed) else {
                return;
            };
            eprintln!("{processors} processors, {threads} threads, seed {seed}: {pairs:?}");
            let enough_to_judge = |of: &&[u64]| of[0] >= 200;
            for of in pairs[1..].windows(2).take_while(enough_to_judge) {
                assert!(of[1] <= of[0] / 2, "{of:?}");
            }
            assert!(pairs.len() < 30, "run so often while another waited");
        }
    }

    #[test]
    fn nothing_is_lost_when_the_array_changes() {
        let policy = policy(1, 0);
        let seats = seats(100);
        let threads = stand_ins(300);
        let mut expected = threads.len() as u64;
        for (index, thread) in threads.into_iter().enumerate() {
            let processors = [1, 2, 100, 3][index / 10 % 4];
            if index % 10 == 0 {
                policy.resize(processors);
            }
            // Every other one comes from outside.
            let seat = (index % 2 == 0).then(|| &seats[index % processors]);
            wait_for_tick();
            assert_eq!(policy.ready(thread, Readied::Woken, seat), ForOthers::Work);
        }
        policy.resize(2);
        assert_eq!(policy.len(None) as u64, expected);
        // One lane: in order.
        policy.resize(1);
        let mut order = Vec::new();
        while policy.work_for_others() == ForOthers::Work {
            let (index, thread) = next(&policy, &seats[0]).unwrap();
            order.push(index);
            dismiss([thread]);
            expected -= 1;
            assert_eq!(policy.len(None) as u64, expected);
        }
        assert!(next(&policy, &seats[0]).is_none());
        assert!(order.is_sorted(), "{order:?}");
    }
}
