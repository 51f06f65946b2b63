//! Threads announce that they block, or that they may block.
//!
//! A thread sets a flag in its record, and the monitor reads it. A thread that has announced a
//! blocking call loses its processor at once if others wait; a thread in a call that may block is
//! not signalled.

use super::enter::enter;
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::green::{Green, current};

/// Runs `f`, which blocks the kernel thread.
pub(crate) fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.announced, f)
}

/// Runs `f`, whose system calls may block but seldom do, at little more than their cost.
///
/// The thread keeps its processor until the monitor sees that it is blocked, or that it has gone on
/// for longer than its time slice. The monitor does not signal it meanwhile, so a call that a
/// signal would end early does all its work.
#[cfg(green)]
pub(crate) fn may_block<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.in_call, f)
}

/// Runs `f` with one of the thread's flags set.
#[inline]
fn with_flag<T>(flag: impl Fn(&Green) -> &AtomicBool + Copy, f: impl FnOnce() -> T) -> T {
    struct Set<F: Fn(&Green) -> &AtomicBool>(F, bool);
    impl<F: Fn(&Green) -> &AtomicBool> Drop for Set<F> {
        fn drop(&mut self) {
            if let Some(green) = current::green() {
                (self.0)(green).store(self.1, Ordering::Relaxed);
                // The thread gives way if its slice is over. If its processor is gone, it takes
                // that back, or takes an idle one, or queues for one.
                drop(enter());
            }
        }
    }
    // Only the thread itself writes the flag.
    let before = current::green().is_some_and(|green| {
        let flag = flag(green);
        let before = flag.load(Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        before
    });
    let _set = Set(flag, before);
    f()
}
