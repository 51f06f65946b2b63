//! A processor: the right to run green threads, and the state that goes with it; how it is owned; and the workers that
//! own processors.
//!
//! At most one kernel thread at a time owns it. While it sleeps it is in the
//! cluster's list of idle processors, and out of use it is in no list (`cluster`). Only its owner
//! touches the fields of [`Own`]. All threads may read the
//! atomics; where [`Counter`] says so, the owner writes them with plain loads and stores.
//!
//! # Owning one as a value
//!
//! A processor has one user at a time. So that safe code cannot forget it, the parts that only the
//! user may touch are reached by an [`Owned`]. There is one `Owned` for each right to a processor:
//!
//! | the processor's user | gets it from | for how long |
//! |---|---|---|
//! | the run loop of the worker that owns it | [`RunLoop::owned`] | until it looks again |
//! | a green thread inside the runtime | [`Entered::processor`](super::current::Entered::processor) | until it leaves |
//! | a thread that has it in hand: nobody owns it | [`RunLoop::surrender`]; the monitor, when it has taken it; a list of idle ones | until it is given away, or goes to sleep |
//! | the spawner, of a processor that has retired; the closer of a cluster that has no worker left | [`Owned::assume`] | as long as that is so |
//!
//! Of a processor there is one `Owned` that is used. A signal handler that interrupts
//! the runtime and enters it has another one; `driver::sends`, where that can happen, says what the
//! handler may do with it.
//!
//! # The ownership word
//!
//! A word in each worker's record says which processor it owns ([`Ownership`]), and the monitor can take that without
//! the worker's help.
//! The owner looks at the word with one relaxed load on every entry to the runtime. The monitor
//! takes a processor from a kernel thread that is blocked, or burning CPU, *outside* the runtime.
//! Both may happen at once.
//!
//! # States
//!
//! | word | meaning | who may change it |
//! |---|---|---|
//! | a processor | the kernel thread owns it | owner → `DETACHED` (surrender); monitor → null (take) |
//! | null | the monitor is deciding, or has decided and the kernel thread has not noticed | kernel thread → `DETACHED` (settle); monitor → the processor (give back) |
//! | `DETACHED` | it owns none and knows it: a spare, or about to be one | the thread that wakes it with a processor (assign) |
//!
//! Two states (owned, not owned) are not enough. A kernel thread that saw "not owned" and left for
//! the spare list could be given its processor back meanwhile: then it is a spare that owns one.
//!
//! # Invariants
//!
//! 1. A processor is in at most one word, or in the hands of one thread (the monitor that took it,
//!    the owner that surrendered it, a waker about to assign it).
//! 2. Only one thread at a time takes: the monitor.
//! 3. Only `DETACHED` kernel threads are assigned to.
//! 4. The result of an entry's look holds until its exit: an entry that saw its processor owns it,
//!    even if the word is null for a moment. But every new look may lose it: a processor whose word
//!    [`Ownership::settle`] finds null is lost, unless it is given back first.
//!
//! # Taking: an asymmetric fence
//!
//! Entry (owner):  off = 1; `entry_fence`; find the kernel thread; `get`.   Exit: off = 0
//! (Release). Switch:  current = null (Release) on leaving; tick + 1 (Release), current = the next
//! (Release) before resuming it. Retake (monitor):  first look; word → null; barrier; second look;
//! then keep the processor or give it back.
//!
//! - first look: the tick, the current thread (Acquire, to reach it), that off = 0: a hint, in any
//!   order;
//! - second look: that off = 0 (Acquire), the current thread (Acquire), the tick; the latter two as
//!   before. The order of these three is part of the protocol.
//!
//! The thread looked at must stay readable, even when it has ended meanwhile.
//!
//! This is Dekker's pattern: each side writes one word and then reads the other's. With a full
//! fence on both sides one of them must see the other: either the entry sees null, or the monitor
//! sees off = 1 (or a later value) and gives back. A full fence on each entry is too dear, so the
//! entry has a compiler fence and the monitor runs `membarrier(PRIVATE_EXPEDITED)`: it makes every
//! running thread of the process execute a full fence somewhere between the call's start and its
//! end, and a thread that does not run has passed one while it was switched out.
//! Let that fence strike the owner at some point of its program order:
//! - before the store to `off`, or between it and the load: the load comes after the fence and sees
//!   null;
//! - after the load: the store is before the fence, so the monitor's reads, after it, see off = 1
//!   or later values.
//!
//! The compiler fence keeps the two accesses in this order in the program. So models may use a real
//! fence for both.
//!
//! "Or later values" is why off alone is not enough: the thread may have yielded and gone on
//! elsewhere, with off = 0, while its old kernel thread is in the scheduler and uses the processor.
//! But if the second look sees an off = 0 stored elsewhere, it then also sees (Acquire) that the
//! old kernel thread has another current thread, or the same one again and a later tick. And it
//! cannot see an off = 0 from before the stay that the tick names: it sees the off = 1 under which
//! the thread was resumed, which came before that tick (Release; the barrier makes the first look's
//! load an Acquire). So the off = 0 comes from an exit in this stay, after every entry that got the
//! processor; later entries, and the scheduler after them, see null. In the scheduler the current
//! thread is null or off is 1, so the second look always gives back. But a hasty first look may
//! make the word null for a moment even there, and a `settle` or `surrender` at that moment loses
//! the processor. So the scheduler looks once and keeps the result, and each further look must
//! allow for no processor.
//!
//! # Memory orderings
//!
//! The next owner of a processor must see all that the last owner did to it. A processor changes
//! hands in these ways:
//! - taken, unchanged: Release in the exit's `off = 0` → Acquire in `unchanged`.
//! - taken, but the owner noticed: Release in `settle` → Acquire in `retake`, when that fails.
//! - surrendered: the same thread, in program order.
//! - given to a kernel thread: Release in `assign` → Acquire in `settle` (or the wake-up's own
//!   ordering).
//!
//! The change to null is Relaxed: the barrier after it orders it.
//!
//! # Workers
//!
//! A worker is one kernel thread of a cluster, which runs green threads while it owns a processor.
//!
//! | state | processor word | where it is |
//! |---|---|---|
//! | running | a processor | in the run loop, or in a green thread |
//! | detached | null, then detached | in a green thread whose processor was taken; on its way to `spare` |
//! | spare | detached | in the cluster's stack of spares, blocked on its wake word, or collecting events (`events`) |
//! | bound | detached | waiting on its wake word for the green thread that is locked to it; it ends when that does |
//!
//! Records are registered in a table under an index, which travels with the preemption signal, and
//! are never freed: a late signal or a late look of the monitor finds a record, and `tick` tells
//! that it is too late. The record of a kernel thread that has ended serves the next one. All
//! records lie in one mapping, whose pages are found when they are touched: a thread that needs a worker may be waiting
//! for the allocator.

