//! The semaphore's protocol: a count of permits, and a queue of threads that wait for them.
//!
//! The state is one word, `permits × 2 + QUEUED`. `QUEUED` means that a thread may be in the queue.
//!
//! | thread | finds | does |
//! |---|---|---|
//! | taker of n | n permits, not `QUEUED` | takes them |
//! | taker | else | sets `QUEUED` in one step with seeing that, queues |
//! | giver of n | not `QUEUED` | adds n, done |
//! | giver of n | `QUEUED` | adds n, then `pass_on` |
//! | taker that timed out | | `pass_on`: the threads behind it may want fewer permits |
//! | `pass_on` | permits enough for the first in the queue | takes them for it, wakes it; again |
//! | `pass_on` | else | sets or clears `QUEUED` as the queue is |
//!
//! The queue is served strictly in order: else many small requests would starve a big one.
//!
//! Invariants:
//! 1. While no thread holds the list: if a thread is in the queue, `QUEUED` is set. The thread that
//!    queues sets it and `pass_on` clears it, both with the list in hand.
//! 2. While `QUEUED` is set only `pass_on` takes permits. So it can take the permits that it saw.
//! 3. No wake-up is lost: a giver sees `QUEUED` in the step that adds the permits, or comes before
//!    the step that set it, which then saw the permits. And `pass_on` leaves only in a step in
//!    which the permits are still too few for the first.
//!
//! Orderings: giving is Release, taking Acquire; permits handed over are published by the wake-up.

use core::mem::offset_of;

use crate::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::{perturb, word};
use crate::wait::list::Chain;
use crate::wait::queue::{Position, WaitQueue, Waited};
use crate::wait::{WaitKind, WaitReason};

const QUEUED: usize = 1;
const PERMIT: usize = 2;

/// The permits of a semaphore that no thread has taken, and the threads that wait for them.
pub(super) struct Count {
    state: AtomicUsize,
    queue: WaitQueue,
}

/// For reports.
static SEMAPHORE: WaitKind = WaitKind::inside("semaphore", |address, facts| {
    if let Some(state) = word::read(address + offset_of!(Count, state)) {
        facts.number("permits", (state / PERMIT) as u64);
    }
});

impl Count {
    /// The largest number of permits that the word can hold.
    pub(super) const MAX: usize = usize::MAX / PERMIT;

    pub(super) const fn new(permits: usize) -> Count {
        assert!(
            permits <= Count::MAX,
            "a Semaphore cannot have more than usize::MAX / 2 permits"
        );
        Count {
            state: AtomicUsize::new(permits * PERMIT),
            queue: WaitQueue::new(0),
        }
    }

    /// Returns the number of permits that are there now.
    #[inline]
    pub(super) fn permits(&self) -> usize {
        self.state.load(Relaxed) / PERMIT
    }

    /// Adds `n` permits, and serves the queue if a thread may be in it.
    #[inline]
    pub(super) fn give(&self, n: usize) {
        let mut state = self.state.load(Relaxed);
        loop {
            let permits = state / PERMIT;
            let most = Count::MAX;
            assert!(
                n <= most - permits,
                "a Semaphore with {permits} permits cannot get {n} more: {most} are the most"
            );
            // Release: pairs with the Acquire in `try_take` and `pass_on`.
            let more = state + n * PERMIT;
            match self
                .state
                .compare_exchange_weak(state, more, Release, Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state & QUEUED != 0 {
            self.pass_on();
        }
    }

    /// Takes `n` permits if there are enough and no thread waits.
    #[inline]
    pub(super) fn try_take(&self, n: usize) -> bool {
        let mut state = self.state.load(Relaxed);
        while suffices(state, n) {
            // Acquire: pairs with the Release in `give`.
            let less = state - n * PERMIT;
            match self
                .state
                .compare_exchange_weak(state, less, Acquire, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes `n` permits, waiting until `deadline` (monotonic nanoseconds) if there is one. Returns
    /// `false` if the time is up.
    pub(super) fn take(&self, n: usize, deadline: Option<u64>) -> bool {
        while !self.try_take(n) {
            let waited = self.queue.wait(
                WaitReason::new(&SEMAPHORE, self),
                Position::Back,
                n,
                deadline,
                |flags| {
                    let mut state = self.state.load(Relaxed);
                    while !suffices(state, n) {
                        perturb::point("semaphore: queueing");
                        let queued = state | QUEUED;
                        match self
                            .state
                            .compare_exchange_weak(state, queued, Relaxed, Relaxed)
                        {
                            Ok(_) => return Some(flags),
                            Err(now) => state = now,
                        }
                    }
                    None
                },
            );
            match waited {
                Waited::Woken(_) => return true,
                Waited::Refused => {}
                Waited::TimedOut => {
                    self.pass_on();
                    return false;
                }
            }
        }
        true
    }

    /// Serves the queue as far as the permits suffice; see the header.
    #[cold]
    fn pass_on(&self) {
        let mut served = Chain::new();
        let mut locked = self.queue.lock();
        loop {
            let state = self.state.load(Relaxed);
            perturb::point("semaphore: passing on");
            if let Some(first) = locked.pop_if(0, |n| n <= state / PERMIT) {
                // Acquire: as in `try_take`, in the other's name.
                let taken = first.node().tag.get() * PERMIT;
                self.state.fetch_sub(taken, Acquire);
                served.push(first);
                if served.is_long() {
                    drop(locked);
                    served.wake();
                    served = Chain::new();
                    locked = self.queue.lock();
                }
                continue;
            }
            let to = match locked.first_tag() {
                Some(_) => state | QUEUED,
                None => state & !QUEUED,
            };
            if self
                .state
                .compare_exchange_weak(state, to, Relaxed, Relaxed)
                .is_ok()
            {
                break;
            }
        }
        drop(locked);
        served.wake();
    }
}

fn suffices(state: usize, n: usize) -> bool {
    state & QUEUED == 0 && n <= state / PERMIT
}
