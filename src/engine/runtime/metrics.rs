//! [`Metrics`]: figures about a runtime. `observe::export` has the table by which they leave the program.
//!
//! A [`Histogram`] has buckets with a scale on which two binary digits follow the leading one, so a bucket is at most a
//! quarter as wide as its upper bound:
//!
//! ```text
//! nanoseconds  1 2 3 4 | 5 6 7 8 | 10 12 14 16 | 20 24 28 32 | …
//! ```
//!
//! The numbers are upper bounds, and belong to their buckets. Every power of two from 4 on is one of them, so
//! that coarser scales can be made by adding buckets.

use core::{fmt, panic::Location, time::Duration};

#[cfg(green)]
use crate::engine::{
    atomic::Ordering,
    sched::{Cluster, current, start::Count},
    sys::kernel_thread,
};

/// Figures about a runtime: counts since its start, and its present state.
///
/// They are returned by [`Runtime::metrics`](crate::runtime::Runtime::metrics). In
/// [`Mode::Kernel`](super::Mode::Kernel) most of them are 0.
///
/// Counts are always kept. Times are measured, and the histograms grow, only while
/// [`observe::measure`](crate::observe::measure) or `GREENTHREAD_METRICS=on` asks for that.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// greenthread::spawn(|| ()).join().unwrap();
/// assert!(Runtime::global().metrics().spawns >= 1);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The number of times that a processor left a green thread, for whatever reason.
    pub switches: u64,
    /// The number of times that a processor took threads from another processor's queue.
    pub steals: u64,
    /// The number of times that a processor without work looked for threads at all other processors. In
    /// [`steals`](Metrics::steals) of these cases it found some.
    pub steal_attempts: u64,
    /// The number of times that a thread was interrupted because its time slice was over.
    pub preemptions: u64,
    /// The number of times that a processor was taken from a thread that was blocked in the kernel,
    /// or that could not be interrupted.
    pub hand_offs: u64,
    /// The number of times that a blocking call of libc, made by code that knows nothing of green
    /// threads, has parked the thread that made it.
    pub parked_calls: u64,
    /// The number of waits that ended, or did not begin, because a frame round them had ended
    /// ([`cancel`](crate::cancel)).
    pub refused_waits: u64,
    /// The system calls in which threads were blocked when their processor was taken from them: the ten
    /// most frequent ones, the most frequent first. Each such thread keeps a kernel thread until its
    /// call returns.
    pub blocked_calls: Vec<BlockedCall>,
    /// The number of threads that were started.
    pub spawns: u64,
    /// The number of times that a sleeping kernel thread was woken because there was work.
    pub wake_ups: u64,
    /// The number of threads that have been started and have not ended.
    pub live_threads: usize,
    /// The number of kernel threads for green threads, blocked ones and idle ones included.
    pub kernel_threads: usize,
    /// The number of those kernel threads that are idle.
    pub parked_kernel_threads: usize,
    /// The number of ready threads that wait in the global queue and not at a processor.
    pub global_queue_len: usize,
    /// The figures of each processor. Processors that are being taken away
    /// ([`Runtime::set_processors`]) but still run a thread come last.
    ///
    /// [`Runtime::set_processors`]: crate::runtime::Runtime::set_processors
    pub processors: Vec<ProcessorMetrics>,
    /// For how long threads were ready before they ran: from a wake-up, a spawn, or the end of the turn
    /// before, to the beginning of a turn. A thread to which another one hands over
    /// ([`coroutine`](crate::coroutine)) does not wait and is not counted.
    pub scheduling_latency: Histogram,
    /// The same times, by where the processor found the thread.
    pub queue_wait: QueueWait,
    /// For how long threads ran at a stretch, on a processor: the time after a thread has lost its processor
    /// ([`hand_offs`](Metrics::hand_offs)) is not part of it.
    pub run_time: Histogram,
    /// For how long threads held kernel threads after they were seen to be blocked and had lost their processors:
    /// until they came back to the runtime.
    pub blocked_time: Histogram,
}

/// [`Metrics::scheduling_latency`] in three parts.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// let metrics = Runtime::global().metrics();
/// let parts = &metrics.queue_wait;
/// let count = parts.next_slot.count() + parts.queue.count() + parts.stolen.count();
/// assert_eq!(count, metrics.scheduling_latency.count());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueWait {
    /// Of threads that ran next after the thread that had readied them, in the same time slice.
    pub next_slot: Histogram,
    /// Of threads that the processor took from a queue, its own or the global one.
    pub queue: Histogram,
    /// Of threads that the processor took from another one. (It may take several at once; the others count as
    /// taken from its own queue.)
    pub stolen: Histogram,
}

