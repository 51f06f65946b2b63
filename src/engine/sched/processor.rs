//! A processor: the right to run green threads, and the state that goes with it.
//!
//! At most one kernel thread at a time owns it (`ownership`). While it sleeps it is in the
//! cluster's list of idle processors, and out of use it is in no list (`resize`). Only its owner
//! touches the fields of [`Own`], by way of an [`Owned`](super::Owned). All threads may read the
//! atomics; where [`Counter`] says so, the owner writes them with plain loads and stores.

use core::cell::{Cell, UnsafeCell};

use fastrand::Rng;

use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::engine::green::current;
use crate::engine::green::timer;
use crate::engine::green::{Room, records::Records};
use crate::engine::policy::Seat;
use crate::engine::sched::census::Counts;
use crate::engine::sched::events::Held;
use crate::engine::sched::lifo::Linked;
use crate::engine::sched::{Cluster, Counter, Machine, monitor, timers};
use crate::engine::stack;
use crate::engine::sys::atomic_static::AtomicStatic;
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::topology;

#[repr(align(128))]
pub(crate) struct Processor {
    pub(crate) index: usize,
    /// No other processor of the process has it: for the observer's arrays (`probe`).
    pub(crate) number: usize,
    /// Its owner as the monitor sees it; null while it is idle.
    pub(crate) machine: AtomicStatic<Machine>,
    /// Set by the monitor: look at the timers and for events before the next thread runs.
    pub(crate) attention: AtomicBool,
    /// The CPU that it was last seen on; kept where [`topology::machine`] knows of any difference
    /// between CPUs.
    cpu: AtomicUsize,
    pub(crate) switches: Counter,
    /// How often it has run out of threads.
    pub(crate) dry: Counter,
    pub(crate) steals: Counter,
    /// How often it has looked into the queues of all others, in vain or not.
    pub(crate) steal_attempts: Counter,
    /// The threads that have been spawned and have ended here.
    pub(crate) counts: Counts,
    pub(crate) preemptions: Counter,
    /// Calls of libc that have parked a thread.
    pub(crate) parked_calls: Counter,
    /// Whether a driver holds something back here.
    pub(super) holds: AtomicBool,
    own: UnsafeCell<Own>,
    cluster: &'static Cluster,
    /// It is out of use; changed under the idlers' lock (`resize`).
    pub(super) retired: AtomicBool,
    /// The link among the idle processors.
    below: Cell<Option<&'static Processor>>,
    /// The monitor's memory of its last look.
    pub(super) seen: Cell<monitor::SeenOfProcessor>,
    // They are on lines of their own: others take the lock to fire or to disarm timers.
    pub(crate) timers: Lock<timer::Heap>,
    /// The earliest deadline in `timers`.
    pub(crate) next_deadline: AtomicU64,
}

/// The part of a processor that belongs to its owner alone.
pub(crate) struct Own {
    /// Since when every look has found a crowd (`io`).
    pub(super) crowded_since: u64,
    /// Events come so quickly that it pays to look for them for a while (`io`).
    pub(super) spin_pays: bool,
    /// Not before then: somebody computes on this CPU (`io`).
    pub(super) spins_from: u64,
    /// When it looks at its timers while it is busy.
    pub(super) looks: timers::Looks,
    /// What has arrived runs until this switch, one thread after the other (`io`).
    pub(super) arrivals_until: u64,
    /// What a driver holds back here.
    pub(crate) held: Option<Box<dyn Held>>,
    /// Stacks of threads that have ended.
    pub(crate) stacks: stack::Cache,
    /// Records of threads that have ended.
    pub(crate) records: Records,
    random: Rng,
}

impl Own {
    pub(super) fn random(&mut self) -> u32 {
        self.random.u32(..)
    }
}

// SAFETY: only the owner reaches `own` (`Owned`), and ownership passes with Release and Acquire;
// `below` belongs to the holder of the idlers' lock, `seen` to the monitor.
unsafe impl Sync for Processor {}
// SAFETY: as above.
unsafe impl Send for Processor {}

impl Linked for Processor {
    fn below(&self) -> &Cell<Option<&'static Processor>> {
        &self.below
    }
}

impl Processor {
    /// Makes a processor that is out of use. Allocates.
    pub(crate) fn new(index: usize, cluster: &'static Cluster) -> Processor {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut stacks = stack::Cache::new(cluster.config.stack_size);
        // The room is for the first thread (`start`). Without memory that thread waits for some.
        if let Ok(room) = Room::find(cluster.config.stack_size) {
            // The cache may take the list's lock, which is taken with preemption off.
            let _off = current::preemption_off();
            stacks.keep(room.slot());
        }
        Processor {
            index,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            machine: AtomicStatic::none(),
            attention: AtomicBool::new(false),
            cpu: AtomicUsize::new(usize::MAX),
            switches: Counter::new(),
            dry: Counter::new(),
            steals: Counter::new(),
            steal_attempts: Counter::new(),
            counts: Counts::new(),
            preemptions: Counter::new(),
            parked_calls: Counter::new(),
            holds: AtomicBool::new(false),
            own: UnsafeCell::new(Own {
                crowded_since: NEVER,
                spin_pays: false,
                spins_from: 0,
                looks: timers::Looks::new(),
                arrivals_until: 0,
                held: None,
                stacks,
                records: Records::new(),
                random: Rng::with_seed(index as u64),
            }),
            cluster,
            retired: AtomicBool::new(true),
            below: Cell::new(None),
            seen: Cell::default(),
            timers: Lock::new(timer::Heap::new()),
            next_deadline: AtomicU64::new(NEVER),
        }
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    /// The owner's seat in the policy.
    ///
    /// # Safety
    /// The caller owns this processor until it drops the seat.
    #[inline(always)]
    pub(super) unsafe fn seat(&self) -> Seat {
        // SAFETY: the caller's promise.
        unsafe { Seat::new(self.index, core::ptr::from_ref(self.cluster).addr()) }
    }

    /// The part that belongs to the owner.
    ///
    /// # Safety
    /// The caller owns this processor, has preemption off, and holds no other reference to this.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the owner's cell")]
    pub(super) unsafe fn own(&self) -> &mut Own {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// The owner says on which CPU it is.
    pub(crate) fn note_cpu(&self) {
        if topology::machine().is_some() {
            self.cpu.store(arch::cpu(), Ordering::Relaxed);
        }
    }

    /// How far from here, in the rings of [`topology`], another processor is.
    pub(crate) fn distance(&self, other: &Processor) -> usize {
        let cpu = |of: &Processor| of.cpu.load(Ordering::Relaxed);
        topology::machine().map_or(0, |machine| machine.ring(cpu(self), cpu(other)))
    }
}
