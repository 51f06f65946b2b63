//! A place where one thread waits to be woken: a [`Ticket`], and the green thread behind it.
//!
//! A thread's record points at its [`Parking`], which lies on the thread's own stack and names the waiter,
//! the deadline, and for reports what the thread waits for. This file has the parts of a wait that the run
//! loop, a timer and a waker do; `sched::park` has the functions by which a thread waits and another
//! wakes it.
//!
//! Invariants:
//! 1. One thread waits on a waiter at a time; any number of threads wake it.
//! 2. A notification that comes before the wait ends it at once: none is lost.
//! 3. A waiter may be gone as soon as it was notified: a waker then looks at nothing of it, unless
//!    it found a parked green thread, which cannot go on before the waker makes it ready.

use super::Green;
use super::ticket::{By, Commit, Found, Ticket};
use crate::engine::atomic::{AtomicU32, Ordering};
use crate::engine::inspect::reason::WaitReason;
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::{clock, perturb};

/// A place where one thread waits to be woken.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    /// The parked green thread. The ticket publishes it.
    green: AtomicStatic<Green>,
}

/// A park under way. A thread's record points at it from before the thread leaves its stack until the
/// thread goes on; it lies on that stack, which is never unmapped, so a report can read it whenever.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Parking {
    /// Null: another thread of a pair has the turn, and nobody else knows of this one (`wait::side`).
    pub(crate) waiter: *const Waiter,
    /// `clock::NEVER`: there is none.
    pub(crate) deadline: u64,
    pub(crate) reason: WaitReason,
}

// SAFETY: it is read only; the waiter belongs to the thread that owns the parked one.
unsafe impl Sync for Parking {}

impl Parking {
    pub(crate) const WORDS: usize = size_of::<Parking>() / size_of::<usize>();

    /// # Safety
    /// The words were copied out of a park while it was one.
    pub(crate) unsafe fn from_words(words: [usize; Parking::WORDS]) -> Parking {
        // SAFETY: a park consists of words without gaps; the caller's promise.
        unsafe { core::mem::transmute(words) }
    }

    /// The park of threads that wait without a waiter.
    pub(crate) const fn without_waiter(reason: WaitReason) -> Parking {
        Parking {
            waiter: core::ptr::null(),
            deadline: clock::NEVER,
            reason,
        }
    }
}

/// The thread that a notification found waiting: the notifier has to let it go on.
#[must_use = "the thread waits for ever if nobody lets it go on"]
pub(crate) enum Notified {
    /// There is no thread, or it goes on by itself.
    Nobody,
    /// A parked green thread, which belongs to the notifier now.
    Green(&'static Green),
    /// A kernel thread that waits on this futex. Only the address counts: the waiter may be gone.
    Kernel(*const AtomicU32),
}

impl Waiter {
    /// Where the ticket lies, for reports.
    pub(crate) const TICKET: usize = core::mem::offset_of!(Waiter, ticket);

    pub(crate) const fn new() -> Waiter {
        Waiter {
            ticket: Ticket::new(),
            green: AtomicStatic::none(),
        }
    }

    /// Notes that `green`, the caller, is about to leave its stack and wait here.
    #[inline(always)]
    pub(crate) fn expect(&self, green: &'static Green) {
        // Relaxed: the commit, which is a Release, publishes it.
        self.green.store(Some(green), Ordering::Relaxed);
    }

    /// Whether a wait would end at once. After a no, the next waker sees the caller's earlier
    /// writes.
    pub(crate) fn is_notified(&self) -> bool {
        self.ticket.is_notified()
    }

    /// Ends the wait, or the next one if no thread waits now.
    ///
    /// # Safety
    /// The waiter is alive at least until it is notified.
    #[inline]
    pub(crate) unsafe fn notify(waiter: *const Waiter) -> Notified {
        // SAFETY: the waiter is alive until `notify`, the last access of this block to it.
        let (found, futex) = unsafe {
            let ticket = &(*waiter).ticket;
            let futex: *const _ = ticket.as_futex();
            (ticket.notify(), futex)
        };
        perturb::point("wake: notified");
        match found {
            Found::Nobody => Notified::Nobody,
            // SAFETY: the thread was parked, so it waits for us, and the waiter is alive (invariant
            // 3).
            // Relaxed: `notify` acquired what `commit` released.
            Found::Green => match unsafe { (*waiter).green.load(Ordering::Relaxed) } {
                None => crate::engine::sys::die("a parked green thread has left no name"),
                Some(green) => Notified::Green(green),
            },
            Found::Kernel => Notified::Kernel(futex),
        }
    }

    /// Commits the wait, for the run loop: the green thread's context is saved. False: it need not
    /// wait.
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

    /// Expires the wait, for the timer: true if the green thread was parked and the caller must
    /// make it ready.
    pub(crate) fn expire(&self) -> bool {
        self.ticket.expire()
    }
}