/// Figures about one processor.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// let runtime = Runtime::builder().processors(1).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// for processor in runtime.metrics().processors {
///     println!("{} switches, {} threads wait", processor.switches, processor.queue_len);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorMetrics {
    /// The number of ready threads that wait in the processor's queue.
    pub queue_len: usize,
    /// The number of times that the processor left a green thread.
    pub switches: u64,
}

/// A system call that has blocked kernel threads.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// for call in Runtime::global().metrics().blocked_calls {
///     println!("{}: {} times", call.name, call.count);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedCall {
    /// The name of the system call, such as `flock` or `clock_nanosleep`; for one that is rarely met, `syscall` and its
    /// number.
    pub name: String,
    /// The number of times that a thread in this call has lost its processor.
    pub count: u64,
    /// Whose calls these were: the ten most frequent places, the most frequent first.
    pub places: Vec<BlockedPlace>,
}

/// Where the threads were spawned that a [`BlockedCall`] has blocked.
///
/// # Examples
///
/// ```
/// use greenthread::runtime::Runtime;
///
/// for call in Runtime::global().metrics().blocked_calls {
///     for place in &call.places {
///         let Some(at) = place.spawned_at else { continue };
///         println!("{}, {} times: threads spawned at {at}", call.name, place.count);
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedPlace {
    /// The place in the program that spawned the threads, if it is known.
    pub spawned_at: Option<&'static Location<'static>>,
    /// The number of times that such a thread has lost its processor in this call.
    pub count: u64,
    /// For how long such threads held kernel threads, while times were measured.
    pub time: Duration,
}

/// How often times of each length were measured.
///
/// A histogram is part of a snapshot, [`Metrics`](crate::runtime::Metrics). Its buckets are narrow: the upper bound of a
/// bucket is at most a quarter greater than the lower one, so [`quantile`](Histogram::quantile) is that much too great at
/// most. (Times of a few nanoseconds are exact.)
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "observe")] {
/// use greenthread::{observe, runtime::{Mode, Runtime}};
///
/// observe::measure(true);
/// let runtime = Runtime::builder().processors(1).build()?;
/// runtime.spawn(|| (0..100).for_each(|_| greenthread::yield_now())).join().unwrap();
/// let latency = runtime.metrics().scheduling_latency;
/// if runtime.mode() == Mode::Green {
///     assert!(latency.count() >= 100);
/// }
/// println!("{} times; half of them within {:?}", latency.count(), latency.quantile(0.5));
/// # observe::measure(false);
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// One count for each bucket of the scale, or none at all if all are 0.
    counts: Vec<u64>,
    nanos: u64,
}

/// A bucket of a [`Histogram`].
///
/// # Examples
///
/// ```
/// use greenthread::runtime::{Bucket, Runtime};
///
/// for Bucket { up_to, count, .. } in Runtime::global().metrics().run_time.buckets() {
///     println!("{count} runs took {up_to:?} or little less");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// The longest time in the bucket. Its shortest time is longer than the longest one of the bucket before.
    pub up_to: Duration,
    /// How many times were measured that are in this bucket, and in no other.
    pub count: u64,
}

impl Histogram {
    /// The number of buckets: up to 2^64 nanoseconds.
    pub(crate) const BUCKETS: usize = 252;

    /// The bucket of a time in nanoseconds.
    #[inline]
    pub(crate) fn bucket(nanos: u64) -> usize {
        let below = nanos.saturating_sub(1);
        match below {
            0..4 => below as usize,
            _ => {
                let exponent = below.ilog2() as usize;
                (exponent - 1) * 4 + (below >> (exponent - 2) & 3) as usize
            }
        }
    }

    /// Returns how many times were measured.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Histogram;
    ///
    /// assert_eq!(Histogram::default().count(), 0);
    /// ```
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all times.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runs = Runtime::global().metrics().run_time;
    /// let average = runs.sum().checked_div(runs.count() as u32);
    /// println!("threads run for {average:?} on average");
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Returns a time that the part `q` of all times does not exceed: the median for 0.5, the longest for 1.
    ///
    /// It is the upper bound of a bucket. A `q` below 0, or not a number, counts as 0, and one above 1 as 1. Of an
    /// empty histogram every quantile is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::{Histogram, Runtime};
    /// use std::time::Duration;
    ///
    /// let runs = Runtime::global().metrics().run_time;
    /// assert!(runs.quantile(0.5) <= runs.quantile(0.99));
    /// assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    /// ```
    pub fn quantile(&self, q: f64) -> Duration {
        let total = self.count();
        let wanted = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let reached = |bucket: &Bucket| {
            seen += bucket.count;
            seen >= wanted
        };
        let bucket = self.buckets().find(reached);
        bucket.map_or(Duration::ZERO, |bucket| bucket.up_to)
    }

