//! [`Once`]: a wait queue and three flags, of which at most one is set.
//!
//! | flag | meaning |
//! |---|---|
//! | none | nobody has called yet |
//! | `RUNNING` | a thread runs its closure |
//! | `COMPLETE` | a closure has returned |
//! | `POISONED` | the last closure panicked; the next that ignores it may try again |
//!
//! | thread | finds | does |
//! |---|---|---|
//! | caller | none, or `POISONED` and ignores it | sets `RUNNING` instead, runs, finishes |
//! | caller | `RUNNING` | queues, in one step with seeing it; looks again when woken |
//! | finisher | | sets `COMPLETE` or `POISONED` instead and takes all waiters, in one step; wakes them |
//! | who waits only | neither `COMPLETE` nor `POISONED` | queues as above |
//!
//! The closure is user code: it runs with preemption on, may park, may panic. A guard finishes for
//! it.
//!
//! Invariants:
//! 1. Who set `RUNNING` clears it, and nobody else does. So closures do not overlap.
//! 2. `COMPLETE` stays. So no closure runs after one that has returned.
//! 3. Who queues has seen in the word it replaced what it waits for the end of; and every change of
//!    the flags that ends something takes the whole queue. So nobody is left behind.
//!
//! Orderings: finishing is a Release. Seeing `COMPLETE` is an Acquire, and so is setting `RUNNING`:
//! a closure sees what an earlier one did before it panicked.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::engine::door::atomic::{Ordering::Acquire, const_fn};
use crate::engine::door::queue::{Position, State, WaitQueue};

const RUNNING: usize = WaitQueue::flag(0);
const COMPLETE: usize = WaitQueue::flag(1);
const POISONED: usize = WaitQueue::flag(2);

/// Runs something once, whoever comes first: [`std::sync::Once`], which blocks only the green
/// thread.
///
/// ```
/// use greenthread::sync::Once;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static START: Once = Once::new();
/// static STARTED: AtomicU32 = AtomicU32::new(0);
///
/// greenthread::scope(|s| {
///     for _ in 0..10 {
///         s.spawn(|| START.call_once(|| { STARTED.fetch_add(1, Relaxed); }));
///     }
/// });
/// assert_eq!(STARTED.load(Relaxed), 1);
/// ```
pub struct Once {
    queue: WaitQueue,
}

// A closure that panicked leaves poison, which is told.
impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// What [`Once::call_once_force`] tells its closure; [`std::sync::OnceState`].
pub struct OnceState {
    poisoned: bool,
    /// Not to be shared between threads, as std's.
    not_sync: PhantomData<Cell<()>>,
}

impl Once {
    const_fn! {
        /// Nothing has run yet.
        #[inline]
        #[must_use]
        #[allow(clippy::new_without_default, reason = "std's has no Default")]
        pub const fn new() -> Once {
            Once {
                queue: WaitQueue::new(0),
            }
        }
    }

    /// Runs `f` if this is the first call. Otherwise blocks until the first call's closure has
    /// returned, if it has not yet. Then what that closure did is visible here.
    ///
    /// A closure that calls `call_once` on the same `Once` waits for itself, for ever.
    ///
    /// # Panics
    /// If `f` panics; and if an earlier closure did and none has returned since.
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// let once = Once::new();
    /// let mut calls = 0;
    /// for _ in 0..3 {
    ///     once.call_once(|| calls += 1);
    /// }
    /// assert_eq!(calls, 1);
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(false, &mut |_| {
                if let Some(f) = f.take() {
                    f();
                }
            });
        }
    }

    /// [`call_once`](Once::call_once), but an earlier closure that panicked is no hindrance: `f`
    /// then runs, and is told.
    ///
    /// # Panics
    /// If `f` panics.
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    /// assert!(greenthread::spawn(|| ONCE.call_once(|| panic!("on purpose"))).join().is_err());
    /// ONCE.call_once_force(|state| assert!(state.is_poisoned()));
    /// assert!(ONCE.is_completed());
    /// ```
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(true, &mut |state| {
                if let Some(f) = f.take() {
                    f(state);
                }
            });
        }
    }

    /// Whether a closure has returned. What it did is then visible here.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: pairs with the Release in `Running::drop`.
        self.queue.state(Acquire).has(COMPLETE)
    }

    /// Blocks until a closure has returned, whether one runs yet or not.
    ///
    /// # Panics
    /// If a closure has panicked, or does meanwhile.
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static READY: Once = Once::new();
    /// let waiter = greenthread::spawn(|| READY.wait());
    /// READY.call_once(|| ());
    /// waiter.join().unwrap();
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.wait_while(|state| !state.has(COMPLETE | POISONED));
        if !self.is_completed() {
            poisoned();
        }
    }

    /// Blocks until a closure has returned, however many panic before.
    pub fn wait_force(&self) {
        self.wait_while(|state| !state.has(COMPLETE));
    }

    /// Blocks as long as `unfinished`.
    fn wait_while(&self, unfinished: impl Fn(State) -> bool) {
        // Acquire: pairs with the Release in `Running::drop`.
        while unfinished(self.queue.state(Acquire)) {
            let waits = |state| unfinished(state).then_some(state);
            // However it ended: look again.
            let _ = self.queue.wait(Position::Back, 0, None, waits);
        }
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: &mut dyn FnMut(&OnceState)) {
        loop {
            self.wait_while(|state| state.has(RUNNING));
            let state = self.queue.state(Acquire);
            if state.has(COMPLETE) {
                return;
            }
            let was_poisoned = state.has(POISONED);
            if was_poisoned && !force {
                poisoned();
            }
            let running = state.without(POISONED).with(RUNNING);
            // Acquire: pairs with the Release in `Running::drop`, after which poison was left.
            if !state.has(RUNNING) && self.queue.change(state, running, Acquire).is_ok() {
                let mut running = Running {
                    once: self,
                    leaves: POISONED,
                };
                f(&OnceState {
                    poisoned: was_poisoned,
                    not_sync: PhantomData,
                });
                running.leaves = COMPLETE;
                return;
            }
        }
    }
}

/// The right to run a closure. Its end, by a panic too, is told to all who wait.
struct Running<'a> {
    once: &'a Once,
    leaves: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A Release: pairs with the Acquires above.
        let done = |state: State| state.without(RUNNING).with(self.leaves);
        self.once.queue.lock().wake_all(done);
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    panic!("Once instance has previously been poisoned")
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl OnceState {
    /// Whether the closure before this one panicked.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState")
            .field("poisoned", &self.poisoned)
            .finish()
    }
}
