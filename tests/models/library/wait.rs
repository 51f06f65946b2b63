//! Stands in for the library's `wait`: its own protocol files, and a waiter for kernel threads.

use loom::{
    cell::UnsafeCell,
    thread::{self, Thread},
};
use std::thread::panicking;

use crate::{atomic::Ordering::Relaxed, sched::Green, sys::clock};

#[path = "../../../src/wait/claim.rs"]
pub(crate) mod claim;
#[path = "../../../src/wait/list.rs"]
pub(crate) mod list;
#[path = "../../../src/wait/queue.rs"]
pub(crate) mod queue;
#[path = "../../../src/wait/ticket.rs"]
pub(crate) mod ticket;

pub(crate) use self::ticket::Outcome;
use self::ticket::{By, Commit, Found, Ticket};

/// The library's waiter, as a kernel thread uses it. The thread that makes it waits.
///
/// It must be a thread that the model spawned, and may block on nothing else: a late wake-up, as
/// from a futex, would break the checker's own locks and joins.
pub(crate) struct Waiter {
    ticket: Ticket,
    thread: Thread,
    /// Read by who wakes before the notification, written when the waiter goes. So a waker that
    /// looks at it when it may be gone is a race.
    alive: UnsafeCell<()>,
}

impl Waiter {
    pub(crate) fn new() -> Waiter {
        Waiter {
            ticket: Ticket::new(),
            thread: thread::current(),
            alive: UnsafeCell::new(()),
        }
    }

    /// With a deadline of 0, time is up as soon as the thread runs again; the checker lets others
    /// run before, or not. With another they do, until they wait.
    pub(crate) fn wait(&self, deadline: Option<u64>) -> Outcome {
        if self.ticket.consume() {
            return Outcome::Notified;
        }
        match self.ticket.commit(By::Kernel) {
            Commit::Notified => return Outcome::Notified,
            Commit::Expired => return Outcome::Expired,
            Commit::Parked => {}
        }
        if let Some(deadline) = deadline.filter(|&deadline| deadline != clock::NEVER) {
            if deadline != 0 {
                thread::yield_now();
            }
            let _ = self.ticket.expire();
        }
        while self.ticket.as_futex().load(Relaxed) == Ticket::ASLEEP {
            thread::park();
        }
        self.ticket.resumed()
    }

    /// # Safety
    /// The same as for `wake_at`.
    pub(crate) unsafe fn notify_at(waiter: *const Waiter) -> Option<Green> {
        // SAFETY: the caller's promise.
        unsafe { Waiter::wake_at(waiter) };
        None
    }

    /// # Safety
    /// The waiter is alive until it is notified.
    pub(crate) unsafe fn wake_at(waiter: *const Waiter) {
        // SAFETY: alive until `notify`, which is the last of this.
        let (thread, found) = unsafe {
            (*waiter).alive.with(|_| ());
            ((*waiter).thread.clone(), (*waiter).ticket.notify())
        };
        match found {
            Found::Nobody => {}
            Found::Kernel => thread.unpark(),
            Found::Green => unreachable!("kernel threads only"),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // A model that failed has no threads any more.
        if !panicking() {
            self.alive.with_mut(|_| ());
        }
    }
}