use core::cell::{Cell, UnsafeCell};
use core::{marker::PhantomData, mem, ops::Deref, ptr};
use std::io;

use fastrand::Rng;

use crate::engine::arch::FloatControl;
use crate::engine::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use crate::engine::policy::Seat;
use crate::engine::sched::events::{self, HeldBack};
use crate::engine::sched::idle::Parker;
use crate::engine::sched::{
    Cluster, Green, current, monitor, monitor::Rest, signals, size::MOST_WORKERS,
    start::ThreadStack, thread::Records,
};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::shared::{AtomicStatic, Lifo, Linked, Lock};
use crate::engine::sys::signal::{self, Mask};
use crate::engine::sys::{die, kernel_thread, mm, perturb, topology};
use crate::engine::{arch, probe, stack};

// ==== the processor ====

#[repr(align(128))]
pub(crate) struct Processor {
    pub(crate) index: usize,
    /// The observer's word (`probe`).
    pub(crate) observed: AtomicUsize,
    /// Its owner as the monitor sees it; null while it is idle.
    pub(crate) worker: AtomicStatic<Worker>,
    /// Set by the monitor: look at the timers and for events before the next thread runs.
    pub(crate) attention: AtomicBool,
    /// The CPU that it was last seen on; kept where [`topology::MACHINE`] knows of any difference
    /// between CPUs.
    cpu: AtomicUsize,
    pub(crate) counts: Counts,
    /// Whether a driver holds something back here.
    pub(super) holds: AtomicBool,
    own: UnsafeCell<Own>,
    /// The owner's.
    seat: Seat,
    cluster: &'static Cluster,
    /// It is out of use; changed under the idlers' lock (`cluster`).
    pub(super) retired: AtomicBool,
    /// The link among the idle processors.
    below: Cell<Option<&'static Processor>>,
    /// The monitor's memory of its last look.
    pub(super) seen: Cell<monitor::Seen>,
    // They are on lines of their own: others take the lock to fire or to disarm timers.
    pub(crate) timers: Lock<events::TimerHeap>,
    /// The earliest deadline in `timers`.
    pub(crate) next_deadline: AtomicU64,
}

