//! Kernel-thread mode: no more kernel threads run nodes than there are processors, unless those are
//! blocked.
//!
//! A follower that is a green thread begins when a processor is free. A follower that is a kernel
//! thread begins at once, and leaves another, and so on: in the end there would be a thread for
//! each node. So it waits for one of a fixed number of turns. If no node has ended anywhere for a
//! while, it goes on without a turn: then the threads that have a turn are blocked, perhaps waiting
//! for a node that it is about to run.

use std::time::Duration;

use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{LazyLock, Semaphore, SemaphorePermit};
use crate::thread::Thread;
use crate::thread::available_parallelism;

/// The time without an ended node after which a follower goes on without a turn: a time slice.
const PATIENCE: Duration = Duration::from_millis(10);

static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));
/// The number of nodes that kernel threads have run.
static RUN: AtomicU64 = AtomicU64::new(0);

pub(super) enum Turn {
    /// A green thread's turn is its processor.
    Green,
    /// A kernel thread's turn; `None` if it goes on without one.
    Kernel(#[allow(dead_code, reason = "held")] Option<SemaphorePermit<'static>>),
}

impl Turn {
    pub(super) fn take() -> Turn {
        if Thread::is_green() {
            return Turn::Green;
        }
        loop {
            let before = RUN.load(Relaxed);
            let permit = TURNS.acquire_timeout(PATIENCE);
            if permit.is_some() || RUN.load(Relaxed) == before {
                return Turn::Kernel(permit);
            }
        }
    }

    pub(super) fn has_run_one(&self) {
        if let Turn::Kernel(_) = self {
            RUN.fetch_add(1, Relaxed);
        }
    }
}
