//! [`Once`]: a wait queue and three flags, of which at most one is set.
//!
//! | flag | meaning |
//! |---|---|
//! | none | no thread has called yet |
//! | `RUNNING` | a thread runs its closure |
//! | `COMPLETE` | a closure has returned |
//! | `POISONED` | the last closure panicked; the next caller that ignores it may try again |
//!
//! | thread | finds | does |
//! |---|---|---|
//! | caller | none, or `POISONED` and ignores it | sets `RUNNING` instead, runs, finishes |
//! | caller | `RUNNING` | queues, in one step with seeing it; looks again when woken |
//! | finisher | | sets `COMPLETE` or `POISONED` instead and takes all waiters, in one step; wakes them |
//! | mere waiter | neither `COMPLETE` nor `POISONED` | queues as above |
//!
//! The closure is user code: it runs with preemption on, may park, may panic. A guard does the
//! finishing, also after a panic.
//!
//! Invariants:
//! 1. The thread that set `RUNNING` clears it, and no other does. So closures do not overlap.
//! 2. `COMPLETE` stays. So no closure runs after one that has returned.
//! 3. A thread queues only by replacing a word that still shows the state whose end it waits for,
//!    and every change of the flags that ends such a state takes the whole queue. So no thread is
//!    left behind.
//!
//! Orderings: finishing is a Release. Seeing `COMPLETE` is an Acquire, and so is setting `RUNNING`:
//! a closure sees what an earlier one did before it panicked.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::atomic::Ordering::{Acquire, Relaxed};
use crate::atomic::{AtomicUsize, const_fn};
use crate::engine::facade::mark;
use crate::sys::perturb;
use crate::wait::queue::{Position, State, WaitQueue, Waited};
use crate::wait::{Locator, WaitKind, WaitReason, raise, shielded};

const RUNNING: usize = WaitQueue::flag(0);
const COMPLETE: usize = WaitQueue::flag(1);
const POISONED: usize = WaitQueue::flag(2);

/// One-time initialization: of all closures passed to a `Once`, exactly one runs to its end.
///
/// The first thread to call [`call_once`](Once::call_once) runs its closure; others wait for it and
/// do not run theirs. It works as [`std::sync::Once`] does and blocks only the green thread. Use
/// [`OnceLock`](super::OnceLock) where the closure makes a value.
///
/// # Examples
///
/// ```
/// use greenthread::sync::Once;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static START: Once = Once::new();
/// static STARTED: AtomicU32 = AtomicU32::new(0);
///
/// greenthread::scope(|scope| {
///     for _ in 0..10 {
///         scope.spawn(|| START.call_once(|| { STARTED.fetch_add(1, Relaxed); }));
///     }
/// });
/// assert_eq!(STARTED.load(Relaxed), 1);
/// ```
#[repr(C)]
pub struct Once {
    queue: WaitQueue,
    /// For reports: the mark of the thread that runs a closure, if `RUNNING` is set.
    runner: AtomicUsize,
}

/// For reports.
static ONCE: WaitKind = WaitKind::inside("once").with(HOLDER);
/// Of a value that a call makes (`dataflow`): frames end this wait.
static VALUE: WaitKind = WaitKind::inside("value").with(HOLDER).unwinds();
const HOLDER: Locator = Locator::Holder {
    at: offset_of!(Once, runner),
    flags_at: offset_of!(Once, queue),
    flags: RUNNING,
};

// Poisoning reports that a closure panicked.
impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// The state of a [`Once`], passed to the closure of [`Once::call_once_force`].
///
/// # Examples
///
/// ```
/// use greenthread::sync::{Once, OnceState};
///
/// fn initialize(state: &OnceState) {
///     assert!(!state.is_poisoned());
/// }
///
/// Once::new().call_once_force(initialize);
/// ```
// Whether it is poisoned. The marker makes the state `!Sync`, as std's is.
pub struct OnceState(bool, PhantomData<Cell<()>>);

impl Once {
    const_fn! {
        /// Creates a `Once` whose closure has not run yet.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::sync::Once;
        ///
        /// static START: Once = Once::new();
        /// assert!(!START.is_completed());
        /// ```
        #[inline]
        #[must_use]
        #[allow(clippy::new_without_default, reason = "std's has no Default")]
        pub const fn new() -> Once {
            Once {
                queue: WaitQueue::new(0),
                runner: AtomicUsize::new(0),
            }
        }
    }

