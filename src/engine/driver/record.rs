//! The record of a registered descriptor: the known readiness of its two directions.
//!
//! A record is never freed, but serves one descriptor after another: a thread may have collected an
//! event, and deliver it after the descriptor was closed. In the record's next life that event
//! causes calls that find nothing.

use core::cell::Cell;

use super::Direction;
use super::readiness::Readiness;
use crate::engine::sched::current;
use crate::engine::sched::list::Fifo;
use crate::engine::sys::lock::Lock;

/// Both directions of a descriptor.
#[repr(align(64))]
pub(crate) struct Record {
    pub(crate) read: Readiness,
    pub(crate) write: Readiness,
    next: Cell<Option<&'static Record>>,
}

// SAFETY: the link belongs to the lock of the pool.
unsafe impl Sync for Record {}

/// Records that no descriptor uses.
static POOL: Lock<Option<&'static Record>> = Lock::new(None);

impl Record {
    pub(crate) fn side(&self, direction: Direction) -> &Readiness {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Returns a record for a new registration. Allocates if the pool is empty.
    pub(crate) fn acquire() -> &'static Record {
        let pooled = {
            let _off = current::preemption_off();
            let mut pool = POOL.lock();
            let first = *pool;
            if let Some(record) = first {
                *pool = record.next.take();
            }
            first
        };
        let new = || {
            &*Box::leak(Box::new(Record {
                read: Readiness::new(),
                write: Readiness::new(),
                next: Cell::new(None),
            }))
        };
        pooled.unwrap_or_else(new)
    }

    /// Gives a descriptor's record back; no thread waits in it.
    pub(crate) fn release(&'static self) {
        let _off = current::preemption_off();
        for direction in [&self.read, &self.write] {
            direction.reset();
        }
        let mut pool = POOL.lock();
        self.next.set(*pool);
        *pool = Some(self);
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self) {
        let mut ready = Fifo::new();
        let _off = current::preemption_off();
        self.read.close(&mut ready);
        self.write.close(&mut ready);
        while let Some(green) = ready.pop() {
            crate::engine::sched::ready(green);
        }
    }
}