/// The part of a processor that belongs to its owner alone.
pub(crate) struct Own {
    /// Since when every look has found a crowd (`events`).
    pub(super) crowded_since: u64,
    /// Events come so quickly that it pays to look for them for a while (`events`).
    pub(super) spin_pays: bool,
    /// Not before then: somebody computes on this CPU (`events`).
    pub(super) spins_from: u64,
    /// When it looks at its timers while it is busy.
    pub(super) looks: events::Looks,
    /// What has arrived runs until this switch, one thread after the other (`events`).
    pub(super) arrivals_until: u64,
    /// What a driver holds back here.
    pub(crate) held: Option<Box<dyn HeldBack>>,
    /// Stacks of threads that have ended.
    pub(crate) stacks: stack::Cache,
    /// Records of threads that have ended.
    pub(crate) records: Records,
    pub(super) random: Rng,
}

// SAFETY: only the owner reaches `own` and `seat` (`Owned`), and ownership passes with Release and Acquire;
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
        let mut stacks = stack::Cache::new(cluster.config.stack_size);
        // The first thread on the processor gets this stack (`start`). If there is no memory for one now, that thread waits.
        if let Ok(stack) = ThreadStack::find(cluster.config.stack_size) {
            // The cache may take the lock of the common list, which a thread takes with preemption off.
            let _off = current::preemption_off();
            stacks.keep(stack.slot);
        }
        Processor {
            index,
            observed: AtomicUsize::new(0),
            worker: AtomicStatic::none(),
            attention: AtomicBool::new(false),
            cpu: AtomicUsize::new(usize::MAX),
            counts: Counts::default(),
            holds: AtomicBool::new(false),
            own: UnsafeCell::new(Own {
                crowded_since: NEVER,
                spin_pays: false,
                spins_from: 0,
                looks: events::Looks::new(),
                arrivals_until: 0,
                held: None,
                stacks,
                records: Records::new(),
                random: Rng::with_seed(index as u64),
            }),
            // SAFETY: the processor has this one, which `Owned::seat` lends to its owner.
            seat: unsafe { Seat::new(index, ptr::from_ref(cluster).addr()) },
            cluster,
            retired: AtomicBool::new(true),
            below: Cell::new(None),
            seen: Cell::default(),
            timers: Lock::new(events::TimerHeap::new()),
            next_deadline: AtomicU64::new(NEVER),
        }
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    /// The owner says on which CPU it is.
    pub(crate) fn note_cpu(&self) {
        if topology::MACHINE.load(Acquire).is_some() {
            self.cpu.store(arch::cpu(), Relaxed);
        }
    }

    /// How far from here, in the rings of [`topology`], another processor is.
    pub(crate) fn distance(&self, other: &Processor) -> usize {
        let cpu = |of: &Processor| of.cpu.load(Relaxed);
        let machine = topology::MACHINE.load(Acquire);
        machine.map_or(0, |here| here.ring(cpu(self), cpu(other)))
    }
}

// ==== owning one as a value ====

/// A processor that the holder owns, or has in hand.
///
/// As long as one is lent, the lender does not use the processor.
pub(crate) struct Owned<'a>(&'static Processor, PhantomData<&'a mut RunLoop>);

impl Owned<'_> {
    /// # Safety
    /// As long as this lives, the caller owns `processor`, or has it in hand, and uses no other
    /// `Owned` of it.
    #[inline(always)]
    pub(super) unsafe fn assume(processor: &'static Processor) -> Owned<'static> {
        Owned(processor, PhantomData)
    }

    /// The right to ask the policy in the processor's name.
    pub(crate) fn seat(&self) -> &Seat {
        &self.0.seat
    }

    /// The parts that belong to the owner alone.
    #[inline(always)]
    pub(crate) fn own(&mut self) -> &mut Own {
        // SAFETY: nobody else uses the processor, as `assume` demands; the borrow of `self` excludes a second
        // reference.
        unsafe { &mut *self.0.own.get() }
    }

    /// The processor itself, which all threads may look at.
    pub(crate) fn shared(&self) -> &'static Processor {
        self.0
    }

    /// The same for as long as this is lent.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Owned<'_> {
        Owned(self.0, PhantomData)
    }
}

