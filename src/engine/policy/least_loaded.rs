//! Least loaded: a new thread goes to the processor with the fewest threads in a rotating batch.
//!
//! The design is that of the coroutine runtime in the seeds, which took it from Nio. To find the
//! shortest of all queues, all processors would have to read each other's queues all the time; so a
//! processor looks at one batch of them, and the next time at the next batch. With 22 processors
//! and batches of 8 these are 0–8, 8–16, 16–22, and then the first again ([`range`]). If there are
//! no more processors than fit in a batch, the batch is always all of them.
//!
//! - A thread that is spawned or woken goes to the least loaded processor of the batch; among
//!   equals, to the first. The load of a processor is the number of threads in its queue, plus the
//!   one that runs.
//! - A thread that gives way stays with its processor, which runs its threads in turn. So does a
//!   thread whose timer or event the processor has looked after. A thread that is preempted goes to
//!   the least loaded processor again, if others wait where it ran: otherwise hogs would stay where
//!   they are, and a processor with more of them would give each of them less.
//! - The workers of the seed's runtime take only what they are given. Here a processor without
//!   threads takes the oldest of another processor's queue. For a kernel thread may block in the
//!   kernel and leave its processor with threads in the queue; and sleeping processors are woken in
//!   an order of their own, so a thread that is given to a sleeping processor may wake another one.
//!   So every ready thread concerns every processor.
//! - One pick in [`GLOBAL_INTERVAL`] takes the oldest thread of another processor's queue, each of the
//!   others in turn. So a thread does not depend on a single processor, which the system may not be
//!   running.
//!
//! Invariant: no thread is given to a processor that has left (`contract`, invariant 3).

use core::ops::Range;

use super::contract::Seats;
use super::shared_queue::SharedQueue;
use super::tuning::{BATCH, GLOBAL_INTERVAL};
use super::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::sys::die;

/// Gives each thread to the processor with the fewest threads, among a batch of processors that
/// changes each time.
///
/// Each processor has a queue. Work is spread when it arrives, not when a processor looks for it;
/// it moves later only if a processor has nothing at all. The design is that of the coroutine
/// runtime Nio.
///
/// # Examples
///
/// ```
/// use greenthread::{policy::LeastLoaded, runtime::Runtime};
///
/// let runtime = Runtime::builder()
///     .policy(LeastLoaded::new().batch(2))
///     .build()?;
/// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LeastLoaded {
    batch: usize,
    /// The number of batches looked at so far.
    round: AtomicUsize,
    workers: Seats<Worker>,
}

#[derive(Default)]
struct Worker {
    queue: SharedQueue,
    /// Whether the processor runs a thread.
    busy: AtomicBool,
    /// The number of picks so far, counted by the holder of the seat.
    picks: AtomicUsize,
}

impl Worker {
    fn load(&self) -> usize {
        self.queue.len() + self.busy.load(Ordering::Relaxed) as usize
    }

    /// Notes whether the processor runs a thread from now on.
    fn runs(&self, next: Option<Ready>) -> Option<Ready> {
        if self.busy.load(Ordering::Relaxed) != next.is_some() {
            self.busy.store(next.is_some(), Ordering::Relaxed);
        }
        next
    }
}

/// Returns the indices of the `round`th batch of `batch` workers.
fn range(round: usize, workers: usize, batch: usize) -> Range<usize> {
    let start = round % workers.div_ceil(batch) * batch;
    start..(start + batch).min(workers)
}

impl LeastLoaded {
    /// Creates a policy with empty queues, and with batches of 8 processors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{ForOthers, LeastLoaded, Policy};
    ///
    /// let policy = LeastLoaded::new();
    /// policy.resize(2);
    /// assert_eq!(policy.len(Some(1)), 0);
    /// ```
    pub fn new() -> LeastLoaded {
        let policy = LeastLoaded {
            batch: BATCH,
            round: AtomicUsize::new(0),
            workers: Seats::new(),
        };
        policy.resize(1);
        policy
    }

    /// Makes a policy with the same options, and without threads.
    pub(crate) fn anew(&self) -> LeastLoaded {
        LeastLoaded::new().batch(self.batch)
    }

    /// Sets the number of processors in a batch; the least loaded of them gets a thread.
    ///
    /// A larger batch spreads threads more evenly, and takes longer to look at.
    ///
    /// # Panics
    ///
    /// Panics if the number is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{policy::LeastLoaded, runtime::Runtime};
    ///
    /// let runtime = Runtime::builder()
    ///     .processors(4)
    ///     .policy(LeastLoaded::new().batch(4)) // all of them
    ///     .build()?;
    /// assert_eq!(runtime.spawn(|| "ran").join().unwrap(), "ran");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn batch(mut self, processors: usize) -> LeastLoaded {
        assert!(processors != 0, "a batch of no processors");
        self.batch = processors;
        self
    }

    /// Returns the worker with the fewest threads in the next batch.
    fn least_loaded(&self) -> usize {
        let workers = self.workers.in_use();
        let batch = match workers <= self.batch {
            true => 0..workers,
            false => {
                let round = self.round.fetch_add(1, Ordering::Relaxed);
                range(round, workers, self.batch)
            }
        };
        let worker = batch.min_by_key(|&index| self.workers.get(index).load());
        worker.unwrap_or_else(|| die("a policy has no queue"))
    }
}

