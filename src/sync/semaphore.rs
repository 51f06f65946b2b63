//! [`Semaphore`]: the ways to take permits, the guards that hold them, and the protocol below both.
//!
//! # The protocol
//!
//! It is a count of permits, and a queue of threads that wait for them.
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
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::atomic::AtomicUsize;
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::{clock, perturb, word};
use crate::wait::queue::{Chain, Position, WaitQueue, Waited};
use crate::wait::{WaitKind, WaitReason, raise};

/// A counter of permits, which limits how many threads do something at a time.
///
/// A thread takes permits before it begins and gives them back when it has finished. If too few
/// permits are there, it waits, which blocks only the green thread. A guard holds the permits that
/// the thread has taken, and gives them back when it is dropped.
///
/// Threads are served strictly in the order in which they ask, however many permits they ask for.
/// std has no semaphore; the names are tokio's.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Semaphore;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// static CONNECTIONS: Semaphore = Semaphore::new(3);
/// let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// greenthread::scope(|scope| {
///     for _ in 0..100 {
///         scope.spawn(|| {
///             let _permit = CONNECTIONS.acquire();
///             most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
///             greenthread::yield_now();
///             now.fetch_sub(1, Relaxed);
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

const QUEUED: usize = 1;
const PERMIT: usize = 2;

/// For reports.
static SEMAPHORE: WaitKind = WaitKind::unwinding("semaphore").with_numbers(|address, facts| {
    if let Some(state) = word::read(address + offset_of!(Semaphore, state)) {
        facts.number("permits", (state / PERMIT) as u64);
    }
});

impl Semaphore {
    /// The largest number of permits that a semaphore can have.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    /// assert_eq!(semaphore.available_permits(), Semaphore::MAX_PERMITS);
    /// ```
    pub const MAX_PERMITS: usize = usize::MAX / PERMIT;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// static SLOTS: Semaphore = Semaphore::new(10);
    /// assert_eq!(SLOTS.available_permits(), 10);
    /// ```
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

