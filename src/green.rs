//! One green thread: the record at the top of its slot.
//!
//! ```text
//!   slot:  | guard | stack ... | thread-local block | Green | Slot header |
//! ```
//!
//! Slots are never unmapped, so a record is `&'static`; it is used again for another thread when
//! this one has ended. Who may touch the fields that are not atomic:
//!
//! | the thread is … | owner |
//! |---|---|
//! | new | the spawner |
//! | in a queue, or in its processor's cache of stacks | whoever takes it out |
//! | running | the kernel thread that runs it |
//! | parked | whoever wins its ticket (`wait::ticket`) |
//!
//! Each change of owner goes through a queue or a ticket, which publish all that was written
//! before.
//!
//! Invariants:
//! 1. `off` is not zero whenever the thread is not running user code on its own stack: while it is
//!    suspended, while it is in the runtime, and before and after its life. It is written by the
//!    thread itself (or its signal handler) only; the monitor reads it.
//! 2. `machine` is the kernel thread that resumed it last, right while `off` is not zero.

use core::cell::{Cell, UnsafeCell};
use std::io;

use crate::arch;
use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::context::{Bounds, Context};
use crate::driver::timer;
use crate::policy::{Links, Priority};
use crate::sched::{Cluster, Machine, Processor};
use crate::stack::{self, Slot};
use crate::sys::signal::Mask;
use crate::thread::handle::Shared;
use crate::tls;
use crate::wait::Waiter;

#[repr(C, align(64))]
pub(crate) struct Green {
    // What every switch touches.
    pub(crate) thread_pointer: *mut u8,
    tcache: *mut usize,
    pub(crate) oddities: Oddities,
    pub(crate) off: AtomicU32,
    pub(crate) machine: AtomicPtr<Machine>,
    pub(crate) context: Context,
    /// The next thread in an intrusive queue, or the one that it hands over to.
    pub(crate) next: Cell<Option<&'static Green>>,
    /// It is an arrival (`sched::outbox`).
    pub(crate) arrived: Cell<bool>,

    // What waiting and the edges touch.
    pub(crate) cluster: Cell<Option<&'static Cluster>>,
    /// The name and identity, owned by the thread; null before and after its life.
    pub(crate) shared: AtomicPtr<Shared>,
    /// What it waits for, and until when, if it is about to park or parked with a timer.
    pub(crate) waiter: Cell<*const Waiter>,
    pub(crate) deadline: Cell<Option<u64>>,
    pub(crate) timer: UnsafeCell<timer::Entry>,
    pub(crate) timer_home: Cell<Option<&'static Processor>>,
    /// What a policy may look at, and may need.
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    pub(crate) mask: Cell<Mask>,
    /// It has announced that it blocks; the monitor reads it.
    pub(crate) announced: AtomicBool,
    /// The kernel thread this thread is locked to, and how many locks it holds.
    pub(crate) locked_to: Cell<Option<&'static Machine>>,
    pub(crate) locks: Cell<u32>,
    stack: Bounds,
    slot: &'static Slot,
}

/// What is unusual about a thread, a bit each, so that the switch asks but one question of most.
/// Written by the thread, its signal handler and the kernel thread that runs it: never at once, but
/// the handler may come between, hence read-modify-write.
pub(crate) struct Oddities(AtomicU32);

impl Oddities {
    /// Its signal mask was seen to differ from its kernel thread's.
    pub(crate) const MASK: u32 = 1;
    /// Preempted, it keeps the malloc cache that it may be in the middle of using.
    pub(crate) const CACHE: u32 = 2;
    /// It is locked to a kernel thread.
    pub(crate) const LOCKED: u32 = 4;

    const fn new() -> Oddities {
        Oddities(AtomicU32::new(0))
    }

    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    pub(crate) fn has(&self, oddity: u32) -> bool {
        self.0.load(Ordering::Relaxed) & oddity != 0
    }

    pub(crate) fn add(&self, oddity: u32) {
        self.0.fetch_or(oddity, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, oddity: u32) {
        self.0.fetch_and(!oddity, Ordering::Relaxed);
    }
}

// SAFETY: the table above says who touches what; the handovers are Release/Acquire.
unsafe impl Sync for Green {}
// SAFETY: as above.
unsafe impl Send for Green {}

/// Records lie at as many different distances from their slots' tops, a cache line apart. All slots
/// begin at the same place of a page, so without that the records of a thousand threads would share
/// the few sets of the caches that such addresses map to.
const COLOURS: usize = 16;
const LINE: usize = 64;

/// Bytes at the top of a slot that are not stack: the record and the thread-local block.
pub(crate) fn reserve() -> usize {
    const TOP: usize = 1 << 40;
    TOP - tls::place(TOP - size_of::<Green>() - (COLOURS - 1) * LINE).stack_top
}

/// Where the record lies on `slot`.
fn address_on(slot: &Slot) -> usize {
    const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
    let colour = (slot.top() / 4096).wrapping_mul(SPREAD) >> (usize::BITS - COLOURS.ilog2());
    (slot.top() - size_of::<Green>() - colour * LINE) & !(align_of::<Green>() - 1)
}

impl Green {
    /// A thread that is ready to be given something to run, on a slot with at least `size` bytes of
    /// stack. Allocates when the slot is new: call it preemptible.
    pub(crate) fn create(size: usize) -> io::Result<&'static Green> {
        let slot = {
            // The pool's lock is taken with preemption off.
            let _off = crate::current::preemption_off();
            stack::acquire(size)?
        };
        // Relaxed: the slot came through a lock.
        let furnished = slot.extra.load(Ordering::Relaxed) as *const Green;
        // SAFETY: `extra` is null or the record that `furnish` put there.
        if let Some(green) = unsafe { furnished.as_ref() } {
            return Ok(green);
        }
        Green::furnish(slot).inspect_err(|_| {
            let _off = crate::current::preemption_off();
            stack::release(slot);
        })
    }

