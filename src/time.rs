//! Time: sleeping, giving up after a while, and ticking.
//!
//! The gaps that std and crossbeam leave: a call that may take only so long ([`timeout`]), and a
//! loop that runs at a fixed rate ([`Interval`]). Waiting for a thread, a message or a lock for so
//! long at most has forms of its own:
//! [`JoinHandle::join_timeout`](crate::JoinHandle::join_timeout),
//! `park_timeout`, `recv_timeout`, `wait_timeout`.

use std::fmt;
use std::panic::resume_unwind;

pub use std::time::{Duration, Instant};

pub use crate::thread::{sleep, sleep_until};

/// The time was up: what [`timeout`] returns then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the call returned")
    }
}

impl std::error::Error for Elapsed {}

/// Calls `f` in a thread of its own, and waits for it for `duration` at most.
///
/// A thread cannot be stopped from outside: if the time is up, `f` **goes on** detached, and what
/// it returns in the end is dropped. So `f` owns all that it uses. Where it can look whether it is
/// still wanted, let it, for example by a channel or a flag.
///
/// ```
/// use greenthread::time::{self, Duration, Elapsed};
/// assert_eq!(time::timeout(Duration::MAX, || 6 * 7), Ok(42));
/// assert_eq!(time::timeout(Duration::from_millis(1), greenthread::park), Err(Elapsed));
/// ```
///
/// # Errors
/// [`Elapsed`], if `f` has not returned in time.
///
/// # Panics
/// With what `f` panicked with, if it did so in time; or if the thread cannot be started.
pub fn timeout<F, T>(duration: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match crate::thread::spawn(f).join_timeout(duration) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(payload)) => resume_unwind(payload),
        Err(_detached) => Err(Elapsed),
    }
}

/// Ticks at a fixed rate: at `start + period`, `start + 2 * period`, and so on, however long the
/// work between takes.
///
/// Who comes late gets one tick at once, the latest that was due; those missed before it are never
/// made up, and the next comes when it would have come anyway. (crossbeam's and Go's tickers keep
/// one late tick too. tokio's first tick comes at once, ours after one period.)
///
/// ```
/// use greenthread::time::{Duration, Instant, Interval};
/// let start = Instant::now();
/// let period = Duration::from_millis(1);
/// let mut interval = Interval::starting_at(start, period);
/// assert_eq!(interval.tick(), start + period);
/// greenthread::sleep_until(start + 10 * period);
/// let late = interval.tick(); // at once, one for all that were missed
/// assert!(late >= start + 10 * period);
/// assert_eq!(interval.tick(), late + period);
/// ```
///
/// It is an iterator that never ends:
///
/// ```
/// use greenthread::time::{Duration, Interval};
/// for _tick in Interval::new(Duration::from_millis(1)).take(3) {
///     // three times, a millisecond apart
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Interval {
    period: Duration,
    /// When the next tick is due; `None`: beyond the clock.
    next: Option<Instant>,
}

impl Interval {
    /// The first tick comes one `period` from now.
    ///
    /// # Panics
    /// If `period` is zero.
    pub fn new(period: Duration) -> Interval {
        Interval::starting_at(Instant::now(), period)
    }

    /// The first tick comes one `period` after `start`.
    ///
    /// # Panics
    /// If `period` is zero.
    pub fn starting_at(start: Instant, period: Duration) -> Interval {
        assert!(!period.is_zero(), "an interval with a period of zero");
        Interval {
            period,
            next: start.checked_add(period),
        }
    }

    /// The time from one tick to the next.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Blocks until the next tick, and returns when it was due: now, or a little earlier.
    pub fn tick(&mut self) -> Instant {
        let Some(next) = self.next else {
            loop {
                sleep(Duration::MAX);
            }
        };
        sleep_until(next);
        let tick = latest(next, self.period, Instant::now());
        self.next = tick.checked_add(self.period);
        tick
    }
}

/// Of the ticks from `first` on, the latest that is due at `now`.
fn latest(first: Instant, period: Duration, now: Instant) -> Instant {
    let missed = now.saturating_duration_since(first).as_nanos() / period.as_nanos();
    let missed = period.as_nanos() * missed;
    // It is less than `now - first`, which is a `Duration`.
    let (seconds, nanos) = (missed / 1_000_000_000, missed % 1_000_000_000);
    first + Duration::new(seconds as u64, nanos as u32)
}

impl Iterator for Interval {
    type Item = Instant;

    /// [`Interval::tick`]; never `None`.
    fn next(&mut self) -> Option<Instant> {
        Some(self.tick())
    }
}