/// A processor in hand: what is lent from a run loop or an `Entered` does not live as long.
impl Owned<'static> {
    /// Makes `worker`, which owns nothing, the owner of this processor.
    pub(super) fn give_to(mut self, worker: &'static Worker) {
        probe::worker_has(&mut self, worker);
        // Release: pairs with the Acquire of the monitor's look.
        self.worker.store(Some(worker), Release);
        perturb::point("give");
        worker.processor.assign(self.0);
    }
}

impl Deref for Owned<'_> {
    type Target = Processor;

    fn deref(&self) -> &Processor {
        self.0
    }
}

/// A worker's run loop: there is one, on the worker's own kernel thread.
pub(crate) struct RunLoop(&'static Worker, PhantomData<*mut ()>);

impl RunLoop {
    /// # Safety
    /// The caller is the worker's kernel thread, and makes the only one.
    pub(super) unsafe fn new(worker: &'static Worker) -> RunLoop {
        RunLoop(worker, PhantomData)
    }

    pub(super) fn worker(&self) -> &'static Worker {
        self.0
    }

    /// The processor of this worker. `None`: the monitor came between with an old look in mind, so
    /// the processor is gone (`processor`). A processor found here stays the worker's until the
    /// word is looked at again.
    #[inline(always)]
    pub(super) fn owned(&mut self) -> Option<Owned<'_>> {
        let word = &self.0.processor;
        let processor = word.get().or_else(|| word.settle())?;
        // SAFETY: the word says so, and the borrow of the run loop excludes a second look.
        Some(unsafe { Owned::assume(processor) })
    }

    /// Gives up the processor and has it in hand. `None`: the monitor took it first.
    pub(super) fn surrender(&mut self) -> Option<Owned<'static>> {
        let processor = self.0.processor.surrender()?;
        // SAFETY: nobody owns it now, and nobody else knows of that.
        Some(unsafe { Owned::assume(processor) })
    }
}

// ==== counts ====

/// A count that one owner increments and everybody reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Called by the owner only: no locked instruction.
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        let count = self.0.load(Relaxed) + count;
        // Release: a thread that sees an end sees what came before it; partner: the Acquire fence in `LiveCount::live`.
        // (Other counts order nothing, and share this code.)
        self.0.store(count, Release);
    }

    /// Called by any thread.
    pub(crate) fn add_shared(&self, count: u64) {
        // Release: as in `add`.
        self.0.fetch_add(count, Release);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What has happened on one processor, or outside all of them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) spawned: Counter,
    pub(crate) ended: Counter,
    pub(crate) switches: Counter,
    pub(crate) preemptions: Counter,
    /// How often the processor has run out of threads.
    pub(crate) dry: Counter,
    pub(crate) steals: Counter,
    /// How often it has looked into the queues of all others, in vain or not.
    pub(crate) steal_attempts: Counter,
    /// Calls of libc that have parked a thread.
    pub(crate) parked_calls: Counter,
    /// Waits that ended, or did not begin, because a frame had ended.
    pub(crate) refused_waits: Counter,
}

// ==== the ownership word ====

/// Which processor a kernel thread owns. See the file's header.
pub(crate) struct Ownership<P: 'static>(AtomicPtr<P>);

/// The word of a kernel thread without a processor.
impl<P: 'static> Default for Ownership<P> {
    fn default() -> Self {
        Self(AtomicPtr::new(Self::DETACHED))
    }
}

