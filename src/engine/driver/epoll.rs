//! The epoll driver: readiness. One epoll instance for the whole process; it has no owner thread.
//!
//! A descriptor is registered, edge-triggered and for both directions, when a call on it would
//! block for the first time. Its token is the address of its [`Record`], which is never freed.
//!
//! One kernel thread at a time collects events: the one that has the [`Turn`]. Who that is, and
//! when, the scheduler decides (`sched::io`). Two at once would not find more, and each would take
//! half of the events to a processor of its own: the design's prototype lost a tenth to a quarter of
//! its throughput by that.
//!
//! Invariants:
//! 1. Between `turn` and the end of the [`Turn`] no other thread collects.
//! 2. `watched` counts registered descriptors: while it is 0 nothing can come.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use super::record::Record;
use super::{Direction, Driver, Kind, Limit, Source, Transfer, would_block};
use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::green::fifo::Fifo;
use crate::engine::sched::outbox;
use crate::engine::sys::clock;
use crate::engine::sys::epoll::{self, BELL, Event};
use crate::engine::sys::perturb;
use crate::engine::wait::queue::Waited;

/// Events collected by one call. What their threads touch, in the kernel too, must fit into a
/// processor's own cache: with 128 at once, a request among 10,000 connections cost a tenth more.
pub(crate) const BATCH: usize = 32;

/// Sends of more bytes than this gain nothing by going together, and would hold others up.
const LITTLE: usize = 4096;

const BOTH: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;
const READ: i32 =
    libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
const WRITE: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
/// After these a call that finds less than it asked for proves nothing.
const DOUBT: i32 = libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;

/// The driver.
pub(crate) struct Epoll;

impl Driver for Epoll {
    fn kind(&self) -> Kind {
        Kind::Epoll
    }

    fn wait(&self, source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
        let deadline = match limit {
            Limit::Forever => None,
            Limit::Until(deadline) if deadline > clock::now() => Some(deadline),
            Limit::Until(_) | Limit::DontWait => return Err(would_block()),
        };
        match source.register()?.side(direction).wait(deadline) {
            Waited::TimedOut => Err(would_block()),
            Waited::Refused | Waited::Woken(_) => Ok(()),
        }
    }

    /// Sends of many threads by one system call, where there are many.
    unsafe fn try_together(
        &self,
        source: &Source,
        transfer: &mut Transfer<'_>,
        flags: i32,
    ) -> Option<io::Result<usize>> {
        match transfer {
            Transfer::Send(bytes) if bytes.len() <= LITTLE => {}
            _ => return None,
        }
        let entry = || transfer.entry(source.as_raw_fd(), flags | libc::MSG_DONTWAIT);
        // SAFETY: the bytes are borrowed until this returns; the flag says that it does not wait.
        let result = unsafe { outbox::perform(entry) }?;
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    fn end_waits(&self, source: &Source) {
        if let Some(record) = source.record() {
            record.close();
        }
    }
}

/// What the process has of it. Lives as long as that.
pub(crate) struct Readiness {
    epoll: OnceLock<epoll::Epoll>,
    taken: AtomicBool,
    watched: AtomicUsize,
    /// When events were last asked for (monotonic nanoseconds).
    asked: AtomicU64,
}

static READINESS: Readiness = Readiness {
    epoll: OnceLock::new(),
    taken: AtomicBool::new(false),
    watched: AtomicUsize::new(0),
    asked: AtomicU64::new(0),
};

/// The process's.
pub(crate) fn readiness() -> &'static Readiness {
    &READINESS
}

/// The right to collect events, of one thread at a time.
pub(crate) struct Turn(&'static epoll::Epoll);

impl Readiness {
    /// Registers `fd`, whose events are to be kept in `record`.
    pub(crate) fn add(&self, fd: RawFd, record: &'static Record) -> io::Result<()> {
        let token = core::ptr::from_ref(record).expose_provenance() as u64;
        self.started()?.add(fd, BOTH, token)?;
        perturb::point("epoll: registered");
        self.watched.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn started(&self) -> io::Result<&epoll::Epoll> {
        if self.epoll.get().is_none() {
            // Made outside the cell, which cannot report errors: if another thread makes one too,
            // one of the two is dropped.
            let _ = self.epoll.set(epoll::Epoll::new()?);
        }
        Ok(self.epoll.wait())
    }

    /// Makes what `add` needs.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.started().map(drop)
    }

    /// Forgets `fd`, which is registered.
    pub(crate) fn remove(&self, fd: RawFd) {
        if let Some(epoll) = self.epoll.get() {
            epoll.remove(fd);
            self.watched.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether anything can come.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    /// Whether somebody has the turn. A hint.
    pub(crate) fn is_watched(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether something can come and nobody would notice.
    pub(crate) fn is_unwatched(&self) -> bool {
        // SeqCst: the monitor's look after it has said that it sleeps; see `sched::io`.
        self.is_in_use() && !self.taken.load(Ordering::SeqCst)
    }

    /// When events were last asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The turn, if something can come and nobody has it.
    pub(crate) fn turn(&'static self) -> Option<Turn> {
        if !self.is_in_use() || self.is_watched() {
            return None;
        }
        let epoll = self.epoll.get()?;
        perturb::point("epoll: turn");
        // SeqCst: whoever goes to sleep without the turn, and the monitor that looks for sleepers
        // without one, must see each other (`sched::io`).
        (!self.taken.swap(true, Ordering::SeqCst)).then(|| Turn(epoll))
    }

    /// Ends the wait of who has the turn, or the next one's.
    pub(crate) fn ring(&self) {
        if let Some(epoll) = self.epoll.get() {
            epoll.ring();
        }
    }
}

impl Turn {
    /// Collects events, for at most `nanos`; the threads that they make ready.
    pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
        let mut places = [Event { events: 0, u64: 0 }; BATCH];
        let mut ready = Fifo::new();
        perturb::point("epoll: collecting");
        // With thousands of descriptors all of this is cold: asked for at once, it comes at once.
        let events = self.0.wait(&mut places, nanos);
        perturb::point("epoll: collected");
        for event in events {
            arch::prefetch(core::ptr::without_provenance(event.u64 as usize));
        }
        for record in events.iter().filter_map(record_of) {
            let waits = record.read.first();
            arch::prefetch(waits);
            // The wait that the place in the queue belongs to lies beside it.
            arch::prefetch(waits.wrapping_add(64));
        }
        for event in events {
            let Some(record) = record_of(event) else {
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
        READINESS.asked.store(clock::now(), Ordering::Relaxed);
        ready
    }
}

/// Whom an event concerns; `None`: the bell.
fn record_of(event: &Event) -> Option<&'static Record> {
    let token = event.u64;
    // SAFETY: a token other than the bell's is the address of a record, exposed in `add`.
    (token != BELL)
        .then(|| unsafe { &*core::ptr::with_exposed_provenance::<Record>(token as usize) })
}

impl Drop for Turn {
    fn drop(&mut self) {
        perturb::point("epoll: turn over");
        READINESS.taken.store(false, Ordering::SeqCst);
    }
}
