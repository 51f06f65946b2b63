//! Sleeping, calls with a time limit, and work at a fixed rate.
//!
//! - [`sleep`] and [`sleep_until`] block the current thread for a while.
//! - [`timeout`] and [`timeout_at`] call a function whose waits end when a time is up.
//! - [`Interval`] ticks at a fixed rate.
//! - [`Duration`] and [`Instant`] are std's own.
//!
//! To wait for a thread, a message or a lock for a limited time, use the method made for it:
//! [`JoinHandle::join_timeout`](crate::JoinHandle::join_timeout),
//! [`park_timeout`](crate::park_timeout),
//! [`Receiver::recv_timeout`](crate::channel::Receiver::recv_timeout),
//! [`Mutex::try_lock_for`](crate::sync::Mutex::try_lock_for) or
//! [`Condvar::wait_timeout`](crate::sync::Condvar::wait_timeout).
//!
//! # Examples
//!
//! ```
//! use greenthread::time::{self, Duration};
//!
//! let lookup = time::timeout(Duration::from_secs(60), || "192.0.2.1");
//! assert_eq!(lookup, Ok("192.0.2.1"));
//! ```

use std::fmt;

use crate::sys::clock;
use crate::wait::{self, What};

pub use std::time::{Duration, Instant};

pub use crate::thread::{sleep, sleep_until};

/// The error returned by [`timeout`]: the time was up before the function returned.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Elapsed};
///
/// let result = time::timeout(Duration::from_millis(1), greenthread::park);
/// assert_eq!(result, Err(Elapsed));
/// assert_eq!(Elapsed.to_string(), "the time was up before the call returned");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the call returned")
    }
}

impl std::error::Error for Elapsed {}

/// Calls `f`, and ends its waits when `limit` has passed.
///
/// `f` runs in the calling thread. While it runs, every wait of the thread that can be ended
/// ends at the limit, also in the libraries that `f` calls: see [`cancel`](crate::cancel).
///
/// It cannot end a computation, a wait for a lock or a call that blocks in the kernel: then it
/// returns late. To go on without the result in such a case, spawn a thread and use
/// [`JoinHandle::join_timeout`](crate::JoinHandle::join_timeout).
///
/// # Errors
///
/// Returns [`Elapsed`] if `f` has unwound because the time was up. A value that `f` returns counts,
/// however late.
///
/// # Panics
///
/// Panics with the payload of `f` if `f` panics.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Elapsed};
///
/// let numbers = [6, 7];
/// assert_eq!(time::timeout(Duration::MAX, || numbers[0] * numbers[1]), Ok(42));
/// assert_eq!(time::timeout(Duration::from_millis(1), greenthread::park), Err(Elapsed));
/// ```
pub fn timeout<T>(limit: Duration, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    wait::run(clock::after(limit), What::Limit, f).map_err(|_| Elapsed)
}

/// Calls `f`, and ends its waits at `deadline`; see [`timeout`].
///
/// # Errors
///
/// Returns [`Elapsed`] if `f` has unwound because the deadline has passed.
///
/// # Panics
///
/// Panics with the payload of `f` if `f` panics.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Elapsed, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(1);
/// assert_eq!(time::timeout_at(deadline, greenthread::park), Err(Elapsed));
/// ```
pub fn timeout_at<T>(deadline: Instant, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    wait::run(clock::at(deadline), What::Limit, f).map_err(|_| Elapsed)
}

/// A clock that ticks at a fixed rate: at `start + period`, `start + 2 * period`, and so on.
///
/// The time between two calls of [`tick`](Interval::tick) does not shift the later ticks. A call
/// that comes late returns at once, with the latest tick that was due. Ticks missed before that one
/// are not made up, and the next tick comes when it would have come anyway. (Tickers of crossbeam
/// and Go also keep one late tick. tokio's first tick comes at once, and this one's after one
/// period.)
///
/// An interval is also an iterator that never ends.
///
/// # Examples
///
/// ```
/// use greenthread::time::{Duration, Instant, Interval};
///
/// let start = Instant::now();
/// let period = Duration::from_millis(1);
/// let mut interval = Interval::starting_at(start, period);
/// greenthread::sleep_until(start + 10 * period);
/// let late = interval.tick(); // at once, one tick for all that were missed
/// assert!(late >= start + 10 * period);
/// assert!(interval.tick() >= late + period);
/// ```
///
/// As an iterator:
///
/// ```
/// use greenthread::time::{Duration, Interval};
///
/// for _tick in Interval::new(Duration::from_millis(1)).take(3) {
///     println!("three times, a millisecond apart");
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Interval {
    period: Duration,
    /// The instant of the next tick, or `None` if the clock does not reach that far.
    next: Option<Instant>,
}

impl Interval {
    /// Creates an interval whose first tick comes one `period` from now.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::time::{Duration, Instant, Interval};
    ///
    /// let start = Instant::now();
    /// let mut interval = Interval::new(Duration::from_millis(1));
    /// interval.tick();
    /// assert!(start.elapsed() >= Duration::from_millis(1));
    /// ```
    pub fn new(period: Duration) -> Interval {
        Interval::starting_at(Instant::now(), period)
    }

    /// Creates an interval whose first tick comes one `period` after `start`.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::time::{Duration, Instant, Interval};
    ///
    /// let (start, period) = (Instant::now(), Duration::from_millis(1));
    /// let mut interval = Interval::starting_at(start, period);
    /// assert!(interval.tick() >= start + period);
    /// ```
    pub fn starting_at(start: Instant, period: Duration) -> Interval {
        assert!(!period.is_zero(), "an interval with a period of zero");
        Interval {
            period,
            next: start.checked_add(period),
        }
    }

    /// Returns the time from one tick to the next.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::time::{Duration, Interval};
    ///
    /// let interval = Interval::new(Duration::from_secs(1));
    /// assert_eq!(interval.period(), Duration::from_secs(1));
    /// ```
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Blocks the current thread until the next tick, and returns the instant at which it was due.
    ///
    /// That instant is now, or earlier if the call comes late or the thread wakes up late.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::time::{Duration, Instant, Interval};
    ///
    /// let mut interval = Interval::new(Duration::from_millis(1));
    /// let tick = interval.tick();
    /// assert!(tick <= Instant::now());
    /// assert!(interval.tick() > tick);
    /// ```
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

/// Returns the latest tick from `first` on that is due at `now`.
fn latest(first: Instant, period: Duration, now: Instant) -> Instant {
    let missed = now.saturating_duration_since(first).as_nanos() / period.as_nanos();
    let missed = period.as_nanos() * missed;
    // The sum is at most `now - first`, so it fits into a `Duration`.
    let (seconds, nanos) = (missed / 1_000_000_000, missed % 1_000_000_000);
    first + Duration::new(seconds as u64, nanos as u32)
}

impl Iterator for Interval {
    type Item = Instant;

    /// Waits for the next [`tick`](Interval::tick); never returns `None`.
    fn next(&mut self) -> Option<Instant> {
        Some(self.tick())
    }
}
