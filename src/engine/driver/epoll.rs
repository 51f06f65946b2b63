//! The epoll driver: readiness. One epoll instance for the whole process; it has no owner thread.
//!
//! A descriptor is registered, edge-triggered and for both directions, when a call on it would
//! block for the first time. Its token is the address of its [`Record`], which is never freed.
//!
//! The scheduler decides which kernel thread collects events, and when (`sched::events`).
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
//! Invariants of readiness:
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
//! Invariant of registration: a thread that has cleared a flag of the record has seen the descriptor open *after* it saw the
//! record. So one who closes it later finds the record too. And as long as no flag was cleared, nobody waits. (A thread that asked first, and found the record only then, could have come too late for both:
//! the closer was there before the record, and the thread that brought the record has left since.)
//!
//! Orderings: the record and `closed` are SeqCst, each where it is stored and where it is loaded. Of two
//! threads, one that stores the record and loads `closed`, and one that stores `closed` and loads the record,
//! one sees what the other has stored.

use core::{cell::Cell, ptr};
use std::os::fd::{AsRawFd, RawFd};
use std::{io, sync::OnceLock};

use super::source::{Direction, Limit, Source, wait_in_kernel, would_block};
use super::watch;
use crate::engine::arch;
use crate::engine::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::engine::atomic::{AtomicBool, const_fn};
use crate::engine::sched::current::{self, blocking};
use crate::engine::sched::events::{self, BATCH, Collect};
use crate::engine::sched::{self, Fifo};
use crate::engine::sys::epoll::{self, BELL, Event};
use crate::engine::sys::shared::{AtomicStatic, Lock};
use crate::engine::sys::{clock, perturb};
use crate::engine::wait::WaitReason;
use crate::engine::wait::queue::{Position, WaitQueue, Waited};

const BOTH: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
const READ: i32 =
    libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
const WRITE: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
/// Events after which a short answer does not prove that the descriptor is empty.
const DOUBTFUL: i32 = libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;

/// The token of the instance for descriptors that are not ours (`watch`). No record has this address.
const WATCHED: u64 = 1;

/// Blocks the thread until a call may find something: see `Source::wait`.
pub(super) fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    let deadline = limit.deadline();
    if deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Err(would_block());
    }
    let reason = source.wait_reason(direction);
    let Ok(record) = source.registration.register(source.as_raw_fd()) else {
        // There is no epoll instance, no descriptor for one, or no room in it: the thread waits as a kernel
        // thread does, and its processor goes to others.
        return blocking(|| wait_in_kernel(source, direction, limit));
    };
    match record.side(direction).wait(reason, deadline) {
        Waited::TimedOut => Err(would_block()),
        Waited::Refused | Waited::Woken(_) => Ok(()),
    }
}

// ==== the known readiness ====

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
        // If an announcement changes the word in between, it has set `MAYBE` too.
        if emptied && !state.has(DOUBT) {
            return;
        }
        // Release: partner: Acquire in `begin`.
        let note = || self.queue.change(state, state.with(MAYBE), Release);
        if state.has_waiters() || note().is_err() {
            making_ready(|ready| self.announce(false, ready));
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

/// Makes all threads ready that `change` puts into its list.
pub(crate) fn making_ready<R>(change: impl FnOnce(&mut Fifo) -> R) -> R {
    let mut ready = Fifo::new();
    let _off = current::preemption_off();
    let result = change(&mut ready);
    while let Some(green) = ready.pop() {
        sched::ready(green);
    }
    result
}

// ==== the record of a descriptor ====

/// The known readiness of a registered descriptor, in both directions.
///
/// A record is never freed, but serves one descriptor after another: a thread may have collected an
/// event, and deliver it after the descriptor was closed. In the record's next life that event
/// causes calls that find nothing.
#[repr(align(64))]
pub(super) struct Record {
    pub(super) read: Readiness,
    pub(super) write: Readiness,
    next: Cell<Option<&'static Record>>,
}

// SAFETY: the link belongs to the lock of the pool.
unsafe impl Sync for Record {}

/// Records that no descriptor uses.
static POOL: Lock<Option<&'static Record>> = Lock::new(None);

impl Record {
    pub(super) fn side(&self, direction: Direction) -> &Readiness {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Returns a record for a new registration. Allocates if the pool is empty.
    pub(super) fn acquire() -> &'static Record {
        {
            let _off = current::preemption_off();
            let mut pool = POOL.lock();
            if let Some(record) = *pool {
                *pool = record.next.take();
                return record;
            }
        }
        Box::leak(Box::new(Record {
            read: Readiness::new(),
            write: Readiness::new(),
            next: Cell::new(None),
        }))
    }

    /// Gives a descriptor's record back; no thread waits in it.
    pub(super) fn release(&'static self) {
        let _off = current::preemption_off();
        self.read.reset();
        self.write.reset();
        let mut pool = POOL.lock();
        self.next.set(*pool);
        *pool = Some(self);
    }

    /// Ends all waits, now and later.
    pub(super) fn close(&self) {
        making_ready(|ready| {
            self.read.close(ready);
            self.write.close(ready);
        });
    }
}

// ==== the registration of a descriptor ====

#[derive(Default)]
pub(crate) struct Registration {
    record: AtomicStatic<Record>,
    registering: Lock<()>,
    closed: AtomicBool,
}

impl Registration {
    /// The record. `None`: there is none yet; or this is a forked child, where no thread announces events, and a
    /// thread may have held the locks of records at the fork.
    pub(crate) fn record(&self) -> Option<&'static Record> {
        if sched::current::is_forked_child() {
            return None;
        }
        // SeqCst: partner: the store in `register`.
        self.record.load(SeqCst)
    }

    /// What a thread asks before each call: the record, if there is one.
    pub(crate) fn look(&self) -> io::Result<Option<&'static Record>> {
        // The record is read before the flag: the header says why.
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
        let is_mine = |record: &&Record| ptr::eq(*record, mine);
        if !registered.as_ref().is_ok_and(is_mine) {
            mine.release();
        }
        registered
    }

    /// The descriptor is closed. The caller ends the waits that are in the record, if there is one now.
    pub(crate) fn close(&self) {
        // SeqCst: partner: the load in `check_open`, by who has seen the record.
        self.closed.store(true, SeqCst);
    }

    pub(crate) fn check_open(&self) -> io::Result<()> {
        // SeqCst: partner: the store in `close`.
        match self.closed.load(SeqCst) {
            false => Ok(()),
            true => Err(Source::closed()),
        }
    }
}