    /// Returns the number of permits that are there now.
    ///
    /// Other threads may take or give back permits at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// let _permits = semaphore.acquire_many(3);
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.state.load(Relaxed) / PERMIT
    }

    /// Adds `n` new permits to the semaphore.
    ///
    /// # Panics
    ///
    /// Panics if more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS) permits would be there. The
    /// semaphore does not count the permits that threads have taken, so dropping a guard can panic
    /// for the same reason after too many permits were added.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(0);
    /// greenthread::scope(|scope| {
    ///     scope.spawn(|| semaphore.acquire().forget());
    ///     semaphore.add_permits(1); // wakes the thread
    /// });
    /// assert_eq!(semaphore.available_permits(), 0);
    /// ```
    pub fn add_permits(&self, n: usize) {
        perturb::point("semaphore: adding");
        // Release: pairs with the Acquire in `try_take` and `pass_on`.
        let before = self.state.fetch_update(Release, Relaxed, |state| {
            let (permits, most) = (state / PERMIT, Semaphore::MAX_PERMITS);
            assert!(
                n <= most - permits,
                "a Semaphore with {permits} permits cannot get {n} more: {most} are the most"
            );
            Some(state + n * PERMIT)
        });
        if before.is_ok_and(|state| state & QUEUED != 0) {
            self.pass_on();
        }
    }

    /// Takes one permit, blocking the current thread until there is one.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire();
    /// assert!(semaphore.try_acquire().is_none());
    /// drop(permit);
    /// assert!(semaphore.try_acquire().is_some());
    /// ```
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Takes `n` permits at once, blocking the current thread until there are enough.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// let permits = semaphore.acquire_many(4);
    /// assert_eq!(permits.num_permits(), 4);
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn acquire_many(&self, n: usize) -> SemaphorePermit<'_> {
        self.take(n, None);
        SemaphorePermit::new(self, n)
    }

    /// Takes one permit if there is one and no other thread waits; never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.try_acquire();
    /// assert!(permit.is_some());
    /// assert!(semaphore.try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits at once if there are enough and no other thread waits; never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(4);
    /// let permits = semaphore.try_acquire_many(3);
    /// assert!(permits.is_some());
    /// assert!(semaphore.try_acquire_many(2).is_none());
    /// ```
    pub fn try_acquire_many(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        self.try_take(n).then(|| SemaphorePermit::new(self, n))
    }

    /// Takes one permit, blocking the current thread for no longer than `timeout`.
    ///
    /// Returns `None` if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.acquire_timeout(Duration::from_millis(1));
    /// assert!(permit.is_some());
    /// assert!(semaphore.acquire_timeout(Duration::from_millis(1)).is_none());
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Takes one permit, blocking the current thread until `deadline` at the latest.
    ///
    /// Returns `None` if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// let semaphore = Semaphore::new(0);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(semaphore.acquire_deadline(deadline).is_none());
    /// assert!(Instant::now() >= deadline);
    /// ```
    pub fn acquire_deadline(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_deadline(1, deadline)
    }

    /// Takes `n` permits at once, blocking the current thread for no longer than `timeout`.
    ///
    /// Returns `None`, and takes no permit, if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let semaphore = Semaphore::new(2);
    /// assert!(semaphore.acquire_many_timeout(2, Duration::from_secs(60)).is_some());
    /// assert!(semaphore.acquire_many_timeout(3, Duration::from_millis(1)).is_none());
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn acquire_many_timeout(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        let taken = self.try_take(n) || self.take(n, Some(clock::after(timeout)));
        taken.then(|| SemaphorePermit::new(self, n))
    }

    /// Takes `n` permits at once, blocking the current thread until `deadline` at the latest.
    ///
    /// Returns `None`, and takes no permit, if the time is up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// let semaphore = Semaphore::new(2);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(semaphore.acquire_many_deadline(3, deadline).is_none());
    /// assert_eq!(semaphore.available_permits(), 2);
    /// ```
    pub fn acquire_many_deadline(
        &self,
        n: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let taken = self.try_take(n) || self.take(n, Some(clock::at(deadline)));
        taken.then(|| SemaphorePermit::new(self, n))
    }

    /// Takes one permit as [`acquire`](Semaphore::acquire) does, without borrowing the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.clone().acquire_owned();
    /// greenthread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn acquire_owned(self: Arc<Self>) -> OwnedSemaphorePermit {
        self.acquire_many_owned(1)
    }

    /// Takes `n` permits as [`acquire_many`](Semaphore::acquire_many) does, without borrowing the
    /// semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// let permits = semaphore.clone().acquire_many_owned(2);
    /// greenthread::spawn(move || assert_eq!(permits.num_permits(), 2)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 3);
    /// ```
    pub fn acquire_many_owned(self: Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        self.take(n, None);
        OwnedSemaphorePermit::new(self, n)
    }

    /// Takes `n` permits as [`try_acquire_many`](Semaphore::try_acquire_many) does, without
    /// borrowing the semaphore.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(3));
    /// let permits = semaphore.clone().try_acquire_many_owned(2);
    /// assert!(permits.is_some());
    /// assert!(semaphore.clone().try_acquire_many_owned(2).is_none());
    /// ```
    pub fn try_acquire_many_owned(self: Arc<Self>, n: usize) -> Option<OwnedSemaphorePermit> {
        self.try_take(n).then(|| OwnedSemaphorePermit::new(self, n))
    }
}

/// A guard that holds permits of a [`Semaphore`] and gives them back when it is dropped.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Semaphore;
///
/// let semaphore = Semaphore::new(2);
/// let permit = semaphore.acquire();
/// assert_eq!(semaphore.available_permits(), 1);
/// drop(permit);
/// assert_eq!(semaphore.available_permits(), 2);
/// ```
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