impl core::fmt::Debug for LeastLoaded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LeastLoaded")
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl Policy for LeastLoaded {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let own = seat.filter(|seat| {
            let own = self.workers.of(seat);
            match how {
                Readied::Yielded | Readied::Arrived => true,
                Readied::Preempted => own.queue.is_empty(),
                Readied::Spawned | Readied::Woken => false,
            }
        });
        let mut to = own.map_or_else(|| self.least_loaded(), Seat::index);
        let green = thread.into_green();
        let push = |to| {
            let queue = &self.workers.get(to).queue;
            queue.push_if(|| self.workers.uses(to), green, how)
        };
        while !push(to) {
            to = self.least_loaded(); // the processor has left meanwhile
        }
        // A processor whose thread gives way takes another thread in exchange, so the other processors have no more work
        // than before.
        ForOthers::when(!(seat.is_some() && how == Readied::Yielded))
    }

    fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
        let own = self.workers.of(seat);
        let picks = own.picks.load(Ordering::Relaxed).wrapping_add(1);
        own.picks.store(picks, Ordering::Relaxed);
        let interval = GLOBAL_INTERVAL as usize;
        let is_others = picks.is_multiple_of(interval) && !own.queue.is_empty();
        let other = || {
            let worker = picks / interval % self.workers.in_use();
            self.workers.find(worker)?.queue.take()
        };
        let thread = is_others.then(other).flatten();
        own.runs(thread.or_else(|| own.queue.take()))
            .map(Next::from)
    }

    fn steal(&self, seat: &Seat, mut victims: Victims<'_>) -> Option<Ready> {
        let own = self.workers.of(seat);
        own.runs(victims.find_map(|victim| self.workers.find(victim)?.queue.take()))
    }

    fn leave(&self, seat: &Seat) {
        self.workers.of(seat).runs(None);
    }

    fn resize(&self, processors: usize) {
        let empty = |left: &Worker, heir: &Worker| left.queue.move_to(&heir.queue);
        self.workers
            .resize(processors, |_| Worker::default(), empty);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        let worker = processor.and_then(|index| self.workers.find(index));
        worker.map_or(0, |worker| worker.queue.len())
    }

    fn work_for_others(&self) -> ForOthers {
        ForOthers::when(self.workers.iter().any(|worker| !worker.queue.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::{dismiss, next, seats, stand_ins};

    #[test]
    fn ranges_are_the_seeds() {
        let of_22: Vec<_> = (0..6).map(|round| range(round, 22, 8)).collect();
        assert_eq!(of_22, [0..8, 8..16, 16..22, 0..8, 8..16, 16..22]);
        let of_3: Vec<_> = (0..4).map(|round| range(round, 3, 2)).collect();
        assert_eq!(of_3, [0..2, 2..3, 0..2, 2..3]);
        assert_eq!([range(0, 16, 8), range(1, 16, 8)], [0..8, 8..16]);
        for workers in 1..=8 {
            assert!((0..10).all(|round| range(round, workers, 8) == (0..workers)));
        }
    }

    fn lens(policy: &LeastLoaded, processors: usize) -> Vec<usize> {
        (0..processors).map(|p| policy.len(Some(p))).collect()
    }

    #[test]
    fn each_goes_to_the_least_loaded_of_the_next_batch() {
        let policy = LeastLoaded::new();
        policy.resize(22);
        let seats = seats(22);
        for thread in stand_ins(24) {
            assert_eq!(
                policy.ready(thread, Readied::Spawned, Some(&seats[5])),
                ForOthers::Work
            );
        }
        if policy.work_for_others() == ForOthers::Nothing {
            return;
        }
        // 24 threads: 8 for each batch, and the last batch has only 6 processors.
        let mut expected = vec![1; 22];
        (expected[16], expected[17]) = (2, 2);
        assert_eq!(lens(&policy, 22), expected);

        // A thread that gives way stays; the running thread counts as load.
        let (first, thread) = next(&policy, &seats[0]).unwrap();
        assert_eq!(first, 0);
        assert_eq!(
            policy.ready(thread, Readied::Yielded, Some(&seats[0])),
            ForOthers::Nothing
        );
        let (again, first) = next(&policy, &seats[0]).unwrap();
        let (second, woken) = next(&policy, &seats[1]).unwrap();
        assert_eq!((again, second), (0, 3));
        assert!(next(&policy, &seats[1]).is_none());
        assert_eq!(policy.ready(woken, Readied::Woken, None), ForOthers::Work);
        assert_eq!(policy.len(Some(1)), 1);

        // Nothing is lost when there are fewer, or more.
        policy.resize(3);
        assert_eq!(lens(&policy, 3).iter().sum::<usize>(), 23);
        policy.resize(5);
        assert_eq!(lens(&policy, 5).iter().sum::<usize>(), 23);

        // A thief takes the oldest thread, and in the end all of them.
        let (oldest, stolen) = {
            let thread = policy
                .steal(&seats[4], Victims::new(4, 5, 1, false))
                .unwrap();
            (thread.priority().get(), thread)
        };
        let rest: Vec<_> =
            core::iter::from_fn(|| policy.steal(&seats[3], Victims::new(3, 5, 1, true))).collect();
        assert_eq!(rest.len(), 22);
        assert!(rest.iter().all(|thread| thread.priority().get() != oldest));
        assert_eq!(policy.work_for_others(), ForOthers::Nothing);
        dismiss(rest.into_iter().chain([stolen, first]));
    }
}