impl<P: 'static> Ownership<P> {
    /// No processor can be at this address.
    const DETACHED: *mut P = {
        assert!(mem::align_of::<P>() > 1);
        ptr::without_provenance_mut(1)
    };

    /// A word's value as a processor: neither null nor `DETACHED`.
    #[inline(always)]
    fn processor(word: *mut P) -> Option<&'static P> {
        // One comparison rules out both.
        let is_one = word.addr() > Self::DETACHED.addr();
        // SAFETY: any other value was made of such a reference, in `assign` or `retake`.
        is_one.then(|| unsafe { &*word })
    }

    fn word(processor: &'static P) -> *mut P {
        ptr::from_ref(processor).cast_mut()
    }

    // ---- the kernel thread itself ----

    /// The processor, on entry to the runtime: called after `off = 1` and `entry_fence`. None: ask
    /// [`Self::settle`].
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&'static P> {
        Self::processor(self.0.load(Relaxed))
    }

    /// The processor, for certain: if the monitor is deciding, either it has given the processor
    /// back already or we detach for good.
    #[cold]
    pub(crate) fn settle(&self) -> Option<&'static P> {
        let place = &self.0;
        // Acquire, here and below: partner Release in `assign`.
        let mut word = place.load(Acquire);
        while word.is_null() {
            perturb::point("settle");
            // Release: our changes to the processor; partner: Acquire in `retake`.
            match place.compare_exchange(word, Self::DETACHED, Release, Acquire) {
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
        Self::processor(word)
    }

    /// The owner gives its processor up and then has it in hand. None: the monitor took it first.
    pub(crate) fn surrender(&self) -> Option<&'static P> {
        loop {
            let p = self.settle()?;
            perturb::point("surrender");
            // The exchange fails only if the monitor has changed the word since `settle`, which is then asked again.
            let (place, word) = (&self.0, Self::word(p));
            let given_up = place.compare_exchange(word, Self::DETACHED, Relaxed, Relaxed);
            if given_up.is_ok() {
                return Some(p);
            }
        }
    }

    // ---- others ----

    /// Gives `p` to this kernel thread, which is `DETACHED` and about to be woken.
    pub(crate) fn assign(&self, p: &'static P) {
        // Release: the processor's state; partner: Acquire in `settle`.
        self.0.store(Self::word(p), Release);
    }

    /// The monitor takes `p` for good if its owner is outside the runtime. True: `p` is the
    /// caller's to assign.
    ///
    /// Called after the first look; `barrier` is the dear half of the asymmetric fence, and
    /// `unchanged` the second look, whose order and orderings the header gives.
    #[must_use = "true means that the processor is the caller's"]
    pub(crate) fn retake(
        &self,
        p: &'static P,
        barrier: impl FnOnce(),
        unchanged: impl FnOnce() -> bool,
    ) -> bool {
        let (place, word, deciding) = (&self.0, Self::word(p), ptr::null_mut());
        // Relaxed: the barrier that follows orders it.
        let taken = place.compare_exchange(word, deciding, Relaxed, Relaxed);
        if taken.is_err() {
            return false;
        }
        perturb::point("retake: taken");
        barrier();
        perturb::point("retake: barrier");
        if unchanged() {
            return true;
        }
        perturb::point("retake: giving back");
        // If the kernel thread has noticed and detached, `p` stays with the monitor.
        // Acquire on failure: the owner's changes to `p`; partner: Release in `settle`.
        let given_back = place.compare_exchange(deciding, word, Relaxed, Acquire);
        given_back.is_err()
    }
}

// ==== workers ====

/// Where the records lie, one after the other; null before the first is made. (Mapped then: a static array would be 16 MB of
/// every program, which `mlockall` counts.)
static TABLE: AtomicPtr<Worker> = AtomicPtr::new(ptr::null_mut());
/// How many records have been made.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Records whose kernel thread has ended. Whoever makes a record has the lock.
static UNUSED: Lock<Lifo<Worker>> = Lock::new(Lifo::new());

