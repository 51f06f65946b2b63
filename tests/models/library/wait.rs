//! Stands in for the library's `wait`: its own protocol files, and a waiter.

use std::{
    sync::{Arc, Mutex},
    thread::panicking,
};

use loom::{
    cell::UnsafeCell,
    thread::{self, Thread},
};

use crate::atomic::Ordering::Relaxed;
use crate::sched;
use crate::sched::Green;
use crate::sched::switch::Action;
use crate::sys::clock;

#[path = "../../../src/engine/wait/queue.rs"]
pub(crate) mod queue;
#[path = "../../../src/engine/wait/side.rs"]
pub(crate) mod side;

pub(crate) use crate::engine::inspect::notes::{Facts, Locator, WaitKind, WaitReason};
pub(crate) use crate::sched::park::Outcome;

/// There are no frames: nothing is adopted.
pub(crate) struct Adopted {
    pub(crate) thread: crate::atomic::AtomicPtr<crate::sched::park::Interrupts>,
}

impl Adopted {
    pub(crate) fn new() -> Adopted {
        Adopted {
            thread: crate::atomic::AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    pub(crate) fn adopt(&self) {}

    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        f()
    }
}

pub(crate) fn shielded<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// There are no frames.
pub(crate) fn raise(_: Option<u64>) {}

use crate::sched::park::{Found, ParkState};

static SOMETHING: WaitKind = WaitKind::inside("something");

/// What models' threads wait for; no report asks.
pub(crate) fn wait_reason() -> WaitReason {
    WaitReason::only(&SOMETHING)
}

/// For tables.
pub(crate) fn something() -> &'static WaitKind {
    &SOMETHING
}

/// The library's waiter, but kernel threads wait in the checker instead of on a futex.
///
/// They must be threads that the model spawned, and may block on nothing else: a late wake-up, as
/// from a futex, would break the checker's own locks and joins.
pub(crate) struct Waiter {
    state: ParkState,
    /// Who waits, or did last. It outlives the waiter, as the name of a futex does.
    who: Arc<Mutex<Who>>,
    /// Read by who wakes before the notification, written when the waiter goes. So a waker that
    /// looks at it when it may be gone is a race.
    alive: UnsafeCell<()>,
}

impl Default for Waiter {
    fn default() -> Waiter {
        Waiter::new()
    }
}

#[derive(Clone)]
enum Who {
    Nobody,
    Green(&'static Green),
    Kernel(Thread),
}

impl Waiter {
    pub(crate) fn new() -> Waiter {
        Waiter {
            state: ParkState::new(),
            who: Arc::new(Mutex::new(Who::Nobody)),
            alive: UnsafeCell::new(()),
        }
    }

    /// With a deadline of 0, time is up as soon as the thread runs again; the checker lets others
    /// run before, or not. With another they do, until they wait.
    pub(crate) fn wait(&self, _: WaitReason, deadline: Option<u64>) -> Outcome {
        if self.state.consume() {
            return Outcome::Notified;
        }
        self.go_on(deadline)
    }

    /// [`Waiter::wait`], but what has come is not taken back first.
    pub(crate) fn go_on(&self, deadline: Option<u64>) -> Outcome {
        if let Some(entered) = sched::enter() {
            assert!(deadline.is_none(), "a green thread has no timer here");
            *self.who.lock().unwrap() = Who::Green(entered.green);
            entered.suspend(Action::Park(self));
            return self.state.resumed();
        }
        *self.who.lock().unwrap() = Who::Kernel(thread::current());
        if !self.state.commit(ParkState::ASLEEP) {
            return self.state.resumed();
        }
        if let Some(deadline) = deadline.filter(|&deadline| deadline != clock::NEVER) {
            if deadline != 0 {
                thread::yield_now();
            }
            let _ = self.state.expire();
        }
        while self.state.as_futex().load(Relaxed) == ParkState::ASLEEP {
            thread::park();
        }
        self.state.resumed()
    }

    /// A signal interrupts it where its time would be up.
    pub(crate) fn block(&self, reason: WaitReason, deadline: Option<u64>) -> Option<Outcome> {
        let outcome = self.wait(reason, deadline);
        let is_interrupted = outcome == Outcome::Expired && deadline == Some(clock::SIGNAL);
        (!is_interrupted).then_some(outcome)
    }

    /// The run loop's half of a green thread's wait. False: it need not wait.
    pub(crate) fn commit(&self) -> bool {
        self.state.commit(ParkState::PARKED)
    }

    /// # Safety
    /// The waiter is alive until it is notified.
    pub(crate) unsafe fn wake_at(waiter: *const Waiter) {
        // SAFETY: the caller's promise.
        if let Some(green) = unsafe { Waiter::notify_at(waiter) } {
            sched::ready(green);
        }
    }

    /// # Safety
    /// The same as for `wake_at`.
    pub(crate) unsafe fn notify_at(waiter: *const Waiter) -> Option<&'static Green> {
        // SAFETY: alive until `notify`, which is the last of this.
        let (who, found) = unsafe {
            (*waiter).alive.with(|_| ());
            ((*waiter).who.clone(), (*waiter).state.notify())
        };
        let who = who.lock().unwrap().clone();
        match (found, who) {
            (Found::Nobody, _) => {}
            (Found::Green, Who::Green(green)) => return Some(green),
            (Found::Kernel, Who::Kernel(thread)) => thread.unpark(),
            _ => panic!("the park state and the waiter differ"),
        }
        None
    }
}

impl Waiter {
    /// # Safety
    /// It is the address of a waiter, whose thread is pinned.
    pub(crate) unsafe fn expire_at(waiter: *const impl Sized) -> Option<&'static Green> {
        // SAFETY: the caller's promise.
        let waiter = unsafe { &*waiter.cast::<Waiter>() };
        let who = waiter.who.clone();
        if waiter.state.expire() == Found::Kernel
            && let Who::Kernel(thread) = &*who.lock().unwrap()
        {
            thread.unpark();
        }
        None
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
