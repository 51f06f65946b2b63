//! The place where one of two threads that take turns waits for its turn (`coroutine`).
//!
//! There are two ways to wait for a turn:
//!
//! - *Aside*: a green thread hands over to a green thread. Only its [`Side`] knows of it, and the
//!   thread that has the turn owns it. It has left its stack before the other goes on
//!   ([`Action::HandOver`]), so nothing races: there is no park state and no queue.
//! - *At its [`Waiter`]*: a thread hands over to a kernel thread, or is one, or its partner has not
//!   left its stack yet. The other goes on at once, while this one is still on its way.
//!
//! Invariant: only the thread that has the turn touches the sides; but any thread may wake a
//! [`Waiter`].

use crate::engine::atomic::{AtomicPtr, Cell, Ordering::SeqCst, fence};
use crate::engine::inspect::notes::WhenEnded;
use crate::engine::sched::park::{Interrupts, Outcome, Parking};
use crate::engine::sched::{self, Green, cancel, switch::Action};
use crate::engine::sys::{perturb, sanitizer};
use crate::engine::wait::{WaitKind, WaitReason, Waiter};

/// For reports: a coroutine, or the thread that resumes it, waits for the other.
static TURN: WaitKind = WaitKind::inside("turn of a coroutine").when_ended(WhenEnded::Leads);
/// The same of a thread that passes it on itself that a frame has ended.
static TOLD_TURN: WaitKind =
    WaitKind::inside("turn of a coroutine").when_ended(WhenEnded::PassesOn);

/// The place where one of the two waits for its turn.
#[derive(Default)]
pub(crate) struct Side {
    /// The green thread that waits aside.
    aside: Cell<Option<&'static Green>>,
    waiter: Waiter,
}

/// The thread that waits for its turn, or has it, beside the one that waits here.
fn other_of(lead: Lead) -> Option<&'static Interrupts> {
    // SAFETY: the turns live while one of the two waits, and records are never freed.
    unsafe { lead.as_ref()?.load(SeqCst).as_ref() }
}

/// What leads a canceller from the thread that waits to the other one; null: nothing.
pub(crate) type Lead = *const AtomicPtr<Interrupts>;

impl Side {
    /// Gives `other` its turn, and waits here for the next one. Between green threads of one
    /// cluster, the other thread goes on in the caller's place, at once and in its time slice.
    #[inline(always)]
    pub(crate) fn hand_over_to(&self, other: &Side, lead: Lead) {
        sanitizer::publish(other);
        let entered = sched::enter();
        match (entered, other.call()) {
            (Some(entered), Some(next)) => {
                perturb::point("turns: called");
                let green = entered.green;
                self.aside.set(Some(green));
                green.next.set(Some(next));
                let parking = Parking::without_waiter(WaitReason::new(&TURN, lead));
                green.expect(&parking);
                // A canceller finds the park, or this finds that one has come before.
                if green.interrupts().is_pending()
                    && let Some(led) = other_of(lead)
                {
                    led.set();
                }
                entered.suspend(Action::HandOver);
                sanitizer::observe(self);
                green.park_is_over();
            }
            (entered, next) => {
                drop(entered);
                self.wait_beside(next, lead);
            }
        }
    }

    /// Waits here, at the waiter, since the other thread may have the turn already.
    pub(crate) fn wait(&self, lead: Lead) {
        // A coroutine that is suspended is in nobody's frames.
        let kind = if lead.is_null() { &TURN } else { &TOLD_TURN };
        if self.waiter.wait(WaitReason::new(kind, lead), None) == Outcome::Expired {
            // SeqCst: the other thread, if it is not there yet, finds the reason; partner: the fence in `Adopted::run`.
            fence(SeqCst);
            cancel::interrupt_each(other_of(lead).into_iter());
            self.waiter.wait(WaitReason::new(&TURN, lead), None);
        }
        sanitizer::observe(self);
    }

    /// Waits at the waiter: `other` has gone on already, or goes on now.
    #[cold]
    #[inline(never)]
    fn wait_beside(&self, other: Option<&'static Green>, lead: Lead) {
        if let Some(green) = other {
            sched::ready(green);
        }
        self.wait(lead);
    }

    /// Gives this side its turn, and does not wait.
    pub(crate) fn wake(&self) {
        sanitizer::publish(self);
        if let Some(green) = self.call() {
            sched::ready(green);
        }
    }

    /// Calls the thread that waits here. If it is a green thread that has left its stack, the
    /// caller must make it ready.
    #[inline(always)]
    fn call(&self) -> Option<&'static Green> {
        match self.aside.take() {
            // SAFETY: the waiter is alive.
            None => unsafe { Waiter::notify_at(&self.waiter) },
            green => green,
        }
    }
}
