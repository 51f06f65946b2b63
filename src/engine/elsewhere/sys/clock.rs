//! The monotonic clock, in nanoseconds since the first use.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The origin of the clock. The clock shows a little more than 0 there, since 0 stands for "not
/// yet" in places.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

pub(crate) fn now() -> u64 {
    let start = start();
    1 + Instant::now().saturating_duration_since(start).as_nanos() as u64
}

/// The time when `duration` will be over; [`NEVER`] if that is beyond the clock.
pub(crate) fn after(duration: Duration) -> u64 {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
    now().saturating_add(nanos)
}

/// The time of `deadline` on this clock.
pub(crate) fn at(deadline: Instant) -> u64 {
    after(deadline.saturating_duration_since(Instant::now()))
}
