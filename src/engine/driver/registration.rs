//! The registration of a descriptor, which a thread may close while others begin to wait.
//!
//! The record of its readiness is absent until a green thread first waits for the descriptor. Who closes it
//! says so and then ends the waits in the record; who waits has brought or found the record, and then asks
//! whether the descriptor is closed.
//!
//! Invariant: a thread that has cleared a flag of the record has seen the descriptor open *after* it saw the
//! record. So one who closes it later finds the record too. And as long as no flag was cleared, nobody waits
//! (`readiness`). (A thread that asked first, and found the record only then, could have come too late for both:
//! the closer was there before the record, and the thread that brought the record has left since.)
//!
//! Orderings: the record and `closed` are SeqCst, each where it is stored and where it is loaded. Of two
//! threads, one that stores the record and loads `closed`, and one that stores `closed` and loads the record,
//! one sees what the other has stored.

use core::ptr;
use std::io;
use std::os::fd::RawFd;

use super::epoll::INSTANCE;
use super::record::Record;
use crate::engine::atomic::{AtomicBool, Ordering::SeqCst, const_fn};
use crate::engine::sched;
use crate::engine::sched::current;
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::perturb;

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
