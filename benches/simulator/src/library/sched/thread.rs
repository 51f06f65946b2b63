//! Stands in for the library's `thread`: a thread's record, with what policies use of it, the park state
//! that decides who wakes it, its stack, and what the workload keeps there. It has no stack.

use core::cell::Cell;

use crate::atomic::{AtomicU32, AtomicU64};
use crate::engine::policy::Links;
use crate::engine::sched::Cluster;
use crate::engine::sched::start::ThreadStack;
use crate::policy::Priority;
use crate::virtual_time::{self, Access, NOWHERE};

#[repr(C, align(64))]
pub struct Green {
    pub(crate) next: ChargedCell<Option<&'static Green>>,
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    pub(crate) park_state: AtomicU32,
    /// The next batch of free records; of the first record of a batch.
    pub(crate) batch: ChargedCell<Option<&'static Green>>,
    pub(crate) stack: Cell<Option<&'static ThreadStack>>,
    pub(crate) cluster: Cell<Option<&'static Cluster>>,
    /// The CPU in whose cache it is.
    pub(crate) home: Cell<usize>,
    /// The workload's.
    pub(crate) state: Cell<[u64; 3]>,
    pub(crate) parent: Cell<Option<&'static Green>>,
    pub(crate) children: AtomicU32,
}

impl Green {
    pub(crate) fn new() -> Green {
        Green {
            next: ChargedCell(Cell::new(None)),
            priority: AtomicU64::new(Priority::NORMAL.get()),
            heap: Links::default(),
            park_state: AtomicU32::new(0),
            batch: ChargedCell(Cell::new(None)),
            stack: Cell::new(None),
            cluster: Cell::new(None),
            home: Cell::new(NOWHERE),
            state: Cell::new([0; 3]),
            parent: Cell::new(None),
            children: AtomicU32::new(0),
        }
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster.get().expect("it was spawned")
    }

    /// The cost model does not know of it.
    pub(crate) fn prefetch(&self) {}

    /// The cost model does not know of it.
    pub(crate) fn prefetch_record(&self) {}

    pub(crate) fn prefetch_two(_: &Green, _: &Green) {}
}

// SAFETY: the simulation runs on one kernel thread; policies demand that records could be shared.
unsafe impl Sync for Green {}

/// A cell whose owner is whoever owns the list that it links: it moves between caches as atomics do.
pub(crate) struct ChargedCell<T>(pub(crate) Cell<T>);

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