// ==== the epoll instance ====

/// The process's epoll instance. It lives as long as the process.
pub(super) struct Instance(OnceLock<epoll::Epoll>);

pub(super) static INSTANCE: Instance = Instance(OnceLock::new());

impl Instance {
    /// Makes the epoll descriptor that `add` needs.
    pub(super) fn start(&self) -> io::Result<&epoll::Epoll> {
        if self.0.get().is_none() {
            #[cfg(sim)]
            let _once = current::without_points();
            // The instance is made outside the cell, because the cell cannot report errors. If another thread makes an
            // instance too, one of the two is dropped.
            let _ = self.0.set(epoll::Epoll::new()?);
        }
        Ok(self.0.wait())
    }

    /// Registers `fd`; `record` receives its events.
    pub(super) fn add(&'static self, fd: RawFd, record: &'static Record) -> io::Result<()> {
        let token = core::ptr::from_ref(record).expose_provenance() as u64;
        self.start()?.add(fd, BOTH, token)?;
        perturb::point("epoll: registered");
        events::add_source(self);
        Ok(())
    }

    /// Registers the instance for descriptors that are not ours.
    pub(super) fn add_watched(&self, instance: RawFd) -> io::Result<()> {
        self.start()?.add(instance, libc::EPOLLIN, WATCHED)
    }

    /// Cancels the registration of `fd`.
    pub(super) fn remove(&self, fd: RawFd) {
        if let Some(epoll) = self.0.get() {
            epoll.remove(fd);
            events::remove_source();
        }
    }
}

impl Collect for Instance {
    fn collect(&self, nanos: Option<u64>) -> Fifo {
        let mut places = [Event { events: 0, u64: 0 }; BATCH];
        let mut ready = Fifo::new();
        let Some(epoll) = self.0.get() else {
            return ready;
        };
        // With thousands of descriptors all this memory is cold. The loads of one pass run side by side if they are
        // prefetched together.
        let events = epoll.wait(&mut places, nanos);
        perturb::point("epoll: collected");
        for event in events {
            arch::prefetch(core::ptr::without_provenance(event.u64 as usize));
        }
        for record in events.iter().filter_map(record_of) {
            let waits = record.read.first();
            arch::prefetch(waits);
            // The wait to which the node belongs lies beside the node.
            arch::prefetch(waits.wrapping_add(64));
        }
        for event in events {
            let Some(record) = record_of(event) else {
                if event.u64 == WATCHED {
                    watch::collect(&mut ready);
                }
                continue;
            };
            let events = event.events as i32;
            if events & READ != 0 {
                record.read.announce(events & DOUBTFUL != 0, &mut ready);
            }
            if events & WRITE != 0 {
                record.write.announce(events & DOUBTFUL != 0, &mut ready);
            }
        }
        ready
    }

    fn ring(&self) {
        if let Some(epoll) = self.0.get() {
            epoll.ring();
        }
    }
}

/// The record of an event's descriptor; `None`: the event is the bell's, or a watched descriptor's.
fn record_of(event: &Event) -> Option<&'static Record> {
    let token = event.u64;
    // SAFETY: any other token is the address of a record, exposed in `add`.
    (token != BELL && token != WATCHED)
        .then(|| unsafe { &*core::ptr::with_exposed_provenance::<Record>(token as usize) })
}
