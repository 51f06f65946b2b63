//! Stands in for the library's `green`: a thread's record, with what policies use of it, the ticket
//! that decides who wakes it, and what the workload keeps there. It has no stack.

use core::cell::Cell;

use crate::atomic::{AtomicU32, AtomicU64};
use crate::policy::Priority;
use crate::virtual_time::{self, Access};

#[path = "current.rs"]
pub(crate) mod current;
#[path = "../../../../src/engine/green/fifo.rs"]
pub(crate) mod fifo;
#[path = "../../../../src/engine/green/links.rs"]
mod links;

pub(crate) use links::Links;

#[repr(C, align(64))]
pub struct Green {
    pub(crate) next: ChargedCell<Option<&'static Green>>,
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    pub(crate) ticket: AtomicU32,
    /// The processor that ran it last, in whose cache its stack is.
    pub(crate) home: Cell<usize>,
    /// The workload's.
    pub(crate) state: Cell<[u64; 3]>,
    pub(crate) parent: Cell<Option<&'static Green>>,
    pub(crate) children: AtomicU32,
}

impl Green {
    pub(crate) fn new(home: usize) -> Green {
        Green {
            next: ChargedCell(Cell::new(None)),
            priority: AtomicU64::new(Priority::NORMAL.get()),
            heap: Links::new(),
            ticket: AtomicU32::new(0),
            home: Cell::new(home),
            state: Cell::new([0; 3]),
            parent: Cell::new(None),
            children: AtomicU32::new(0),
        }
    }

    /// The cost model does not know of it.
    pub(crate) fn prefetch_record(&self) {}
}

// SAFETY: the simulation runs on one kernel thread; policies demand that records could be shared.
unsafe impl Sync for Green {}

/// A cell whose owner is whoever owns the list that it links: it moves between caches as atomics do.
pub(crate) struct ChargedCell<T>(Cell<T>);

impl<T> ChargedCell<T> {
    fn after(&self, access: Access) -> &Cell<T> {
        virtual_time::access(core::ptr::from_ref(self).addr(), access);
        &self.0
    }

    pub(crate) fn set(&self, value: T) {
        self.after(Access::Store).set(value);
    }

    pub(crate) fn replace(&self, value: T) -> T {
        self.after(Access::Store).replace(value)
    }

    pub(crate) fn take(&self) -> T
    where
        T: Default,
    {
        self.after(Access::Store).take()
    }

    pub(crate) fn get(&self) -> T
    where
        T: Copy,
    {
        self.after(Access::Load).get()
    }
}
