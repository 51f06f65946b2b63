//! Channels that make their messages themselves: `after`, `at`, `tick`.
//!
//! There is no buffer and no helper thread. A timer knows when its next message is due; a receiver
//! waits until then by its own time-out, and a select waits no longer than that.
//!
//! | `next` (nanoseconds after `start`) | means |
//! |---|---|
//! | `NEVER` | no message will come any more |
//! | else | the next message is there from then on |
//!
//! Invariants:
//! 1. A message belongs to the thread that moves `next` on: past the only message of `at`, or by
//!    one period. A thread that may wait long enough moves it before the message is due, and then
//!    waits alone.
//! 2. Messages that are not received do not pile up: the period counts from the time of receiving.
//!
//! Ordering: all Relaxed. Nothing is handed over but the number itself.

use std::time::{Duration, Instant};

use super::shared::Failed;
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::clock::{self, NEVER};
use crate::wait::queue::Wait;
use crate::wait::{WaitKind, WaitReason, reason};

/// A timer. Its messages are instants: `T` is that type, as `message` knows.
pub(super) struct Timer<T> {
    message: fn(Instant) -> T,
    start: Instant,
    next: AtomicU64,
    /// The period, or `NEVER` if there is one message only.
    period: u64,
}

impl Timer<Instant> {
    /// A message at `first`, and one after each `period`.
    pub(super) fn new(first: Instant, period: Option<Duration>) -> Timer<Instant> {
        Timer {
            message: |when| when,
            start: first,
            next: AtomicU64::new(0),
            period: period.map_or(NEVER, nanos),
        }
    }
}

impl<T> Timer<T> {
    pub(super) fn message(&self, when: Instant) -> T {
        (self.message)(when)
    }

    fn due(&self, next: u64) -> Option<Instant> {
        (next != NEVER)
            .then(|| self.start.checked_add(Duration::from_nanos(next)))
            .flatten()
    }

    /// Returns the instant at which the next message is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due(self.next.load(Relaxed))
    }

    pub(super) fn is_due(&self) -> bool {
        self.next().is_some_and(|due| due <= Instant::now())
    }

    /// Claims the message after `next`, if that is still the next.
    fn claim(&self, next: u64, due: Instant, now: Instant) -> bool {
        let after = nanos(due.max(now) - self.start).saturating_add(self.period);
        self.next
            .compare_exchange(next, after, Relaxed, Relaxed)
            .is_ok()
    }

    /// Takes the message, if it is due.
    pub(super) fn take(&self) -> Option<Instant> {
        loop {
            let next = self.next.load(Relaxed);
            let due = self.due(next)?;
            let now = Instant::now();
            if now < due {
                return None;
            }
            if self.claim(next, due, now) {
                return Some(due);
            }
        }
    }

    /// Takes the message, waiting for it until `deadline`.
    pub(super) fn receive(&self, deadline: Option<Instant>) -> Result<Instant, Failed> {
        loop {
            let next = self.next.load(Relaxed);
            let due = self
                .due(next)
                .filter(|&due| deadline.is_none_or(|deadline| due <= deadline));
            let Some(due) = due else {
                sleep_until(deadline.map_or(NEVER, clock::at));
                return Err(Failed::TimedOut);
            };
            if self.claim(next, due, Instant::now()) {
                sleep_until(clock::at(due));
                return Ok(due);
            }
        }
    }
}

/// For reports: such a channel's time, or a select's that has no other operation.
static TIMER: WaitKind = WaitKind::inside("time", reason::nothing);

/// Blocks the thread until `when`, or for ever if that is `None`.
pub(super) fn sleep_until(when: u64) {
    if when > clock::now() {
        // No other thread knows the wait, so it ends by time-out.
        let _timed_out = Wait::new(WaitReason::only(&TIMER)).wait(Some(when));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