    /// Runs `f` if no closure has run yet; otherwise waits until the running one has returned.
    ///
    /// When the call returns, one closure has returned, and everything that it did is visible to
    /// the caller. A closure that calls `call_once` on the same `Once` waits for ever.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics, which poisons the `Once`. Later calls of `call_once` then panic too,
    /// until [`call_once_force`](Once::call_once_force) succeeds.
    ///
    /// # Examples
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
        self.run(false, |_| f());
    }

    /// Runs `f` as [`call_once`](Once::call_once) does, and also if an earlier closure panicked.
    ///
    /// The [`OnceState`] tells `f` whether the closure before it panicked.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    ///
    /// let result = greenthread::spawn(|| ONCE.call_once(|| panic!("on purpose"))).join();
    /// assert!(result.is_err());
    ///
    /// ONCE.call_once_force(|state| assert!(state.is_poisoned()));
    /// ONCE.call_once(|| unreachable!("a closure has returned already"));
    /// ```
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        self.run(true, f);
    }

    #[inline]
    #[track_caller]
    fn run(&self, force: bool, f: impl FnOnce(&OnceState)) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(force, &mut |state| {
                if let Some(f) = f.take() {
                    f(state);
                }
            });
        }
    }

    /// Returns `true` if a closure has returned.
    ///
    /// Everything that the closure did is then visible to the caller.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// let once = Once::new();
    /// assert!(!once.is_completed());
    /// once.call_once(|| assert!(!once.is_completed()));
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    pub fn is_completed(&self) -> bool {
        perturb::point("once: looking");
        // Acquire: pairs with the Release in `Running::drop`.
        self.queue.state(Acquire).has(COMPLETE)
    }

    /// Blocks the current thread until a closure has returned.
    ///
    /// The call also waits for a closure that has not begun yet.
    ///
    /// # Panics
    ///
    /// Panics if a closure has panicked, or panics while the call waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static READY: Once = Once::new();
    ///
    /// let waiter = greenthread::spawn(|| READY.wait());
    /// READY.call_once(|| println!("initialized"));
    /// waiter.join().unwrap();
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.wait_while(&ONCE, |state| !state.has(COMPLETE | POISONED));
        if !self.is_completed() {
            poisoned();
        }
    }

    /// Blocks the current thread until a closure has returned, even if others panic before it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static READY: Once = Once::new();
    ///
    /// let waiter = greenthread::spawn(|| READY.wait_force());
    /// let result = greenthread::spawn(|| READY.call_once(|| panic!("on purpose"))).join();
    /// assert!(result.is_err());
    /// READY.call_once_force(|_| ());
    /// waiter.join().unwrap();
    /// ```
    pub fn wait_force(&self) {
        self.wait_while(&ONCE, |state| !state.has(COMPLETE));
    }

    /// [`Once::wait_force`], but frames end the wait.
    pub(crate) fn wait_for_value(&self) {
        self.wait_while(&VALUE, |state| !state.has(COMPLETE));
    }

    /// Blocks as long as `unfinished` is true of the state.
    fn wait_while(&self, kind: &'static WaitKind, unfinished: impl Fn(State) -> bool) {
        // Acquire: pairs with the Release in `Running::drop`.
        while unfinished(self.queue.state(Acquire)) {
            let waits = |state| unfinished(state).then_some(state);
            let reason = WaitReason::new(kind, self);
            if self.queue.wait(reason, Position::Back, 0, None, waits) == Waited::TimedOut {
                raise(None);
            }
        }
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: &mut dyn FnMut(&OnceState)) {
        loop {
            self.wait_while(&ONCE, |state| state.has(RUNNING));
            let state = self.queue.state(Acquire);
            if state.has(COMPLETE) {
                return;
            }
            let was_poisoned = state.has(POISONED);
            if was_poisoned && !force {
                poisoned();
            }
            let running = state.without(POISONED).with(RUNNING);
            // Acquire: pairs with the Release in `Running::drop` that left the poison.
            if !state.has(RUNNING) && self.queue.change(state, running, Acquire).is_ok() {
                self.runner.store(mark(), Relaxed);
                let mut running = Running {
                    once: self,
                    leaves: POISONED,
                };
                let state = OnceState(was_poisoned, PhantomData);
                // What unwinds here stays poisoned for ever, so no frame of the first caller ends it.
                shielded(|| f(&state));
                running.leaves = COMPLETE;
                return;
            }
        }
    }
}

/// The right to run a closure. When it is dropped, also by a panic, all waiting threads are woken.
struct Running<'a> {
    once: &'a Once,
    leaves: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.once.runner.store(0, Relaxed);
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

impl OnceState {
    /// Returns `true` if the closure that ran before this one panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::Once;
    ///
    /// static ONCE: Once = Once::new();
    /// ONCE.call_once_force(|state| assert!(!state.is_poisoned()));
    ///
    /// static BROKEN: Once = Once::new();
    /// let _result = greenthread::spawn(|| BROKEN.call_once(|| panic!("on purpose"))).join();
    /// BROKEN.call_once_force(|state| assert!(state.is_poisoned()));
    /// ```
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState")
            .field("poisoned", &self.is_poisoned())
            .finish()
    }
}
