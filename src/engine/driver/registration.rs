//! A descriptor is registered when a thread first waits for it: what is known of it from then on, and how it is
//! closed while others begin to wait.
//!
//! # Readiness
//!
//! [`Readiness`] is what is known of one direction, and the threads that wait for it.
//! The registration is edge-triggered: the kernel tells of a change once. So its news are kept
//! here, as a few flags beside the queue of waiting threads:
//!
//! | flag | says | set by | cleared by |
//! |---|---|---|---|
//! | `MAYBE` | a call may find something: try | an event; a thread that left something | a thread about to try |
//! | `DOUBT` | an end, an error or urgent data was announced: a short answer proves nothing | an event | nobody |
//! | `CLOSED` | calls fail from now on | `close` | nobody |
//!
//! A thread that reads clears `MAYBE`, makes the call, and then acts on the answer:
//!
//! | the call | what follows |
//! |---|---|
//! | the call would block | wait until `MAYBE` is set |
//! | the call emptied the descriptor (a stream gave less than asked, and no `DOUBT`) | nothing: the next thread waits without a call, unless `MAYBE` is set |
//! | any other answer | set `MAYBE`, and wake the waiting threads: there may be more |
//!
//! Invariants:
//! 1. *No event is lost.* `MAYBE` is cleared before the call. So an event that the call may have
//!    missed sets the flag after that, and the wait that follows ends, or does not begin: a wait
//!    publishes its place in the queue only while the flag is not set (`wait::queue`).
//! 2. The thread that cleared `MAYBE` has emptied the descriptor, or sets the flag again. So
//!    another thread that saw the flag cleared, and waits, is woken if something is left. A short
//!    answer proves that the descriptor is empty only if there is no `DOUBT` after the call: behind
//!    the bytes may be the end. A `DOUBT` that comes later comes with `MAYBE`.
//! 3. A waiting thread makes a call before it gives up (`source`): events are collected now and
//!    then, and the descriptor may be ready although no event has announced it.
//!
//! Orderings: Release where `MAYBE` is set and Acquire where it is cleared are partners: the call
//! comes after the change that the event announces. The queue's lock orders everything else.
//!
//! # Registration
//!
//! A thread may close a descriptor while others begin to wait for it ([`Registration`]).
//! The record of its readiness is absent until a green thread first waits for the descriptor. Who closes it
//! says so and then ends the waits in the record; who waits has brought or found the record, and then asks
//! whether the descriptor is closed.
//!
//! Invariant: a thread that has cleared a flag of the record has seen the descriptor open *after* it saw the
//! record. So one who closes it later finds the record too. And as long as no flag was cleared, nobody waits. (A thread that asked first, and found the record only then, could have come too late for both:
//! the closer was there before the record, and the thread that brought the record has left since.)
//!
//! Orderings: the record and `closed` are SeqCst, each where it is stored and where it is loaded. Of two
//! threads, one that stores the record and loads `closed`, and one that stores `closed` and loads the record,
//! one sees what the other has stored.

use core::ptr;
use std::io;
use std::os::fd::RawFd;

use super::epoll::{INSTANCE, Record};
use crate::engine::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::engine::atomic::{AtomicBool, const_fn};
use crate::engine::sched;
use crate::engine::sched::Fifo;
use crate::engine::sched::current;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::perturb;
use crate::engine::sys::statics::AtomicStatic;
use crate::engine::wait::WaitReason;
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

    /// Prepares a call. False: the caller need not make it, since it would find nothing.
    pub(crate) fn begin(&self) -> bool {
        let state = self.queue.state(Relaxed);
        perturb::point("readiness: beginning");
        if state.has(MAYBE) {
            // Acquire: partner: Release in `announce`.
            self.queue.clear(MAYBE, Acquire);
        }
        state.has(MAYBE | DOUBT | CLOSED)
    }

    /// Reports the answer of a call that `begin` prepared. `emptied`: the answer says that nothing
    /// is left.
    pub(crate) fn answered(&self, emptied: bool) {
        perturb::point("readiness: answered");
        let state = self.queue.state(Relaxed);
        // A later announcement sets `MAYBE` too.
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
            make_ready(ready);
        }
    }

    /// Blocks until a call may find something, or until `deadline`.
    pub(crate) fn wait(&self, reason: WaitReason, deadline: Option<u64>) -> Waited {
        self.queue
            .wait(reason, Position::Back, 0, deadline, |state| {
                (!state.has(MAYBE | CLOSED)).then_some(state)
            })
    }

    /// The address of the first waiting thread's node, if there is one. The node may be gone.
    pub(crate) fn first(&self) -> *const u8 {
        self.queue.first()
    }

    /// Announces an event: a call may find something. The waiting threads go into `ready`.
    /// Preemption is off.
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
            claimed.notify(ready);
        }
        locked.release(|state| state.with(news));
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self, ready: &mut Fifo) {
        self.tell(MAYBE | DOUBT | CLOSED, ready);
    }

    /// Restores the initial state; no thread waits.
    pub(crate) fn reset(&self) {
        self.queue.set(MAYBE, Relaxed);
        self.queue.clear(DOUBT | CLOSED, Relaxed);
    }
}

/// Makes all these threads ready.
pub(crate) fn make_ready(mut ready: Fifo) {
    while let Some(green) = ready.pop() {
        sched::ready(green);
    }
}

pub(crate) struct Registration {
    record: AtomicStatic<Record>,
    registering: Lock<()>,
    closed: AtomicBool,
}

/// The descriptor is closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl Registration {
    const_fn! {
        pub(crate) const fn new() -> Registration {
            Registration {
                record: AtomicStatic::none(),
                registering: Lock::new(()),
                closed: AtomicBool::new(false),
            }
        }
    }

    /// The record. `None`: there is none yet; or this is a forked child, where no thread announces events, and a
    /// thread may have held the locks of records at the fork.
    pub(crate) fn record(&self) -> Option<&'static Record> {
        if sched::fork::is_child() {
            return None;
        }
        // SeqCst: partner: the store in `register`.
        self.record.load(SeqCst)
    }

    /// What a thread asks before each call: the record, if there is one.
    pub(crate) fn look(&self) -> Result<Option<&'static Record>, Closed> {
        // In this order: see the header.
        let record = self.record();
        self.check_open()?;
        Ok(record)
    }

    /// Returns the record, which receives events from now on, the present state first.
    pub(crate) fn register(&self, fd: RawFd) -> io::Result<&'static Record> {
        if let Some(record) = self.record() {
            return Ok(record);
        }
        INSTANCE.start()?;
        let mine = Record::acquire();
        let registered = {
            let _off = current::preemption_off();
            let _registering = self.registering.lock();
            match self.record() {
                Some(record) => Ok(record),
                None => INSTANCE.add(fd, mine).map(|()| {
                    perturb::point("source: registered");
                    // SeqCst: partner: the load in `record`, by who closes the descriptor.
                    self.record.store(Some(mine), SeqCst);
                    mine
                }),
            }
        };
        if !registered
            .as_ref()
            .is_ok_and(|record| ptr::eq(*record, mine))
        {
            mine.release();
        }
        registered
    }

    /// The descriptor is closed. The caller ends the waits that are in the record, if there is one now.
    pub(crate) fn close(&self) {
        // SeqCst: partner: the load in `check_open`, by who has seen the record.
        self.closed.store(true, SeqCst);
    }

    pub(crate) fn check_open(&self) -> Result<(), Closed> {
        // SeqCst: partner: the store in `close`.
        match self.closed.load(SeqCst) {
            false => Ok(()),
            true => Err(Closed),
        }
    }
}
