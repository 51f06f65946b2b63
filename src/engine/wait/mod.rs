//! Waiting: one ticket decides who wakes a waiter ([`ticket`]); a [`Waiter`] is a ticket and the
//! thread behind it.
//!
//! | file | idea |
//! |---|---|
//! | `mod`, `ticket` | a thread waits, another wakes it |
//! | `claim` | one wait in several queues is ended once, by one of them or by the clock |
//! | `list` | waits in a row, under their owner's lock |
//! | `queue` | a list, its lock and its owner's flags in one word |
//! | `turns` | two threads, one of which waits for the other (coroutines) |
//! | `dependents` | closures that wait for a value, in one word (dataflow) |
//!
//! Every primitive that blocks is built on [`Waiter::wait`] and [`Waiter::wake`]; it works alike
//! for green threads, which are suspended, and for kernel threads, which wait on the ticket itself
//! as a futex.
//!
//! Invariants:
//! 1. One thread waits on a waiter at a time; any number wake it.
//! 2. A notification that comes before the wait ends it at once: none is lost.
//! 3. A waiter may be gone as soon as it was notified: `wake` looks at nothing of it afterwards,
//!    unless it found a parked green thread, which cannot go on before it is made ready here.

pub(crate) mod claim;
pub(crate) mod dependents;
pub(crate) mod list;
pub(crate) mod queue;
pub(crate) mod ticket;
pub(crate) mod turns;

pub(crate) use self::ticket::Outcome;
use self::ticket::{By, Commit, Found, Ticket};
use crate::engine::atomic::{AtomicPtr, Ordering};
use crate::engine::context::Action;
use crate::engine::current::{self, Entered};
use crate::engine::green::Green;
use crate::engine::sched;
use crate::engine::sys::perturb;
use crate::engine::sys::{clock, futex};

/// A place where one thread waits to be woken.
pub(crate) struct Waiter {
    ticket: Ticket,
    /// The green thread that is parked. Published by the ticket.
    green: AtomicPtr<Green>,
}

impl Waiter {
    pub(crate) const fn new() -> Waiter {
        Waiter {
            ticket: Ticket::new(),
            green: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Blocks the calling thread until [`Waiter::wake`], or until `deadline` (monotonic
    /// nanoseconds).
    pub(crate) fn wait(&self, deadline: Option<u64>) -> Outcome {
        if self.ticket.consume() {
            return Outcome::Notified;
        }
        perturb::point("wait: no token");
        let deadline = deadline.filter(|&d| d != clock::NEVER);
        match current::enter() {
            Some(entered) => self.wait_inside(entered, deadline),
            None => self.wait_on_kernel_thread(deadline),
        }
    }

    /// [`Waiter::wait`] by a green thread that has entered the runtime to tell who is to wake it.
    pub(crate) fn wait_inside(&self, entered: Entered, deadline: Option<u64>) -> Outcome {
        let green = entered.green();
        // Relaxed: published by the commit, which is a Release.
        self.green
            .store(core::ptr::from_ref(green).cast_mut(), Ordering::Relaxed);
        green.waiter.set(self);
        green.deadline.set(deadline.unwrap_or(clock::NEVER));
        perturb::point("wait: leaving");
        entered.suspend(Action::Park);
        if deadline.is_some() {
            sched::timers::disarm(green);
        }
        self.ticket.resumed()
    }

    /// For who would wait: whether the wait would end at once. Whoever wakes after a no sees what
    /// the caller did before it asked.
    pub(crate) fn is_notified(&self) -> bool {
        self.ticket.is_notified()
    }

    fn wait_on_kernel_thread(&self, deadline: Option<u64>) -> Outcome {
        match self.ticket.commit(By::Kernel) {
            Commit::Notified => return Outcome::Notified,
            Commit::Expired => return Outcome::Expired,
            Commit::Parked => {}
        }
        let word = self.ticket.as_futex();
        while word.load(Ordering::Relaxed) == Ticket::ASLEEP {
            futex::wait(word, Ticket::ASLEEP, deadline);
            if deadline.is_some_and(|d| clock::now() >= d) {
                // We are the waiter: nobody is to be resumed.
                let _ = self.ticket.expire();
            }
        }
        self.ticket.resumed()
    }

    /// Ends the wait, or the next one if nobody waits now.
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
            sched::ready(green);
        }
    }

    /// [`Waiter::wake_at`], but a green thread that waits is the caller's to make ready.
    ///
    /// # Safety
    /// It is alive at least until it is notified.
    #[inline]
    #[must_use = "the thread waits for ever if it is not made ready"]
    pub(crate) unsafe fn notify_at(waiter: *const Waiter) -> Option<&'static Green> {
        // SAFETY: alive until `notify`, which is all of this line.
        let (found, futex) = unsafe {
            let ticket = &(*waiter).ticket;
            let futex: *const _ = ticket.as_futex();
            (ticket.notify(), futex)
        };
        perturb::point("wake: notified");
        match found {
            Found::Nobody => None,
            // SAFETY: it was parked, so its thread waits for us, and the waiter is alive (invariant
            // 3). Relaxed: `notify` acquired what `commit` released.
            Found::Green => match unsafe { (*waiter).green.load(Ordering::Relaxed).as_ref() } {
                None => crate::engine::sys::die("a parked green thread has left no name"),
                green => green,
            },
            Found::Kernel => {
                futex::wake(futex, 1);
                None
            }
        }
    }

    /// The run loop's half of [`Waiter::wait`]: the green thread's context is saved. False: it need
    /// not wait.
    pub(crate) fn commit(&self) -> bool {
        match self.ticket.commit(By::Green) {
            Commit::Parked => true,
            // `commit` has taken the event; put it back for `resumed` to report.
            Commit::Notified => {
                perturb::point("commit: refused");
                let _ = self.ticket.notify();
                false
            }
            Commit::Expired => {
                let _ = self.ticket.expire();
                false
            }
        }
    }

    /// The timer's half: true if the green thread was parked and the caller must make it ready.
    pub(crate) fn expire(&self) -> bool {
        self.ticket.expire()
    }
}