    /// Returns the buckets that are not empty, the shortest times first.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::runtime::Runtime;
    ///
    /// let runs = Runtime::global().metrics().run_time;
    /// let count: u64 = runs.buckets().map(|bucket| bucket.count).sum();
    /// assert_eq!(count, runs.count());
    /// assert!(runs.buckets().map(|bucket| bucket.up_to).is_sorted());
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count != 0)
            .map(|(place, &count)| Bucket {
                up_to: Duration::from_nanos(upper(place)),
                count,
            })
    }

    /// Adds the sum of some times in nanoseconds, and how many there are in each bucket.
    pub(crate) fn add(&mut self, (nanos, counts): (u64, impl Iterator<Item = u64>)) {
        self.nanos = self.nanos.wrapping_add(nanos);
        self.counts.resize(Histogram::BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        self.add((other.nanos, other.counts.iter().copied()));
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum())
            .field("median", &self.quantile(0.5))
            .field("longest", &self.quantile(1.0))
            .finish()
    }
}

/// The greatest time in a bucket, in nanoseconds.
fn upper(bucket: usize) -> u64 {
    let (exponent, digits) = (bucket / 4 + 1, bucket as u128 % 4);
    match bucket {
        0..4 => bucket as u64 + 1,
        _ => u64::try_from((5 + digits) << (exponent - 2)).unwrap_or(u64::MAX),
    }
}

// ==== the figures of a cluster ====

#[cfg(green)]
impl Cluster {
    /// Returns the figures of a cluster; see [`Metrics`].
    pub(super) fn metrics(&self) -> Metrics {
        let sum = |count: Count| self.sum(count) + count(&self.live_count.outside);
        Metrics {
            switches: sum(|counts| counts.switches.get()),
            steals: sum(|counts| counts.steals.get()),
            steal_attempts: sum(|counts| counts.steal_attempts.get()),
            preemptions: sum(|counts| counts.preemptions.get()),
            hand_offs: self.hand_offs.get(),
            parked_calls: sum(|counts| counts.parked_calls.get()),
            refused_waits: sum(|counts| counts.refused_waits.get()),
            blocked_calls: {
                let places = self.blocked_calls.used();
                blocked_calls(places.map(|place| {
                    let blocked = BlockedPlace {
                        spawned_at: place.spawned_at(),
                        count: place.count.get(),
                        time: Duration::from_nanos(place.nanos.get()),
                    };
                    (kernel_thread::call_name(place.call()), blocked)
                }))
            },
            spawns: sum(|counts| counts.spawned.get()),
            wake_ups: self.wake_ups.get(),
            live_threads: self.live(),
            kernel_threads: self.workers.load(Ordering::Relaxed),
            parked_kernel_threads: {
                let _off = current::preemption_off();
                self.spare_count()
            },
            global_queue_len: self.policy.len(None),
            processors: self
                .processors()
                .filter(|p| !p.is_retired())
                .map(|p| ProcessorMetrics {
                    queue_len: self.policy.len(Some(p.index)),
                    switches: p.counts.switches.get(),
                })
                .collect(),
            ..Metrics::default()
        }
    }
}

/// Returns the calls in which threads were blocked most often, in that order, and the most frequent places of each.
#[cfg(green)]
fn blocked_calls(blocked: impl Iterator<Item = (String, BlockedPlace)>) -> Vec<BlockedCall> {
    let mut calls: Vec<BlockedCall> = Vec::new();
    for (name, place) in blocked {
        let known = calls.iter().position(|call| call.name == name);
        let known = known.unwrap_or_else(|| {
            calls.push(BlockedCall::default());
            calls.len() - 1
        });
        let call = &mut calls[known];
        call.name = name;
        call.count += place.count;
        // The same place in generic code can have several addresses, so places are compared by their contents.
        let mut places = call.places.iter_mut();
        match places.find(|known| known.spawned_at == place.spawned_at) {
            Some(known) => {
                known.count += place.count;
                known.time += place.time;
            }
            None => call.places.push(place),
        }
    }
    let mut shown = most_frequent(calls, |call| call.count);
    for call in &mut shown {
        call.places = most_frequent(core::mem::take(&mut call.places), |place| place.count);
    }
    shown
}

