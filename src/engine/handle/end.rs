//! The end of a thread: how `join`, a join with a deadline, and a future hear of it.
//!
//! The thread says it once, with [`End::come`], when its thread-locals' destructors have run. Who
//! joins waits for the token of a [`Waiter`]; a future that awaits the thread leaves a
//! [`Waker`] first, and then looks whether the token is there.
//!
//! # The waker
//!
//! A waker is anybody's code: it may block, panic, use thread-locals, ask who the current thread
//! is. So the ending thread calls it while it is still a whole thread, with preemption on and its
//! handle in place. But after it has said that it ended, or the future could look too early and
//! hear no more; so its thread-locals have been destroyed by then. Those of the waker are made anew
//! or, where Rust remembers the destruction, cannot be had (`try_with` fails, as in any destructor
//! of a thread-local; executors are ready for that, since wakers are called there too). What it
//! made anew must not be found by the next thread on this block: the thread runs its destructors
//! again.
//!
//! The other order, the waker first and then the destructors, would have the future either look
//! too early or block its executor until somebody else's destructors are done.
//!
//! # Invariants
//!
//! 1. One thread at a time waits or polls: whoever owns the handle. The token, once there, stays
//!    until it is waited for.
//! 2. A waker that was registered is called, or taken back, or its future sees the end.
//! 3. A thread that nobody awaits pays a plain load for all this.
//!
//! # Memory orderings
//!
//! ```text
//!   future                                     ending thread
//!   make `waker`, register in it               wake `token`      (read-modify-write, AcqRel)
//!   look at `token` (read-modify-write, AcqRel) `waker` made? take what is registered, call it
//! ```
//!
//! Both change one word, so one comes first in its order. The future's: then the thread's change
//! acquires what the future's released (nobody else's comes between but continues its release
//! sequence), and finds the waker made and registered. The thread's: then the future sees the
//! token. For the thread's load of `waker` Relaxed would do to see that it was made; that it is an
//! Acquire (in `OnceLock`) costs nothing. Between a registration that is under way and the thread's
//! taking,
//! `AtomicWaker` decides: who comes second calls the newer waker.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Waker;

use atomic_waker::AtomicWaker;

use crate::engine::green::ticket::Outcome;
use crate::engine::green::waiter::Waiter;
use crate::engine::sys::perturb;

pub(crate) struct End {
    token: Waiter,
    /// Made by the first future that polls. Boxed: few threads are awaited.
    waker: OnceLock<Box<AtomicWaker>>,
}

// A waker whose code panics leaves itself out, and nothing half done.
impl UnwindSafe for End {}
impl RefUnwindSafe for End {}

impl End {
    pub(crate) const fn new() -> End {
        End {
            token: Waiter::new(),
            waker: OnceLock::new(),
        }
    }

    /// Said by the ending thread. True: it has called a waker, which may have made thread-locals.
    #[must_use = "true means that the destructors of thread-locals must run again"]
    pub(crate) fn come(&self) -> bool {
        self.token.wake();
        perturb::point("end: said");
        match self.waker.get() {
            None => false,
            Some(waker) => {
                call(waker);
                true
            }
        }
    }

    /// Waits for the end, until `deadline` at most (monotonic nanoseconds). True: it has come, and
    /// must not be asked for again.
    pub(crate) fn wait(&self, deadline: Option<u64>) -> bool {
        self.token.wait(deadline) == Outcome::Notified
    }

    /// Whether the end has come. If not, `waker` is called when it comes, instead of any given
    /// before.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        self.waker.get_or_init(Box::default).register(waker);
        perturb::point("end: registered");
        let ended = self.token.is_notified();
        if ended {
            // The thread may have looked before: nobody else would, and a handle to it would keep
            // the waker, and what that belongs to, alive.
            self.forget_waker();
        }
        ended
    }

    /// Takes back the waker, if one is left.
    pub(crate) fn forget_waker(&self) {
        if let Some(waker) = self.waker.get() {
            drop(waker.take());
        }
    }
}

#[cold]
fn call(waker: &AtomicWaker) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // The hook has told of the panic. Dropping what it left could panic again.
        core::mem::forget(payload);
    }
}