    /// The thread whose stack is a slot from a processor's cache, which holds furnished slots only.
    pub(crate) fn of(slot: &'static Slot) -> &'static Green {
        // SAFETY: see above; Relaxed: the cache belongs to the caller's processor.
        unsafe { &*(slot.extra.load(Ordering::Relaxed) as *const Green) }
    }

    fn furnish(slot: &'static Slot) -> io::Result<&'static Green> {
        let at = address_on(slot);
        let place = tls::place(at);
        // SAFETY: the slot is fresh, hence zeroed and ours alone, and large enough: see `reserve`.
        unsafe {
            tls::create(&place, slot.bottom(), place.stack_top - slot.bottom())?;
            let tcache = tls::tcache_offset().map_or(core::ptr::null_mut(), |offset| {
                place.thread_pointer.offset(offset).cast()
            });
            let green = at as *mut Green;
            green.write(Green {
                thread_pointer: place.thread_pointer,
                tcache,
                oddities: Oddities::new(),
                off: AtomicU32::new(1),
                machine: AtomicPtr::new(core::ptr::null_mut()),
                context: Context::new(),
                next: Cell::new(None),
                arrived: Cell::new(false),
                cluster: Cell::new(None),
                shared: AtomicPtr::new(core::ptr::null_mut()),
                waiter: Cell::new(core::ptr::null()),
                deadline: Cell::new(None),
                timer: UnsafeCell::new(timer::Entry::new()),
                timer_home: Cell::new(None),
                priority: AtomicU64::new(Priority::NORMAL.get()),
                heap: Links::new(),
                mask: Cell::new(0),
                announced: AtomicBool::new(false),
                locked_to: Cell::new(None),
                locks: Cell::new(0),
                stack: Bounds {
                    bottom: slot.bottom(),
                    top: place.stack_top,
                },
                slot,
            });
            // Release: pairs with the Acquire in `name_of`, which a fault handler calls.
            slot.extra.store(at, Ordering::Release);
            Ok(&*green)
        }
    }

    /// Lays `main` on the stack: the first thing the thread runs.
    ///
    /// # Safety
    /// The thread is new and the caller's; what `main` borrows outlives it; `main` does not unwind.
    pub(crate) unsafe fn prepare<F: FnOnce()>(&'static self, main: F) {
        // SAFETY: the caller's promise; the record never moves.
        unsafe { self.context.prepare(self.stack, main) }
    }

    /// Asks for the memory that a parked thread will touch when it goes on, before it does.
    pub(crate) fn prefetch(&self) {
        // A wait is some calls deep: what lies about it are their frames.
        const BELOW: usize = 4 * LINE;
        const FRAMES: usize = 20;
        let frames = self.waiter.get().cast::<u8>().wrapping_sub(BELOW);
        for line in 0..FRAMES {
            arch::prefetch(frames.wrapping_add(line * LINE));
        }
        arch::prefetch(core::ptr::without_provenance(self.stack.top - LINE));
        arch::prefetch(self.tcache.cast());
        arch::prefetch(self.thread_pointer);
    }

    /// The name of the thread that asks, which is this one.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: the thread keeps its `Shared` while it runs.
        unsafe { self.shared.load(Ordering::Relaxed).as_ref() }.and_then(Shared::name)
    }

    /// The stack: from the lowest usable address up.
    pub(crate) fn stack(&self) -> Bounds {
        self.stack
    }

    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// malloc's word for its per-thread cache, in this thread's block; null where it was not found.
    #[inline(always)]
    pub(crate) fn tcache(&self) -> *mut usize {
        self.tcache
    }

    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        match self.cluster.get() {
            Some(cluster) => cluster,
            None => crate::sys::die("a running thread has no cluster"),
        }
    }
}

/// Gives the name of the thread on `slot` to `print`; for the fault handler, so it takes no lock.
pub(crate) fn name_of(slot: &Slot, print: &mut dyn FnMut(&[u8])) {
    // Acquire: pairs with the Release in `furnish`.
    let green = slot.extra.load(Ordering::Acquire) as *const Green;
    // SAFETY: the handler runs on behalf of the thread that faulted: its record and its `Shared`
    // are alive.
    let shared = unsafe {
        green
            .as_ref()
            .and_then(|g| g.shared.load(Ordering::Relaxed).as_ref())
    };
    print(
        shared
            .and_then(Shared::name)
            .unwrap_or("<unnamed>")
            .as_bytes(),
    );
}