#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Worker {
    // Every switch and every entry to the runtime touches these fields.
    pub(crate) processor: Ownership<Processor>,
    /// The green thread on this kernel thread; null while the scheduler runs.
    pub(crate) current: AtomicStatic<Green>,
    /// Counts switches to a green thread.
    pub(crate) tick: AtomicU32,
    /// Counts time slices: a thread from the next slot goes on in the one before.
    pub(crate) slice: AtomicU32,
    /// The slice that the monitor has ended; it counts only while `slice` is still this one.
    pub(super) over: AtomicU32,
    /// malloc's cache travels with the kernel thread, so that a parked green thread needs none;
    /// [`super::switch::no_cache`] if it has none.
    pub(crate) tcache: Cell<usize>,
    /// The thread pointer of the kernel thread itself.
    pub(super) own_thread_pointer: Cell<*mut u8>,
    /// Whether that is the thread pointer now; if not, the thread pointer is a green thread's.
    pub(super) has_native_tls: Cell<bool>,

    pub(crate) base_mask: Cell<Mask>,
    pub(crate) index: u32,
    pub(crate) kernel_thread: AtomicU32,
    /// The kernel thread to which a preemption signal is on its way, or 0. It is an id, not a flag:
    /// a signal that was sent to the kernel thread before, and never came, concerns nobody else.
    signalled: AtomicU32,
    pub(super) parker: Parker,
    /// The link among the spares, or among those that have ended.
    below: Cell<Option<&'static Worker>>,
    /// The thread to run when woken with a processor: a green thread that is locked to this
    /// worker.
    pub(crate) handed: Cell<Option<&'static Green>>,
    /// Woken to search, not to take over a queue.
    pub(crate) searching: Cell<bool>,
    /// Its kernel thread had children when the thread that is locked to it was locked.
    pub(super) had_children: Cell<bool>,
    /// The switch in which its thread is not preempted: a handler that nobody knew of may be running.
    pub(super) spared: AtomicU32,
    /// The switch in which its thread was reminded of signals (`directed`).
    pub(super) reminded: AtomicU32,
    /// What the monitor remembers of it as a stray.
    pub(super) rest: Rest,
    /// Where the alternate stack of its kernel thread begins, and its bytes.
    pub(super) alternate_stack: Cell<(usize, usize)>,
    /// The observer's two words (`probe`).
    pub(crate) observed: [AtomicU64; 2],
    cluster: AtomicStatic<Cluster>,
}

// SAFETY: the cells belong to the kernel thread, or, while the worker is spare, to the thread that
// took it from the stack of spares; the wake word hands them over with a Release and an Acquire.
unsafe impl Sync for Worker {}
// SAFETY: as above.
unsafe impl Send for Worker {}

impl Linked for Worker {
    fn below(&self) -> &Cell<Option<&'static Worker>> {
        &self.below
    }
}