/// Those of the highest counts, the most frequent first.
// Items are few, and two more kinds of sorts would be 10 KB of every program.
fn most_frequent<T>(mut items: Vec<T>, count: impl Fn(&T) -> u64) -> Vec<T> {
    const SHOWN: usize = 10;
    let next = || {
        // Of items with equal counts, the first is taken.
        let at = (0..items.len()).rev().max_by_key(|&at| count(&items[at]))?;
        Some(items.remove(at))
    };
    std::iter::from_fn(next).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: usize = Histogram::BUCKETS;

    fn bucket(nanos: u64) -> usize {
        Histogram::bucket(nanos)
    }

    fn of(times: impl Iterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for nanos in times {
            let counts = (0..BUCKETS).map(|place| u64::from(place == bucket(nanos)));
            histogram.add((nanos, counts));
        }
        histogram
    }

    #[test]
    fn quantiles_of_known_times() {
        let times = || (1..=10_000_u64).map(|i| i * 100);
        let histogram = of(times());
        assert_eq!(histogram.count(), 10_000);
        assert_eq!(histogram.sum(), Duration::from_nanos(times().sum()));
        for percent in 1..=100 {
            let exact = Duration::from_nanos(percent * 10_000);
            let quantile = histogram.quantile(percent as f64 / 100.0);
            assert!(
                exact <= quantile && quantile <= exact.mul_f64(1.25),
                "{percent}: {quantile:?}"
            );
        }
        assert_eq!(histogram.quantile(0.0), histogram.quantile(f64::NAN));
        assert_eq!(histogram.quantile(0.0), Duration::from_nanos(112));
        assert_eq!(histogram.quantile(7.0), histogram.quantile(1.0));
    }

    #[test]
    fn one_time_is_every_quantile() {
        let histogram = of([4096].into_iter());
        for q in [0.0, 0.5, 1.0] {
            assert_eq!(histogram.quantile(q), Duration::from_nanos(4096));
        }
        let up_to = Duration::from_nanos(4096);
        assert!(histogram.buckets().eq([Bucket { up_to, count: 1 }]));
    }

    #[test]
    fn histograms_are_added_up() {
        let (some, others) = ([3, 5, 900], [4, 1_000_000, 900]);
        let mut sum = of(some.into_iter());
        sum.merge(&of(others.into_iter()));
        assert_eq!(sum, of(some.into_iter().chain(others)));
    }

    #[test]
    fn every_time_has_its_bucket() {
        assert_eq!(
            (bucket(0), bucket(1), bucket(u64::MAX)),
            (0, 0, BUCKETS - 1)
        );
        assert_eq!(upper(BUCKETS - 1), u64::MAX);
        for i in 1..BUCKETS {
            let (below, end) = (upper(i - 1), upper(i));
            assert!(below < end);
            assert_eq!(
                (bucket(below), bucket(below + 1), bucket(end)),
                (i - 1, i, i)
            );
            assert!(end - below <= end / 4 + 1, "bucket {i} is wide");
        }
    }

    #[test]
    fn powers_of_two_are_bounds() {
        for exponent in 2..64 {
            let bound = 1 << exponent;
            assert_eq!(upper(bucket(bound)), bound);
        }
    }

    #[cfg(green)]
    #[test]
    fn equal_places_are_one() {
        let here = Location::caller();
        let again: &'static Location<'static> = Box::leak(Box::new(*here));
        let time = Duration::from_millis(1);
        let rows = [(here, 3), (again, 4)];
        let rows = rows.map(|(at, count)| {
            let spawned_at = Some(at);
            let place = BlockedPlace {
                spawned_at,
                count,
                time,
            };
            ("flock".to_string(), place)
        });
        let told = blocked_calls(rows.into_iter());
        let [lock] = &told[..] else {
            panic!("{} calls", told.len())
        };
        assert_eq!((lock.name.as_str(), lock.count), ("flock", 7));
        let [place] = &lock.places[..] else {
            panic!("{} places", lock.places.len())
        };
        assert_eq!((place.spawned_at, place.count), (Some(here), 7));
        assert_eq!(place.time, 2 * time);
    }
}
