//! Events from outside, and the one turn at collecting them.
//!
//! A driver makes threads ready from outside. The scheduler knows it by two verbs ([`Collect`]);
//! `io` decides which thread calls them, and when.
//!
//! One kernel thread at a time collects events: the one that has the [`Turn`]. Two at once would
//! not find more, and each would take half of the events to a processor of its own: the design's
//! prototype lost a tenth to a quarter of its throughput by that.
//!
//! Invariants:
//! 1. Between `turn` and the end of the [`Turn`] no other thread collects.
//! 2. `watched` counts the sources of events: while it is 0 no event can come.

use core::any::Any;
use std::sync::OnceLock;

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::list::Fifo;
use crate::engine::sys::{clock, perturb};

pub(crate) use super::tuning::BATCH;

/// A driver, as the scheduler knows it: it makes threads ready from outside.
pub(crate) trait Collect: Sync {
    /// Collects events, [`BATCH`] at most, for at most `nanos`. Returns the threads that they make
    /// ready.
    fn collect(&self, nanos: Option<u64>) -> Fifo;

    /// Ends the collecting that goes on, or the next one.
    fn ring(&self);
}

/// What a driver holds back at a processor, to hand it to the kernel together with more of its kind.
pub(crate) trait Held: Any {
    /// Hands it over. Returns the threads that waited for that. It does not block, runs under any thread
    /// pointer, and allocates nothing.
    fn flush(&mut self) -> Fifo;
}

/// The process's sources of events. It lives as long as the process.
pub(crate) struct Events {
    driver: OnceLock<&'static dyn Collect>,
    /// Whether a thread has the turn. SeqCst where it is taken, given back, and looked at by a
    /// thread that is about to sleep: each such thread sees that another one watches, or is seen to
    /// sleep (`io`).
    taken: AtomicBool,
    watched: AtomicUsize,
    /// When events were last asked for (monotonic nanoseconds).
    asked: AtomicU64,
}

static EVENTS: Events = Events {
    driver: OnceLock::new(),
    taken: AtomicBool::new(false),
    watched: AtomicUsize::new(0),
    asked: AtomicU64::new(0),
};

/// The one of this process.
pub(crate) fn events() -> &'static Events {
    &EVENTS
}

/// The right to collect events, of one thread at a time.
pub(crate) struct Turn(&'static dyn Collect);

impl Events {
    /// There is one more source of events, and `driver` collects them.
    pub(crate) fn watch(&self, driver: &'static dyn Collect) {
        self.driver.get_or_init(|| driver);
        self.watched.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one source less.
    pub(crate) fn forget(&self) {
        self.watched.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether any event can come.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    /// Whether somebody has the turn. A hint.
    pub(crate) fn is_watched(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether an event can come and nobody would notice it.
    pub(crate) fn is_unwatched(&self) -> bool {
        // SeqCst: the monitor's look after it has said that it sleeps; see `io`.
        self.is_in_use() && !self.taken.load(Ordering::SeqCst)
    }

    /// The time of the last look for events.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The turn, if an event can come and nobody has the turn.
    pub(crate) fn turn(&self) -> Option<Turn> {
        if !self.is_in_use() || self.is_watched() {
            return None;
        }
        let driver = self.driver.get()?;
        perturb::point("events: turn");
        // SeqCst: a worker that goes to sleep without the turn, and the monitor that looks for
        // sleepers without one, must see each other (`io`).
        (!self.taken.swap(true, Ordering::SeqCst)).then(|| Turn(*driver))
    }

    /// Ends the wait of the thread that has the turn, or the wait of the next such thread.
    pub(crate) fn ring(&self) {
        if let Some(driver) = self.driver.get() {
            driver.ring();
        }
    }
}

impl Turn {
    /// Collects events, for at most `nanos`. Returns the threads that they make ready.
    pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
        perturb::point("events: collecting");
        let ready = self.0.collect(nanos);
        EVENTS.asked.store(clock::now(), Ordering::Relaxed);
        ready
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        perturb::point("events: turn over");
        EVENTS.taken.store(false, Ordering::SeqCst);
    }
}
