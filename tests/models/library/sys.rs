//! Stands in for the library's `sys`: waiting for another's next few instructions, and a clock that
//! the models set.

use std::cell::Cell;

/// So many pauses in one execution are explored, and what comes after them is not. A pause changes
/// nothing: the same happens in an execution where the thread comes later. And two threads could
/// pause for each other for ever while the third, for which they wait, does not run.
const PAUSES: u32 = 1;

// One model runs on one kernel thread, all its threads included.
std::thread_local! {
    static PAUSED: Cell<u32> = const { Cell::new(0) };
}

/// For the beginning of an execution.
pub(crate) fn begin() {
    PAUSED.set(0);
    clock::each_look_takes(0);
}

/// Lets the checker run another thread.
pub(crate) struct Patience(());

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience(())
    }

    pub(crate) fn pause(&mut self) {
        PAUSED.set(PAUSED.get() + 1);
        if PAUSED.get() > PAUSES {
            // The rest of the execution goes one way only.
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
}

pub(crate) mod clock {
    use std::cell::Cell;

    std::thread_local! {
        static TIME: Cell<u64> = const { Cell::new(0) };
        static STEP: Cell<u64> = const { Cell::new(0) };
    }

    /// From now on each look at the clock finds it `step` nanoseconds later than the one before.
    pub(crate) fn each_look_takes(step: u64) {
        TIME.set(0);
        STEP.set(step);
    }

    pub(crate) fn now() -> u64 {
        TIME.set(TIME.get() + STEP.get());
        TIME.get()
    }
}
