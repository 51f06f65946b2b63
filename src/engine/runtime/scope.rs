//! A scope, which ends after its threads.
//!
//! Invariant: only [`Scope::run`] makes a [`Scope`], and it does not return before all threads that
//! were started with the scope have given up closure and result. So `'scope` outlives them.
//!
//! Ordering: a thread leaves with a Release after its packet has given up closure and result, and
//! the scope's last look at the count is an Acquire: no access of the threads to borrowed data
//! comes after that.

use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::sys::{die, perturb};
use crate::engine::wait::{WaitKind, WaitReason, Waiter};

/// Threads whose end is waited for together: those of a scope, and those of a runtime of kernel threads.
#[derive(Default)]
pub(super) struct Members {
    pub(super) running: AtomicUsize,
    panicked: AtomicBool,
    all_done: Waiter,
}

impl Members {
    /// Notes that a thread has given up all that it borrowed. `unhandled` says that it panicked and
    /// was not joined.
    pub(super) fn leave(&self, unhandled: bool) {
        if unhandled {
            self.panicked.store(true, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `wait`.
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            perturb::point("members: last");
            self.all_done.wake();
        }
    }

    /// Waits until no thread is left. One thread at a time may do so.
    pub(super) fn wait(&self, kind: &'static WaitKind) {
        // Acquire: pairs with the Release in `leave`.
        while self.running.load(Ordering::Acquire) != 0 {
            self.all_done.wait(WaitReason::new(kind, self), None);
        }
    }
}

/// A scope to spawn scoped threads in, created by [`scope`](crate::scope()).
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// /// Doubles the numbers, each in a thread of its own.
/// fn double<'scope>(s: &'scope thread::Scope<'scope, '_>, numbers: &'scope mut [i32]) {
///     for number in numbers {
///         s.spawn(|| *number *= 2);
///     }
/// }
///
/// let mut numbers = [1, 2, 3];
/// thread::scope(|s| double(s, &mut numbers));
/// assert_eq!(numbers, [2, 4, 6]);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    members: Arc<Members>,
    // The type is invariant in both lifetimes, as std's is.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// For reports.
static SCOPE: WaitKind = WaitKind::inside("end of a scope").with_numbers(|address, facts| {
    facts.word("threads", address + offset_of!(Members, running));
});

impl<'env> Scope<'_, 'env> {
    /// Calls `f` and waits for the threads that it starts in the scope. Also returns whether one
    /// panicked and was not joined.
    pub(crate) fn run<F, T>(f: F) -> (std::thread::Result<T>, bool)
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        let scope = Scope {
            members: Arc::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        // The threads must be waited for even if `f` panics.
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        scope.members.wait(&SCOPE);
        (result, scope.members.panicked.load(Ordering::Relaxed))
    }

    /// Counts a thread that is about to start.
    pub(super) fn enter(&self) -> Arc<Members> {
        if self.members.running.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
            die("too many threads in one scope");
        }
        self.members.clone()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = &self.members;
        f.debug_struct("Scope")
            .field("running_threads", &members.running.load(Ordering::Relaxed))
            .field("panicked", &members.panicked.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