/// A guard that holds permits of a [`Semaphore`] in an [`Arc`] and gives them back when it is
/// dropped.
///
/// The guard borrows nothing, so it can be moved into a thread.
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Arc, Semaphore};
///
/// let semaphore = Arc::new(Semaphore::new(2));
/// let threads: Vec<_> = (0..10)
///     .map(|_| {
///         let permit = semaphore.clone().acquire_owned();
///         greenthread::spawn(move || drop(permit))
///     })
///     .collect();
/// for thread in threads {
///     thread.join().unwrap();
/// }
/// assert_eq!(semaphore.available_permits(), 2);
/// ```
#[must_use = "if unused the permits are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl<'a> SemaphorePermit<'a> {
    /// Makes a guard for `permits` permits that the caller has just taken.
    fn new(semaphore: &'a Semaphore, permits: usize) -> SemaphorePermit<'a> {
        SemaphorePermit { semaphore, permits }
    }

    /// Returns the number of permits that this guard holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(5);
    /// assert_eq!(semaphore.acquire_many(3).num_permits(), 3);
    /// ```
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// Drops the guard without giving its permits back.
    ///
    /// From then on the semaphore has that many fewer permits. [`Semaphore::add_permits`] adds new
    /// ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(2);
    /// semaphore.acquire().forget();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl OwnedSemaphorePermit {
    /// Makes a guard for `permits` permits that the caller has just taken.
    fn new(semaphore: Arc<Semaphore>, permits: usize) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit { semaphore, permits }
    }

    /// Returns the number of permits that this guard holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(5));
    /// assert_eq!(semaphore.acquire_many_owned(3).num_permits(), 3);
    /// ```
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// Returns the semaphore from which the permits were taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = semaphore.clone().acquire_owned();
    /// assert!(Arc::ptr_eq(permit.semaphore(), &semaphore));
    /// ```
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// Drops the guard without giving its permits back.
    ///
    /// From then on the semaphore has that many fewer permits. [`Semaphore::add_permits`] adds new
    /// ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(2));
    /// semaphore.clone().acquire_owned().forget();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
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

impl Semaphore {
    /// Takes `n` permits if there are enough and no thread waits.
    #[inline]
    fn try_take(&self, n: usize) -> bool {
        perturb::point("semaphore: taking");
        let less = |state| suffices(state, n).then(|| state - n * PERMIT);
        // Acquire: pairs with the Release in `add_permits`.
        self.state.fetch_update(Acquire, Relaxed, less).is_ok()
    }

    /// Takes `n` permits, waiting until `deadline` (monotonic nanoseconds) if there is one. Returns
    /// `false` if the time is up.
    fn take(&self, n: usize, deadline: Option<u64>) -> bool {
        while !self.try_take(n) {
            let reason = WaitReason::new(&SEMAPHORE, self);
            let queued = |state| {
                perturb::point("semaphore: queueing");
                (!suffices(state, n)).then_some(state | QUEUED)
            };
            let waits = |flags| {
                let queued = self.state.fetch_update(Relaxed, Relaxed, queued);
                queued.is_ok().then_some(flags)
            };
            match self.queue.wait(reason, Position::Back, n, deadline, waits) {
                Waited::Woken(_) => return true,
                Waited::Refused => {}
                Waited::TimedOut => {
                    self.pass_on();
                    raise(deadline);
                    return false;
                }
            }
        }
        true
    }

    /// Serves the queue as far as the permits suffice; see the header.
    #[cold]
    fn pass_on(&self) {
        let mut served = Chain::default();
        let mut locked = self.queue.lock();
        loop {
            let state = self.state.load(Relaxed);
            perturb::point("semaphore: passing on");
            if let Some(first) = locked.pop_if(0, |n| n <= state / PERMIT) {
                // Acquire: as in `try_take`, in the other's name.
                let taken = first.node().tag.get() * PERMIT;
                self.state.fetch_sub(taken, Acquire);
                served.push(first);
                locked = self.queue.wake_long(locked, &mut served);
                continue;
            }
            let to = match locked.first_tag() {
                Some(_) => state | QUEUED,
                None => state & !QUEUED,
            };
            let changed = (self.state).compare_exchange_weak(state, to, Relaxed, Relaxed);
            if changed.is_ok() {
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
