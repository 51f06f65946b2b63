//! The epoll driver: readiness. One epoll instance for the whole process; it has no owner thread.
//!
//! A descriptor is registered, edge-triggered and for both directions, when a call on it would
//! block for the first time. Its token is the address of its [`Record`], which is never freed.
//!
//! The scheduler decides which kernel thread collects events, and when (`sched::events`).

use core::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use super::registration::{Readiness, make_ready};
use super::watch;
use super::{Direction, Limit, Source, wait_in_kernel, would_block};
use crate::engine::arch;
use crate::engine::sched::Fifo;
use crate::engine::sched::current;
use crate::engine::sched::current::blocking;
use crate::engine::sched::events::{self, BATCH, Collect};
use crate::engine::sys::epoll::{self, BELL, Event};
use crate::engine::sys::lock::Lock;
use crate::engine::sys::{clock, perturb};
use crate::engine::wait::queue::Waited;

const BOTH: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
const READ: i32 =
    libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
const WRITE: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
/// Events after which a short answer does not prove that the descriptor is empty.
const DOUBT: i32 = libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;

/// The token of the instance for descriptors that are not ours (`watch`). No record has this address.
const WATCHED: u64 = 1;

/// Blocks the thread until a call may find something: see [`super::wait`].
pub(super) fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    let deadline = limit.deadline();
    if deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Err(would_block());
    }
    let reason = source.wait_reason(direction);
    let Ok(record) = source.register() else {
        // There is no epoll instance, no descriptor for one, or no room in it: the thread waits as a kernel
        // thread does, and its processor goes to others.
        return blocking(|| wait_in_kernel(source, direction, limit));
    };
    match record.side(direction).wait(reason, deadline) {
        Waited::TimedOut => Err(would_block()),
        Waited::Refused | Waited::Woken(_) => Ok(()),
    }
}

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
        let mut ready = Fifo::new();
        let _off = current::preemption_off();
        self.read.close(&mut ready);
        self.write.close(&mut ready);
        make_ready(ready);
    }
}

/// The process's epoll instance. It lives as long as the process.
pub(super) struct Instance(OnceLock<epoll::Epoll>);

pub(super) static INSTANCE: Instance = Instance(OnceLock::new());

impl Instance {
    /// Makes the epoll descriptor that `add` needs.
    pub(super) fn start(&self) -> io::Result<&epoll::Epoll> {
        if self.0.get().is_none() {
            // The descriptor is made outside the cell, which cannot report errors: if another
            // thread makes one too, one of the two is dropped.
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
        // With thousands of descriptors all this memory is cold: prefetched together, it arrives
        // together.
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
                record.read.announce(events & DOUBT != 0, &mut ready);
            }
            if events & WRITE != 0 {
                record.write.announce(events & DOUBT != 0, &mut ready);
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
