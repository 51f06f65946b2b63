//! What is known of the readiness of a registered descriptor in one direction, and who waits for it.
//!
//! The registration is edge-triggered: the kernel tells of a change once. So what it told is kept
//! here, a few flags beside the queue of those who wait:
//!
//! | flag | says | set by | cleared by |
//! |---|---|---|---|
//! | `MAYBE` | a call may find something: try | an event; whoever tried and left something behind | who is about to try |
//! | `DOUBT` | an end, an error or urgent data was announced: that a call found less than it asked for proves nothing | an event | nobody |
//! | `CLOSED` | calls fail from now on | `close` | nobody |
//!
//! Who reads: clear `MAYBE`; call; then
//!
//! | the call | what follows |
//! |---|---|
//! | would block | wait until `MAYBE` is set |
//! | emptied the descriptor (a stream gave less than asked, and no `DOUBT`) | nothing: the next one waits without a call, unless `MAYBE` is set |
//! | any other answer | set `MAYBE`, and wake who waits for it: there may be more |
//!
//! Invariants:
//! 1. *No event is lost.* `MAYBE` is cleared before the call. So an event that the call may have
//!    missed sets it after it was cleared, and the wait that follows ends, or does not begin: it
//!    publishes its place in the queue only while the flag is not set (`wait::queue`).
//! 2. Whoever cleared `MAYBE` has emptied the descriptor, or sets it again. So another thread that
//!    saw it cleared, and waits, is woken if something is left. What a short answer proves, it
//!    proves only if there is no `DOUBT` after it: behind the bytes may be the end. A `DOUBT` that
//!    comes later comes with `MAYBE`.
//! 3. A waiting thread makes a call before it gives up (`source`): events are collected now and
//!    then, and what is not announced may be there all the same.
//!
//! Orderings: Release where `MAYBE` is set and Acquire where it is cleared are partners: the call
//! comes after the change that the event tells of. The queue's lock does the rest.

use crate::engine::atomic::{
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::green::current;
use crate::engine::green::fifo::Fifo;
use crate::engine::sys::perturb;
use crate::engine::wait::Waiter;
use crate::engine::wait::queue::{Position, WaitQueue, Waited};

const MAYBE: usize = WaitQueue::flag(0);
const DOUBT: usize = WaitQueue::flag(1);
const CLOSED: usize = WaitQueue::flag(2);

/// One direction of a descriptor.
pub(crate) struct Readiness {
    queue: WaitQueue,
}

impl Readiness {
    const_fn! {
        pub(crate) const fn new() -> Readiness {
            Readiness {
                queue: WaitQueue::new(MAYBE),
            }
        }
    }

    /// The caller is about to try. False: it need not, there is nothing.
    pub(crate) fn begin(&self) -> bool {
        let state = self.queue.state(Relaxed);
        perturb::point("readiness: beginning");
        if state.has(MAYBE) {
            // Acquire: partner: Release in `announce`.
            self.queue.clear(MAYBE, Acquire);
        }
        state.has(MAYBE | DOUBT | CLOSED)
    }

    /// A call that `begin` came before had an answer. `emptied`: it says that nothing is left.
    pub(crate) fn answered(&self, emptied: bool) {
        perturb::point("readiness: answered");
        let state = self.queue.state(Relaxed);
        // What is announced later sets `MAYBE` too.
        if emptied && !state.has(DOUBT) {
            return;
        }
        // Release: partner: Acquire in `begin`.
        if state.has_waiters()
            || self
                .queue
                .change(state, state.with(MAYBE), Release)
                .is_err()
        {
            let mut ready = Fifo::new();
            let _off = current::preemption_off();
            self.announce(false, &mut ready);
            while let Some(green) = ready.pop() {
                crate::engine::sched::ready(green);
            }
        }
    }

    /// Blocks until a call may find something, or until `deadline`.
    pub(crate) fn wait(&self, deadline: Option<u64>) -> Waited {
        self.queue.wait(Position::Back, 0, deadline, |state| {
            (!state.has(MAYBE | CLOSED)).then_some(state)
        })
    }

    /// Where the first that waits lies, if there is one. It may be gone.
    pub(crate) fn first(&self) -> *const u8 {
        self.queue.first()
    }

    /// An event: a call may find something. Those who waited are put into `ready`. Preemption is
    /// off.
    pub(crate) fn announce(&self, doubt: bool, ready: &mut Fifo) {
        let news = if doubt { MAYBE | DOUBT } else { MAYBE };
        self.tell(news, ready);
    }

    fn tell(&self, news: usize, ready: &mut Fifo) {
        let state = self.queue.state(Relaxed);
        perturb::point("readiness: telling");
        // Release: partner: Acquire in `begin`.
        if !state.has_waiters() && self.queue.change(state, state.with(news), Release).is_ok() {
            return;
        }
        let mut locked = self.queue.lock();
        while let Some(claimed) = locked.pop(0) {
            // SAFETY: a claimed wait is alive until it is notified.
            if let Some(green) = unsafe { Waiter::notify_at(claimed.into_waiter()) } {
                ready.push(green);
            }
        }
        // Infallible: it is always `Some`.
        let _ = locked.release_if(|state| Some(state.with(news)));
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self, ready: &mut Fifo) {
        self.tell(MAYBE | DOUBT | CLOSED, ready);
    }

    /// As it was made; nobody waits.
    pub(crate) fn reset(&self) {
        self.queue.set(MAYBE, Relaxed);
        self.queue.clear(DOUBT | CLOSED, Relaxed);
    }
}
