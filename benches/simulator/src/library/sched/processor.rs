//! Stands in for the library's `processor`.

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::mem;
use core::ops::Deref;
use core::ptr;

use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use crate::engine::policy::Seat;
use crate::engine::sched::events::HeldBack;
use crate::engine::sched::events::Looks;
use crate::engine::sched::start::{Cache, Records};
use crate::engine::sched::{Cluster, Worker};
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::shared::AtomicStatic;
use crate::engine::sys::shared::Linked;
use crate::engine::sys::{perturb, topology};
use crate::engine::{arch, probe};
use crate::virtual_time::{self, Access, Random};

/// The fields lie on the lines on which the library's do.
#[repr(C, align(128))]
pub(crate) struct Processor {
    pub(crate) counts: Counts,
    first: [u64; 6],
    pub(crate) index: usize,
    pub(crate) worker: AtomicStatic<Worker>,
    cpu: AtomicUsize,
    pub(crate) switches: Counter,
    pub(crate) dry: Counter,
    pub(crate) steals: Counter,
    pub(crate) steal_attempts: Counter,
    second: u64,
    own: UnsafeCell<Own>,
    pub(crate) seat: Seat,
    below: Cell<Option<&'static Processor>>,
    watched: Watched,
}

/// What the others look at.
#[repr(C, align(64))]
pub(crate) struct Watched {
    cluster: &'static Cluster,
    pub(crate) attention: AtomicBool,
    pub(crate) retired: AtomicBool,
    pub(super) holds: AtomicBool,
}

impl core::ops::Deref for Processor {
    type Target = Watched;

    fn deref(&self) -> &Watched {
        &self.watched
    }
}

pub(crate) struct Own {
    pub(super) crowded_since: u64,
    pub(super) spin_pays: bool,
    pub(super) spins_from: u64,
    pub(super) looks: Looks,
    pub(super) arrivals_until: u64,
    pub(super) held: Option<Box<dyn HeldBack>>,
    pub(crate) stacks: Cache,
    pub(crate) records: Records,
    random: Random,
}

impl Own {
    pub(super) fn random(&mut self) -> u32 {
        (self.random.next() >> 32) as u32
    }
}

// SAFETY: the simulation runs on one kernel thread.
unsafe impl Sync for Processor {}
// SAFETY: as above.
unsafe impl Send for Processor {}

impl Linked for Processor {
    fn below(&self) -> &Cell<Option<&'static Processor>> {
        virtual_time::access(core::ptr::from_ref(&self.below).addr(), Access::Store);
        &self.below
    }
}

impl Processor {
    pub(crate) fn new(index: usize, cluster: &'static Cluster, seed: u64) -> Processor {
        Processor {
            counts: Counts::default(),
            first: [0; 6],
            index,
            worker: AtomicStatic::none(),
            cpu: AtomicUsize::new(usize::MAX),
            switches: Counter::default(),
            dry: Counter::default(),
            steals: Counter::default(),
            steal_attempts: Counter::default(),
            second: 0,
            own: UnsafeCell::new(Own {
                crowded_since: NEVER,
                spin_pays: false,
                spins_from: 0,
                looks: Looks {
                    next: NEVER,
                    flush: NEVER,
                },
                arrivals_until: 0,
                held: None,
                stacks: Cache::new(),
                records: Records::new(),
                random: Random::new(seed, index),
            }),
            // SAFETY: the processor has this one, which `Owned::seat` lends to its owner.
            seat: unsafe { Seat::new(index, ptr::from_ref(cluster).addr()) },
            below: Cell::new(None),
            watched: Watched {
                cluster,
                attention: AtomicBool::new(false),
                retired: AtomicBool::new(false),
                holds: AtomicBool::new(false),
            },
        }
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.watched.cluster
    }

    /// The number of processors stays as it is.
    pub(super) fn is_surplus(&self) -> bool {
        self.index >= self.cluster().active()
    }

    pub(crate) fn note_cpu(&self) {
        if topology::machine().is_some() {
            self.cpu.store(arch::cpu(), Relaxed);
        }
    }

    pub(crate) fn distance(&self, other: &Processor) -> usize {
        let cpu = |of: &Processor| of.cpu.load(Relaxed);
        topology::machine().map_or(0, |here| here.ring(cpu(self), cpu(other)))
    }
}

include!(concat!(env!("OUT_DIR"), "/processor.rs"));