impl Worker {
    /// The worker with this index, if there ever was one.
    pub(crate) fn get(index: usize) -> Option<&'static Worker> {
        // SAFETY: so many records were written, and their memory stays mapped.
        (index < Worker::count()).then(|| unsafe { &*TABLE.load(Relaxed).add(index) })
    }

    /// One more than the highest index so far.
    pub(crate) fn count() -> usize {
        // Acquire: the records, and where they lie; partner: Release in `make`.
        COUNT.load(Acquire)
    }

    /// Every worker of the process, ended ones included.
    pub(crate) fn all() -> impl Iterator<Item = &'static Worker> {
        (0..Worker::count()).filter_map(Worker::get)
    }

    /// The clusters of all workers, many times each.
    pub(crate) fn clusters() -> impl Iterator<Item = &'static Cluster> {
        // Acquire: pairs with the Release in `new`.
        Worker::all().filter_map(|worker| worker.cluster.load(Acquire))
    }

    /// A record for the kernel thread that is about to start; or the number of an error.
    pub(crate) fn new(cluster: &'static Cluster) -> Result<&'static Worker, i32> {
        let worker = {
            let _off = current::preemption_off();
            let mut unused = UNUSED.lock();
            unused.pop().map_or_else(Worker::make, Ok)?
        };
        // Release: pairs with the Acquire in `clusters`, which any thread may call.
        worker.cluster.store(Some(cluster), Release);
        Ok(worker)
    }

    /// Makes one more record. The caller has the lock of the unused ones.
    fn make() -> Result<&'static Worker, i32> {
        let index = COUNT.load(Relaxed);
        if index == MOST_WORKERS {
            return Err(libc::EAGAIN);
        }
        if index == 0 {
            let mapped = mm::map(MOST_WORKERS * size_of::<Worker>());
            let start = mapped.map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
            TABLE.store(start as *mut Worker, Relaxed);
        }
        let record = Worker {
            tick: AtomicU32::new(1),
            slice: AtomicU32::new(1),
            tcache: Cell::new(super::switch::no_cache()),
            index: index as u32,
            ..Worker::default()
        };
        // SAFETY: the mapping has room for so many records, begins with a page, and is never unmapped; nobody reads
        // this place before the count says that a record is there.
        let worker = unsafe {
            let place = TABLE.load(Relaxed).add(index);
            place.write(record);
            &*place
        };
        // Release: the record, and where it lies; partner: Acquire in `count`.
        COUNT.store(index + 1, Release);
        Ok(worker)
    }

    /// The first call of a worker's kernel thread.
    pub(crate) fn begin(&'static self) -> io::Result<()> {
        self.own_thread_pointer.set(arch::thread_pointer());
        self.has_native_tls.set(true);
        // The kernel thread may have inherited another setting from the thread that started the runtime.
        FloatControl::DEFAULT.set();
        let mask = self.cluster().base_mask;
        signals::leave_others(mask, u64::MAX);
        signal::set_mask(mask);
        self.base_mask.set(mask);
        self.expect_no_signal();
        let id = kernel_thread::id() as u32;
        self.kernel_thread.store(id, Relaxed);
        self.rest.note(self);
        signal::give_alternate_stack().map(|stack| self.alternate_stack.set(stack))
    }

    /// The kernel thread ends; its record can serve another.
    pub(crate) fn end(&'static self) {
        self.kernel_thread.store(0, Relaxed);
        UNUSED.lock().push(self);
    }

    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        let cluster = self.cluster.load(Relaxed);
        cluster.unwrap_or_else(|| die("a running worker has no cluster"))
    }

    /// Whether the monitor has ended the running thread's time slice.
    #[inline(always)]
    pub(crate) fn is_slice_over(&self) -> bool {
        self.over.load(Relaxed) == self.slice.load(Relaxed)
    }

    /// Sends a preemption signal to kernel thread `thread`, which was this worker's a moment ago,
    /// unless a signal is on its way. The monitor's.
    pub(crate) fn expect_signal(&self, thread: i32, send: impl FnOnce() -> bool) -> bool {
        let thread = thread as u32;
        // Under ThreadSanitizer the word proves nothing: a signal that came in the sanitizer's code was not noticed.
        if !cfg!(tsan) && self.signalled.load(Relaxed) == thread {
            return false;
        }
        // Relaxed, here and below: this store comes before the signal is sent, so before it has
        // come.
        self.signalled.store(thread, Relaxed);
        let is_sent = send();
        if !is_sent {
            self.expect_no_signal();
        }
        is_sent
    }

    /// No signal is on its way: it has come, or must have come, since the kernel thread blocks it
    /// no longer.
    pub(crate) fn expect_no_signal(&self) {
        self.signalled.store(0, Relaxed);
    }

    /// The green thread that it runs.
    pub(crate) fn running(&self) -> Option<&'static Green> {
        // Acquire: pairs with the Release in `switch`.
        self.current.load(Acquire)
    }

    /// The system's number of its kernel thread.
    pub(crate) fn thread(&self) -> i32 {
        self.kernel_thread.load(Relaxed) as i32
    }

    /// Whether it runs `green` now.
    pub(crate) fn is_running(&self, green: &Green) -> bool {
        // Acquire: pairs with the Release in `switch`.
        self.current.is(green, Acquire)
    }

    /// The CPU time that its kernel thread has used, in nanoseconds.
    pub(super) fn cpu_time(&self) -> u64 {
        clock::cpu_time(kernel_thread::cpu_clock(self.thread()))
    }

    /// The part of it that was used in user mode. The system may count in ticks.
    pub(super) fn user_time(&self) -> u64 {
        clock::cpu_time(kernel_thread::cpu_clock(self.thread()) - 1)
    }

    /// Restores the kernel thread's own thread pointer, for code that may touch its thread-locals.
    /// Such code is in functions that are called after this one and not inlined into its caller.
    #[inline(never)]
    pub(crate) fn use_native_tls(&self) {
        if !self.has_native_tls.replace(true) {
            // SAFETY: this kernel thread's own block; this function touches no thread-local.
            unsafe { arch::set_thread_pointer(self.own_thread_pointer.get()) };
        }
    }

    pub(crate) fn is_of(&self, cluster: &Cluster) -> bool {
        self.cluster.is(cluster, Relaxed)
    }

    /// Blocks until the thread that has chosen this worker wakes it.
    pub(super) fn sleep_until_woken(&self) {
        while !self.parker.sleep(None) {}
    }
}
