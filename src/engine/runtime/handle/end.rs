//! The end of a thread: how `join`, a join with a deadline, and a future hear of it.
//!
//! The thread says it once, with [`End::come`], when the destructors of its thread-locals have run.
//! A joiner waits for the token of a [`Waiter`]; a future that awaits the thread first leaves a
//! [`Waker`], and then looks whether the token is there.
//!
//! # The waker
//!
//! A waker is foreign code: it may block, panic, use thread-locals, and ask for the current thread.
//! So the ending thread calls it while it is still a whole thread, with preemption on and its
//! handle in place. But it calls the waker after it has said that it ended; otherwise the future
//! could look too early and never be woken again. So its thread-locals have been destroyed by then.
//! The thread-locals that the waker uses are made anew or, where Rust remembers the destruction,
//! are not available (`try_with` fails, as in any destructor of a thread-local; executors are ready
//! for that, since wakers are called there too). The next thread on this block must not find
//! thread-locals that the waker has made anew: so the ending thread runs its destructors again.
//!
//! The other order, the waker first and then the destructors, would have the future either look too
//! early or block its executor until another thread's destructors are done.
//!
//! # Invariants
//!
//! 1. One thread at a time waits or polls: the owner of the handle. The token, once there, stays
//!    until it is waited for.
//! 2. A registered waker is called, or taken back, or its future sees the end.
//! 3. A thread that is not awaited pays a plain load for all this.
//!
//! # Memory orderings
//!
//! ```text
//!   future                                        ending thread
//!   make `waker`, register in it                  wake `token` (read-modify-write, AcqRel)
//!   look at `token` (read-modify-write, AcqRel)   `waker` made? take the registered one, call it
//! ```
//!
//! Both change one word, so one change comes first in its order. If it is the future's, the thread's
//! change acquires what the future's released (any change between them continues its release
//! sequence), and the thread finds the waker made and registered. If it is the thread's, the future
//! sees the token. Relaxed would do for the thread's load of `waker`, to see that it was made; the
//! load is an Acquire (in `OnceLock`) at no cost. Between a registration that is under way and the
//! thread's taking, `AtomicWaker` decides: the one that comes second calls the newer waker.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Waker;

use atomic_waker::AtomicWaker;

use crate::engine::sched::park::{Outcome, Waiter};
use crate::engine::sys::perturb;
use crate::engine::wait::{Facts, Locator, WaitKind, WaitReason};

pub(crate) struct End {
    token: Waiter,
    /// Made by the first future that polls. Boxed: few threads are awaited.
    waker: OnceLock<Box<AtomicWaker>>,
}

// A waker whose code panics leaves itself out, and nothing half done.
impl UnwindSafe for End {}
impl RefUnwindSafe for End {}

/// For reports: a joiner waits.
static JOIN: WaitKind =
    WaitKind::inside("end of a thread", look).with(Locator::target(super::Shared::END));

fn look(end: usize, facts: &mut Facts) {
    facts.target = end.checked_sub(super::Shared::END);
}

impl End {
    pub(crate) const fn new() -> End {
        End {
            token: Waiter::new(),
            waker: OnceLock::new(),
        }
    }

    /// Says, on the ending thread, that it has ended. Returns whether it has called a waker, which
    /// may have made thread-locals.
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

    /// Waits for the end, until `deadline` at most (monotonic nanoseconds). Returns whether it has
    /// come; the caller must then not wait for it again.
    // Inlined always: of a thread that goes on, the processor foresees no return.
    #[inline(always)]
    pub(crate) fn wait(&self, deadline: Option<u64>) -> bool {
        self.token
            .wait_for_good(WaitReason::new(&JOIN, self), deadline)
            == Outcome::Notified
    }

    /// Returns whether the end has come. If not, `waker` is called when it comes, instead of any
    /// given before.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        self.waker.get_or_init(Box::default).register(waker);
        perturb::point("end: registered");
        let ended = self.token.state.is_notified();
        if ended {
            // The thread may have looked for a waker already, and a handle to it would keep this
            // waker, and its task, alive.
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
        // The hook has reported the panic. Dropping the payload could panic again.
        core::mem::forget(payload);
    }
}
