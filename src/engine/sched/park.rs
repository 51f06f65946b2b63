//! How a thread waits, and how another one wakes it: [`Waiter::wait`] and [`Waiter::wake`].
//!
//! Every primitive that blocks is built on these two. They work alike for green threads, which leave
//! their stack, and for kernel threads, which wait on the ticket as on a futex. The race between a
//! wait, its wakers and its timer is the ticket's (`green::ticket`).

use super::handed::ready_from_anywhere;
use super::{ready, timers};
use crate::engine::atomic::Ordering;
use crate::engine::green::Green;
use crate::engine::green::context::Action;
use crate::engine::green::current;
use crate::engine::green::ticket::{By, Commit, Outcome, Ticket};
use crate::engine::green::waiter::{Notified, Parking, Waiter};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::inspect::reason::WaitReason;
use crate::engine::probe::{self, Kernel};
use crate::engine::sched::enter::{Entered, enter};
use crate::engine::sys::clock;
use crate::engine::sys::futex::{self, Interrupted};
use crate::engine::sys::{perturb, sanitizer};

impl Waiter {
    /// Blocks the calling thread until [`Waiter::wake`], or until `deadline` (monotonic
    /// nanoseconds). Reports say that it waits for what `about` names.
    pub(crate) fn wait(&self, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        if self.ticket.consume() {
            return Outcome::Notified;
        }
        perturb::point("wait: no token");
        let deadline = deadline.filter(|&d| d != clock::NEVER);
        match enter() {
            Some(entered) => self.wait_inside(entered, reason, deadline),
            None => self.wait_on_kernel_thread(reason, deadline),
        }
    }

    /// [`Waiter::wait`] for a token that stays once it is there: it is not waited for again.
    #[inline(always)]
    pub(crate) fn wait_for_good(&self, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        if self.ticket.is_over() {
            return Outcome::Notified;
        }
        perturb::point("wait: no token");
        let deadline = deadline.filter(|&d| d != clock::NEVER);
        let Some(entered) = enter() else {
            return self.wait_on_kernel_thread(reason, deadline);
        };
        self.leave_stack(entered, reason, deadline);
        match self.ticket.is_over() {
            true => Outcome::Notified,
            false => self.ticket.resumed(),
        }
    }

    /// [`Waiter::wait`] by a green thread that has entered the runtime to name its waker.
    // Inlined always: otherwise the compiler inlines it or not depending on the other functions
    // that there are, and without it a wake-up costs a seventh more.
    #[inline(always)]
    pub(crate) fn wait_inside(
        &self,
        entered: Entered,
        reason: WaitReason,
        deadline: Option<u64>,
    ) -> Outcome {
        self.leave_stack(entered, reason, deadline);
        self.ticket.resumed()
    }

    /// Parks the calling green thread until it is resumed.
    #[inline(always)]
    fn leave_stack(&self, entered: Entered, reason: WaitReason, deadline: Option<u64>) {
        let green = entered.green();
        self.expect(green);
        let parking = Parking {
            waiter: self,
            deadline: deadline.unwrap_or(clock::NEVER),
            reason,
        };
        green.expect(&parking);
        perturb::point("wait: leaving");
        entered.suspend(Action::Park);
        sanitizer::observe(green);
        if deadline.is_some() {
            timers::disarm(green);
        }
        // Not before: a timer that fires late reads the park.
        green.goes_on();
    }

    fn wait_on_kernel_thread(&self, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        probe::kernel(None, Kernel::Waits);
        loop {
            if let Some(outcome) = self.block(reason, deadline) {
                probe::kernel(None, Kernel::GoesOn);
                return outcome;
            }
        }
    }

    /// [`Waiter::wait`], but the kernel thread is blocked. `None`: a signal's handler has run on it.
    pub(crate) fn block(&self, reason: WaitReason, deadline: Option<u64>) -> Option<Outcome> {
        match self.ticket.commit(By::Kernel) {
            Commit::Notified => return Some(Outcome::Notified),
            Commit::Expired => return Some(Outcome::Expired),
            Commit::Parked => {}
        }
        let parking = Parking {
            waiter: self,
            deadline: deadline.unwrap_or(clock::NEVER),
            reason,
        };
        let interrupted = match current::green() {
            None => KernelThread::while_waiting(&parking, || self.sleep(deadline)),
            Some(green) => {
                green.expect_on_stack(&parking);
                let interrupted = self.sleep(deadline);
                green.expect_on_stack(core::ptr::null());
                interrupted
            }
        };
        match self.ticket.resumed() {
            Outcome::Expired if interrupted => None,
            outcome => Some(outcome),
        }
    }

    /// Blocks the kernel thread on the ticket. Returns whether a signal's handler has run on it.
    fn sleep(&self, deadline: Option<u64>) -> bool {
        let word = self.ticket.as_futex();
        let mut interrupted = false;
        while word.load(Ordering::Relaxed) == Ticket::ASLEEP {
            interrupted = futex::try_wait(word, Ticket::ASLEEP, deadline) == Err(Interrupted);
            if interrupted || deadline.is_some_and(|d| clock::now() >= d) {
                // We are the waiter: nobody is to be resumed.
                let _ = self.ticket.expire();
            }
        }
        interrupted
    }

    /// Ends the wait, or the next wait if nobody waits now.
    #[inline]
    pub(crate) fn wake(&self) {
        // SAFETY: it is alive.
        unsafe { Waiter::wake_at(self) }
    }

    /// [`Waiter::wake`] for a waiter that may be gone as soon as its thread goes on.
    ///
    /// # Safety
    /// It is alive at least until it is notified.
    #[inline]
    pub(crate) unsafe fn wake_at(waiter: *const Waiter) {
        // SAFETY: the caller's promise.
        if let Some(green) = unsafe { Waiter::notify_at(waiter) } {
            ready(green);
        }
    }

    /// [`Waiter::wake_at`] for a caller that may be in a signal handler.
    ///
    /// # Safety
    /// As [`Waiter::wake_at`].
    pub(crate) unsafe fn wake_from_anywhere(waiter: *const Waiter) {
        // SAFETY: the caller's promise.
        if let Some(green) = unsafe { Waiter::notify_at(waiter) } {
            ready_from_anywhere(green);
        }
    }

    /// Like [`Waiter::wake_at`], but the caller has to make a green thread that waits ready.
    ///
    /// # Safety
    /// It is alive at least until it is notified.
    #[inline]
    #[must_use = "the thread waits for ever if it is not made ready"]
    pub(crate) unsafe fn notify_at(waiter: *const Waiter) -> Option<&'static Green> {
        // SAFETY: the caller's promise.
        match unsafe { Waiter::notify(waiter) } {
            Notified::Nobody => None,
            Notified::Green(green) => Some(green),
            Notified::Kernel(word) => {
                futex::wake(word, 1);
                None
            }
        }
    }
}
