//! Threads and seats to test policies with; the threads never run.

use super::{Others, Policy, Ready, Seat};
use crate::engine::arch::ticks;
#[cfg(green)]
use crate::engine::{atomic::Ordering, sched::thread::Records};
#[cfg(green)]
use crate::runtime::{Mode, Runtime};

/// Makes `count` threads, whose priorities are their indices. Makes none where there are no green
/// threads.
#[cfg(green)]
pub(super) fn stand_ins(count: u64) -> Vec<Ready> {
    // Building a runtime prepares the process.
    let runtime = Runtime::builder().processors(1).build().unwrap();
    if runtime.mode() == Mode::Kernel {
        return Vec::new();
    }
    let stand_in = |index| {
        let green = Records::create().unwrap();
        green.priority.store(index, Ordering::Relaxed);
        Ready::new(green)
    };
    (0..count).map(stand_in).collect()
}

#[cfg(not(green))]
pub(super) fn stand_ins(_: u64) -> Vec<Ready> {
    Vec::new()
}

/// Makes seats of processors that do not exist.
pub(super) fn seats(count: usize) -> Vec<Seat> {
    seats_of(1, count)
}

/// Makes seats of processors of a runtime with this name; neither exists.
pub(super) fn seats_of(runtime: usize, count: usize) -> Vec<Seat> {
    // SAFETY: the test has the policy alone.
    (0..count)
        .map(|index| unsafe { Seat::new(index, runtime) })
        .collect()
}

/// Returns the thread that the processor of `seat` runs next, and its index.
pub(super) fn next(policy: &impl Policy, seat: &Seat) -> Option<(u64, Ready)> {
    let next = policy.next(seat, Others::Busy)?;
    Some((next.thread.priority().get(), next.thread))
}

/// Waits until the clock of [`ticks`] has moved: who comes into a queue now has another stamp.
pub(super) fn wait_for_tick() {
    let before = ticks();
    while ticks() == before {
        core::hint::spin_loop();
    }
}

/// Gives up threads that will not run.
pub(super) fn dismiss(threads: impl IntoIterator<Item = Ready>) {
    threads
        .into_iter()
        .for_each(|thread| _ = thread.into_green());
}
