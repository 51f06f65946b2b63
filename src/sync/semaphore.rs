//! [`Semaphore`]: a count of permits, and a queue for those it does not suffice for.
//!
//! The state is one word, `permits × 2 + QUEUED`; `QUEUED`: somebody may be in the queue.
//!
//! | thread | finds | does |
//! |---|---|---|
//! | taker of n | n permits, not `QUEUED` | takes them |
//! | taker | else | sets `QUEUED` in one step with seeing that, queues |
//! | giver of n | not `QUEUED` | adds n, done |
//! | giver of n | `QUEUED` | adds n, then `pass_on` |
//! | who gave up waiting | | `pass_on`: those behind it may want less |
//! | `pass_on` | the permits suffice for the first in the queue | takes them for it, wakes it; again |
//! | `pass_on` | else | makes `QUEUED` true |
//!
//! Strictly first come, first served: else many small requests would starve a big one.
//!
//! Invariants:
//! 1. While nobody holds the list: if somebody is in the queue, `QUEUED` is set. It is set by who
//!    queues and cleared by `pass_on`, both with the list in hand.
//! 2. While `QUEUED` is set only `pass_on` takes permits. So what it saw it can take.
//! 3. No wake-up is lost: a giver sees `QUEUED` in the step that adds the permits, or comes before
//!    the step that set it, which then saw the permits. And `pass_on` leaves only in a step in
//!    which the permits are still too few for the first.
//!
//! Orderings: giving is Release, taking Acquire; permits handed over are published by the wake-up.

use core::fmt;
use core::mem;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::door::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::door::clock;
use crate::engine::door::list::Chain;
use crate::engine::door::perturb;
use crate::engine::door::queue::{Position, WaitQueue, Waited};

const QUEUED: usize = 1;
const PERMIT: usize = 2;

/// A number of permits that threads take, waiting where there are too few, and give back. Not in
/// std; the names are tokio's.
///
/// It is fair: who asks first is served first, however many permits it asks for.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use greenthread::sync::Semaphore;
///
/// static CONNECTIONS: Semaphore = Semaphore::new(3);
/// let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// greenthread::scope(|scope| {
///     for _ in 0..100 {
///         scope.spawn(|| {
///             let _permit = CONNECTIONS.acquire();
///             most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
///             greenthread::yield_now();
///             now.fetch_sub(1, Ordering::SeqCst);
///         });
///     }
/// });
/// assert!(most.into_inner() <= 3);
/// assert_eq!(CONNECTIONS.available_permits(), 3);
/// ```
pub struct Semaphore {
    state: AtomicUsize,
    queue: WaitQueue,
}

/// Permits of a [`Semaphore`]; it gets them back when this is dropped.
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

/// Permits of a [`Semaphore`] in an [`Arc`]; it gets them back when this is dropped.
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl Semaphore {
    /// The most permits a semaphore can have.
    pub const MAX_PERMITS: usize = usize::MAX / PERMIT;

    /// A semaphore with so many permits.
    ///
    /// # Panics
    /// If they are more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
    #[must_use]
    pub const fn new(permits: usize) -> Semaphore {
        assert!(
            permits <= Semaphore::MAX_PERMITS,
            "a Semaphore cannot have more than usize::MAX / 2 permits"
        );
        Semaphore {
            state: AtomicUsize::new(permits * PERMIT),
            queue: WaitQueue::new(0),
        }
    }

    /// How many permits are there now. Others may take or give some the moment after.
    pub fn available_permits(&self) -> usize {
        self.state.load(Relaxed) / PERMIT
    }

    /// Adds permits that nobody took.
    ///
    /// # Panics
    /// If there would be more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS). The same may then
    /// happen when a permit is dropped: the semaphore does not count those that are taken.
    pub fn add_permits(&self, n: usize) {
        let mut state = self.state.load(Relaxed);
        loop {
            let permits = state / PERMIT;
            let most = Semaphore::MAX_PERMITS;
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

    /// Takes a permit, and waits for it if there is none.
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Takes `n` permits at once, and waits until there are so many.
    pub fn acquire_many(&self, n: usize) -> SemaphorePermit<'_> {
        self.take(n, None);
        self.permit(n)
    }

    /// Takes a permit if there is one and nobody waits.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits if there are so many and nobody waits.
    pub fn try_acquire_many(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        self.try_take(n).then(|| self.permit(n))
    }

    /// [`acquire`](Semaphore::acquire), for `timeout` at most; `None` if the time is up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire_timeout(Duration::from_millis(1)).unwrap();
    /// assert!(semaphore.acquire_timeout(Duration::from_millis(1)).is_none());
    /// # drop(permit);
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_timeout(1, timeout)
    }

    /// [`acquire`](Semaphore::acquire), until `deadline` at most; `None` if the time is up.
    pub fn acquire_deadline(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_deadline(1, deadline)
    }

    /// [`acquire_many`](Semaphore::acquire_many), for `timeout` at most; `None` if the time is up.
    pub fn acquire_many_timeout(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        let taken = self.try_take(n) || self.take(n, Some(clock::after(timeout)));
        taken.then(|| self.permit(n))
    }

    /// [`acquire_many`](Semaphore::acquire_many), until `deadline` at most; `None` if the time is
    /// up.
    pub fn acquire_many_deadline(
        &self,
        n: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let taken = self.try_take(n) || self.take(n, Some(clock::at(deadline)));
        taken.then(|| self.permit(n))
    }

    /// [`acquire`](Semaphore::acquire) for a permit that may outlive this reference.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.clone().acquire_owned();
    /// greenthread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn acquire_owned(self: Arc<Self>) -> OwnedSemaphorePermit {
        self.acquire_many_owned(1)
    }

    /// [`acquire_many`](Semaphore::acquire_many) for permits that may outlive this reference.
    pub fn acquire_many_owned(self: Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        self.take(n, None);
        OwnedSemaphorePermit {
            semaphore: self,
            permits: n,
        }
    }

    /// [`try_acquire_many`](Semaphore::try_acquire_many) for permits that may outlive this
    /// reference.
    pub fn try_acquire_many_owned(self: Arc<Self>, n: usize) -> Option<OwnedSemaphorePermit> {
        self.try_take(n).then(|| OwnedSemaphorePermit {
            semaphore: self,
            permits: n,
        })
    }

    /// For a caller that has just taken them.
    fn permit(&self, permits: usize) -> SemaphorePermit<'_> {
        SemaphorePermit {
            semaphore: self,
            permits,
        }
    }

    fn try_take(&self, n: usize) -> bool {
        let mut state = self.state.load(Relaxed);
        while suffices(state, n) {
            // Acquire: pairs with the Release in `add_permits`.
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

    fn take(&self, n: usize, deadline: Option<u64>) -> bool {
        while !self.try_take(n) {
            let waited = self.queue.wait(Position::Back, n, deadline, |flags| {
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
            });
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

    /// Serves the queue as far as the permits suffice. See the header.
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

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("permits", &self.available_permits())
            .finish_non_exhaustive()
    }
}

impl SemaphorePermit<'_> {
    /// How many permits these are.
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// Keeps the permits from the semaphore for good.
    pub fn forget(self) {
        mem::forget(self);
    }
}

impl OwnedSemaphorePermit {
    /// How many permits these are.
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// The semaphore they are of.
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// Keeps the permits from the semaphore for good.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(self.permits);
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.semaphore.add_permits(self.permits);
    }
}
