//! One green thread: its record, and the store that gives out records.
//!
//! Records are never freed, so a record is `&'static`; it is used again for another
//! thread when this one has ended. A thread gets a stack and a thread-local block (`start`) when
//! it first runs: until then it is this record and the closure that it will call. The owner of a
//! thread may touch the fields that are not atomic:
//!
//! | the thread is … | owner |
//! |---|---|
//! | new | the spawner |
//! | in a queue, or in a list of free records | the thread that takes it out |
//! | running | the kernel thread that runs it |
//! | parked | the thread that wins its park state (`park`) |
//!
//! Each change of owner goes through a queue or a park state, which publish all earlier writes.
//!
//! Invariants:
//! 1. `off` is not zero whenever the thread is not running user code on its own stack: while it is
//!    suspended, while it is in the runtime, and before and after its life. Only the thread itself
//!    (or its signal handler) writes `off`; the monitor reads it.
//! 2. `worker` is the kernel thread that resumed the thread last; it is right while `off` is not
//!    zero.
//! 3. A thread that has no stack has [`ThreadFlags::NEW`].
//! 4. A free record is in one batch, linked by `next`; a batch belongs to a processor or is in the common stack; the first
//!    record of a batch that is put aside has the batch's length and its link to the next batch in `heap`.
//!
//! A record refers to the rest of the scheduler by four fields. What they lead to is never freed:
//!
//! | field | leads to | written by |
//! |---|---|---|
//! | `cluster` | the thread's cluster | its spawner, before the thread is in a queue |
//! | `worker` | the kernel thread that resumed it last | that kernel thread, before it does |
//! | `locked_to` | the kernel thread that it is locked to | the thread |
//!
//! # The store of records
//!
//! A record outlives its thread: a late signal, the monitor, or a policy's link may still point to
//! it. So records are never freed. The store makes them in batches; each processor keeps records as
//! they fall free; and a common stack carries batches from the processors where threads end to
//! those where threads are spawned.
//!
//! The batches are the magazines of Bonwick and Adams ("Magazines and Vmem", 2001). A processor has a
//! batch that it fills and empties, and up to [`KEPT`] full ones: it goes to the common stack only when there
//! are too many full ones, or none. So processors on which threads are spawned and end in turn stay away, also
//! where hundreds live in between; the lock of the common stack would stop all of them otherwise.
//!
//! Every record stands in the roster, too, in use or not: reports go through it without a lock.
//!
//! # Threads as C sees them
//!
//! A pthread is the address of a control block, and a green thread has one. A pthread is a living green thread's if it is
//! the control block in a stack that belongs to a thread now ([`Who::is`]). That is looked up from the address alone,
//! without a lock: a signal handler may ask, with any pthread.
//!
//! C asks for the name of a thread, and sets it, by `pthread_setname_np`, `pthread_getname_np` and `prctl`. The system has
//! a name for each kernel thread. A green thread has its own, in its stack: the next thread on the kernel thread must not
//! find it there. Until the thread has set one, it has the name that it was spawned with; and if there is none
//! either, it reads its kernel thread's. The system's own files (`/proc/thread-self/comm`) know kernel threads only.

use core::{cell::Cell, mem::offset_of, panic::Location};
use std::io;

use crate::engine::arch::{self, FloatControl};
use crate::engine::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*, fence,
};
use crate::engine::inspect::notes::ReadSection;
use crate::engine::policy::Links;
use crate::engine::sched::switch::{Action, Bounds, Context, Since};
use crate::engine::sched::{
    Cluster, Identity, Worker, cpu_time, current, events::TimerEntry, park::Interrupts,
    park::Parking, start::ThreadStack,
};
use crate::engine::sys::shared::{AtomicStatic, Lifo, Linked, Lock};
use crate::engine::sys::{die, libraries, sanitizer::Fiber, signal::Mask, word};
use crate::engine::{stack, tls};

// ==== the record ====

#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Green {
    // Queues and every switch touch these fields.
    pub(crate) thread_pointer: Cell<*mut u8>,
    /// The address of malloc's word for its per-thread cache, in this thread's block; null if it was not found.
    pub(crate) tcache: Cell<*mut usize>,
    pub(crate) flags: ThreadFlags,
    pub(crate) off: AtomicU32,
    /// The kernel thread that resumed this thread last.
    pub(crate) worker: AtomicStatic<Worker>,
    /// The next thread in an intrusive queue, or the thread to which this one hands over.
    pub(crate) next: Cell<Option<&'static Green>>,
    /// The thread took the last stack that its processor had at hand, or there was none.
    pub(crate) took_last: Cell<bool>,
    /// What the thread has said of the calls that it makes now: [`Green::ANNOUNCED`] and the like. Only the thread
    /// writes this, and the monitor reads it.
    pub(crate) calls: AtomicU8,
    /// The thread was seen blocked in a system call of the program's own assembly: its processor is taken instead of a
    /// signal (`signals`, `monitor`). A monitor writes and reads it, at any time.
    pub(crate) calls_itself: AtomicBool,
    /// The pthreads that it makes are green threads, too (`runtime::pthread`).
    pub(crate) adopts: Cell<bool>,
    /// What a signal for the thread does to the call that it makes now (`directed`).
    #[cfg(hooks)]
    pub(super) interruption: AtomicU8,
    /// The number of times that the thread is locked to a kernel thread.
    pub(crate) locks: Cell<u16>,
    /// For reports: how often the thread has left its stack, and when it last did ([`Since`]).
    pub(crate) since: Since,
    pub(crate) context: Context,

    // Waits, and the beginning and end of a thread, touch these fields.
    cluster: AtomicStatic<Cluster>,
    /// The name and number, owned by the thread; null before and after its life.
    pub(crate) identity: AtomicPtr<Identity>,
    main: Cell<Option<Main>>,
    stack: AtomicStatic<ThreadStack>,
    /// The park under way, on the thread's stack; null if the thread neither is parked nor is about to
    /// park; and the frames. Reports read them, too.
    interrupts: Interrupts,
    pub(crate) timer: TimerEntry,
    /// The attributes that a policy may read, and may need. Each spawn sets them.
    pub(crate) priority: AtomicU64,
    pub(crate) heap: Links,
    /// With [`ThreadFlags::MASK`] its signal mask.
    pub(crate) mask: Cell<Mask>,
    /// The kernel thread to which the thread is locked.
    pub(crate) locked_to: Cell<Option<&'static Worker>>,
    /// Where the thread was spawned, if that is known; for the count of calls that block (`monitor`).
    pub(crate) spawned_at: AtomicStatic<Location<'static>>,
    /// With [`ThreadFlags::FLOATS`] its floating-point settings.
    pub(super) floats: Cell<u32>,
    /// The observer's (`probe`). A spawn does not touch them.
    pub(crate) observed: [AtomicU64; 2],
}

/// A record takes four cache lines: a million waiting threads have a million records.
const _: () = assert!(size_of::<Green>() == 256);

/// The function of a thread: called once, with the thread's record, as the first code on its stack. It must not unwind.
pub(crate) type Main = unsafe fn(&'static Green);

/// The unusual properties of a thread, a bit each, so that a switch usually asks one question only.
/// The thread, its signal handler and the kernel thread that runs it write them: never at once, but
/// the handler may come between, hence read-modify-write.
#[derive(Default)]
pub(crate) struct ThreadFlags(AtomicU32);

impl ThreadFlags {
    /// The thread's signal mask was seen to differ from that of its kernel thread.
    pub(crate) const MASK: u32 = 1;
    /// The thread was preempted, and keeps the malloc cache, which it may be in the middle of
    /// using.
    pub(crate) const CACHE: u32 = 2;
    /// The thread is locked to a kernel thread.
    pub(crate) const LOCKED: u32 = 4;
    /// The thread has not run yet, and has no stack.
    pub(crate) const NEW: u32 = 8;
    /// A signal handler runs on the thread (`hiding`).
    pub(crate) const HIDDEN: u32 = 64;
    /// The thread's CPU time is measured (`sched::cpu_time`). Any thread may add it; if the owner of a thread that does not
    /// run writes at the same moment, it may be lost.
    pub(crate) const CLOCKED: u32 = 128;
    /// The thread, which does not run, has floating-point settings of its own.
    pub(crate) const FLOATS: u32 = 256;

    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    #[inline(always)]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.0.load(Relaxed) & flag != 0
    }

    pub(crate) fn add(&self, flag: u32) {
        self.0.fetch_or(flag, Relaxed);
    }

    pub(crate) fn remove(&self, flag: u32) {
        self.0.fetch_and(!flag, Relaxed);
    }
}

/// The first code of a thread, on its own stack. Nothing unwinds out of it: it is `extern "C"`.
///
/// # Safety
/// `green` is the thread's record, and the thread is prepared.
unsafe extern "C" fn live(green: *mut ()) -> ! {
    // SAFETY: `start_on` has passed the record, and records are never freed.
    let green: &'static Green = unsafe { &*green.cast() };
    match green.main.take() {
        // SAFETY: `prepare` was told that the function may be called so, once.
        Some(run) => unsafe { run(green) },
        None => die("a thread was started that has nothing to do"),
    }
    // SAFETY: this is the thread's own stack, which it leaves for good.
    unsafe { green.context.suspend(Action::Exit) };
    die("a thread was resumed that has ended")
}

// SAFETY: the table above says which thread touches which field; the handovers are Release/Acquire.
unsafe impl Sync for Green {}

impl Green {
    /// For debuggers: where the parts lie that this file keeps to itself.
    pub(crate) const SINCE: usize = offset_of!(Green, since.at);
    pub(crate) const PARKING: usize = offset_of!(Green, interrupts.parking);
    pub(crate) const STACK: usize = offset_of!(Green, stack);
    pub(crate) const STACK_POINTER: usize = offset_of!(Green, context.own);

    /// The thread's call blocks (`current::blocking`).
    pub(crate) const ANNOUNCED: u8 = 1;
    /// The thread's call may block (`current::may_block`): the monitor does not signal the thread.
    pub(crate) const MAY_BLOCK: u8 = 2;
    /// The thread's calls of libc are libc's (`current::unhooked`).
    pub(crate) const UNHOOKED: u8 = 4;

    /// Whether the thread has said one of these of the calls that it makes now.
    pub(crate) fn says(&self, flags: u8) -> bool {
        self.calls.load(Relaxed) & flags != 0
    }

    pub(super) fn new() -> Green {
        Green {
            off: AtomicU32::new(1),
            flags: ThreadFlags(AtomicU32::new(ThreadFlags::NEW)),
            ..Green::default()
        }
    }

    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        // Relaxed: the queue that hands the thread on publishes the cluster.
        let cluster = self.cluster.load(Relaxed);
        cluster.unwrap_or_else(|| die("a running thread has no cluster"))
    }

    /// Whether the record was last used for a thread of `cluster`.
    pub(crate) fn is_of(&self, cluster: &Cluster) -> bool {
        self.cluster.is(cluster, Relaxed)
    }

    /// The kernel thread that runs this thread, which has been resumed at least once.
    #[inline(always)]
    pub(crate) fn worker(&self) -> &'static Worker {
        // Relaxed: it was written on this kernel thread.
        // SAFETY: `set_worker` has written it before the thread ran for the first time. (A check
        // here would be one in every call of the runtime.)
        unsafe { self.worker.load(Relaxed).unwrap_unchecked() }
    }

    /// The kernel thread that ran this thread last, if any did; for reports.
    pub(crate) fn last_worker(&self) -> Option<&'static Worker> {
        // Acquire: partner: Release in `set_worker`.
        self.worker.load(Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_worker(&self, worker: &'static Worker) {
        // Release: a report that sees this worker sees that the thread has left the one before (`inspect::threads`); partner:
        // Acquire in `last_worker`.
        self.worker.store(Some(worker), Release);
    }

    /// Makes this a thread of `cluster`, and sets its function.
    ///
    /// # Safety
    /// The thread is new and the caller's; `main`'s function may be called with its address, once,
    /// whenever the thread first runs, and does not unwind.
    pub(crate) unsafe fn prepare(&self, cluster: &'static Cluster, main: Main) {
        self.cluster.store(Some(cluster), Relaxed);
        self.main.set(Some(main));
    }

    /// The thread is to begin on `stack`. The thread is prepared, has not run, and is the caller's, and so is the free
    /// stack. This neither allocates nor touches a thread-local.
    #[inline]
    pub(crate) fn start_on(&'static self, stack: &'static ThreadStack) {
        stack.belong_to(self);
        self.thread_pointer.set(stack.thread_pointer);
        self.tcache.set(stack.tcache);
        // Release: a report that sees the stack sees what is in it; partner: Acquire in `stack`. Relaxed below:
        // the thread and the holder of its record write it.
        self.stack.store(Some(stack), Release);
        // A load and a store will do: the thread does not run, so no handler comes between them.
        let flags = self.flags.0.load(Relaxed) & !ThreadFlags::NEW;
        let cache = u32::from(stack.has_cache()) * ThreadFlags::CACHE;
        self.flags.0.store(flags | cache, Relaxed);
        let with = core::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the stack is free, and the caller's; stacks are never unmapped, and their tops are aligned to 16 bytes.
        // `live` gets the record, and does not unwind.
        let own = unsafe { arch::fresh_stack(stack.bounds.top, live, with) };
        self.context.own.store(own, Relaxed);
    }

    /// Ends the thread: its stack is free again, and its record as good as new.
    #[inline]
    pub(crate) fn end(&self) -> &'static ThreadStack {
        self.flags.0.store(ThreadFlags::NEW, Relaxed);
        self.calls_itself.store(false, Relaxed);
        #[cfg(hooks)]
        self.interruption.store(0, Relaxed);
        let Some(stack) = self.stack.load(Relaxed) else {
            die("a thread has ended that had no stack")
        };
        self.stack.store(None, Relaxed);
        // The thread has left its last frames for good.
        #[cfg(asan)]
        {
            let own = self.context.saved_stack_pointer();
            crate::engine::sys::sanitizer::forget_frames(own, stack.bounds.top - own);
        }
        self.context.own.store(0, Relaxed);
        stack
    }

    /// Keeps the floating-point settings with which the thread, which is the caller's, is to go on.
    pub(crate) fn keep_floats(&self, floats: FloatControl) {
        self.floats.set(floats.0);
        self.flags.add(ThreadFlags::FLOATS);
    }

    /// Prefetches the record itself, for a caller that is about to run a thread that has been in a
    /// queue for long.
    pub(crate) fn prefetch_record(&self) {
        const LINE: usize = 64;
        let record = core::ptr::from_ref(self).cast::<u8>();
        (0..3).for_each(|line| arch::prefetch(record.wrapping_add(line * LINE)));
    }

    /// Prefetches memory of the two threads that run after the one that is about to: where this one goes on,
    /// and the record of `after_next`, which leads to the place where that one goes on.
    ///
    /// It is one line of the stack. Among many threads the walk through the page tables takes longest, and more requests
    /// for a page would only wait for the same walk: with 2 lines or more, or with the thread pointer's, yields were
    /// slower.
    #[inline(always)]
    pub(crate) fn prefetch_two(&self, after_next: &Green) {
        let goes_on = self.context.saved_stack_pointer();
        // A thread that has not run has no stack.
        if goes_on != 0 {
            arch::prefetch(core::ptr::without_provenance(goes_on));
        }
        after_next.prefetch_record();
    }

    /// Marks the address of a wait in which the thread blocks its kernel thread.
    const ON_STACK: usize = 1;

    /// Prefetches the memory that a parked thread will touch when it goes on.
    pub(crate) fn prefetch(&self) {
        // The park lies in the frame of a wait that is some calls deep, and the memory around it holds their frames.
        const LINE: usize = 64;
        const BELOW: usize = 4 * LINE;
        const FRAMES: usize = 20;
        let frames = self.parking().cast::<u8>().wrapping_sub(BELOW);
        for line in 0..FRAMES {
            arch::prefetch(frames.wrapping_add(line * LINE));
        }
        let thread_pointer = self.thread_pointer.get();
        arch::prefetch(tls::stack_top(thread_pointer).wrapping_sub(LINE));
        arch::prefetch(self.tcache.get().cast());
        arch::prefetch(thread_pointer);
    }

    /// Notes the park that this thread, the caller, is about to begin; null: its park is over.
    #[inline(always)]
    pub(crate) fn expect(&self, parking: *const Parking) {
        // The run loop reads it on the same kernel thread, a timer under a lock, and reports look twice.
        self.interrupts.note_park(parking);
    }

    /// The park of this thread, the caller, is over. It lies in a frame that the thread may now leave. True: the thread is to
    /// look at its frames.
    #[inline(always)]
    pub(crate) fn park_is_over(&self) -> bool {
        self.interrupts.note_park(core::ptr::null());
        self.interrupts.settle()
    }

    /// The limit for which this thread, the caller, keeps its timer.
    #[inline(always)]
    pub(crate) fn kept(&self) -> u64 {
        self.timer.kept()
    }

    #[inline(always)]
    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Notes a wait of this thread, the caller, in which it blocks its kernel thread; null: the wait is over.
    pub(crate) fn expect_on_stack(&self, parking: *const Parking) {
        let _off = current::preemption_off();
        // The count changes before an observer can see a new wait, and after none can see the old one (`inspect::kernel`).
        if parking.is_null() {
            self.park_is_over();
        }
        self.since.left();
        self.since.note_time();
        // Release: the count comes before the wait, or before what the thread writes after it; partner: Acquire
        // in `inspect::threads`.
        fence(Release);
        if !parking.is_null() {
            self.expect(parking.wrapping_byte_add(Green::ON_STACK));
        }
    }

    /// The park under way. The caller owns the thread, which has left its stack with
    /// [`Action::Park`](super::switch::Action::Park).
    #[inline(always)]
    pub(crate) fn parking(&self) -> *const Parking {
        self.interrupts.parking.load(Relaxed)
    }

    /// The wait under way, for reports; null if there is none. A thread that runs may be about to leave a park behind,
    /// and no count tells when it has: of such a thread only a wait on its kernel thread counts.
    pub(crate) fn seen_parking(&self, runs: bool) -> *const Parking {
        let parking = self.parking();
        match parking.addr() & Green::ON_STACK {
            0 if runs => core::ptr::null(),
            mark => parking.wrapping_byte_sub(mark),
        }
    }

    /// The name of this thread, which is the caller.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: the thread keeps its identity while it runs.
        unsafe { self.identity.load(Relaxed).as_ref() }.and_then(Identity::name)
    }

    /// The stack, from the lowest usable address up. `None`: the thread has no stack, so it does not
    /// run, although the caller thinks so.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.stack().map(|stack| stack.bounds)
    }

    /// The stack, if the thread has one now.
    pub(crate) fn stack(&self) -> Option<&'static ThreadStack> {
        // Acquire: partner: Release in `start_on`.
        self.stack.load(Acquire)
    }

    /// Where ThreadSanitizer is, what it knows of the thread, which has a stack.
    #[inline(always)]
    pub(crate) fn fiber(&self) -> Option<&'static Fiber> {
        cfg!(tsan).then(|| Some(&self.stack()?.fiber))?
    }
}

// ==== the store of records ====

/// The number of records in a full batch.
pub(crate) const BATCH: usize = 32;
/// The greatest number of full batches that a processor keeps.
const KEPT: usize = 32;

/// The common stack.
static FREE: Lock<Batches> = Lock::new(Batches::NONE);

/// Records, linked by `next`.
type Batch = Lifo<Green>;

impl Linked for Green {
    fn below(&self) -> &Cell<Option<&'static Green>> {
        &self.next
    }
}

/// A stack of batches, linked by their first records.
struct Batches {
    top: Option<&'static Green>,
    len: usize,
}

// SAFETY: the stack owns the records in it.
unsafe impl Send for Batches {}

impl Batches {
    const NONE: Batches = Batches { top: None, len: 0 };

    /// Puts a batch on top, unless it is empty.
    fn push(&mut self, batch: Batch) {
        if let Some(first) = batch.iter().next() {
            first.heap.child.set(self.top.replace(first));
            first.heap.rank.set((0, batch.len() as u64));
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<Batch> {
        let first = self.top?;
        self.top = first.heap.child.take();
        self.len -= 1;
        Some(Lifo::from_top(first, first.heap.rank.get().1 as usize))
    }
}

/// A processor's free records.
pub(crate) struct Records {
    batch: Batch,
    full: Batches,
}

impl Records {
    pub(crate) const fn new() -> Records {
        Records {
            batch: Lifo::new(),
            full: Batches::NONE,
        }
    }

    /// Returns a record for a new thread, if one is free.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        if self.batch.is_empty() {
            self.refill();
        }
        let green = self.batch.pop();
        if let Some(next) = self.batch.iter().next() {
            arch::prefetch(core::ptr::from_ref(next).cast());
        }
        green
    }

    /// Keeps the record of an ended thread.
    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        if self.batch.len() == BATCH {
            self.put_full_aside();
        }
        self.batch.push(green);
    }

    /// Gives all records to the common stack.
    pub(crate) fn drain(&mut self) {
        let mut all = core::mem::replace(self, Records::new());
        let mut free = FREE.lock();
        core::iter::from_fn(|| all.full.pop()).for_each(|batch| free.push(batch));
        free.push(all.batch);
    }

    /// Returns a record for a new thread. Allocates if none is free: call it preemptible.
    pub(crate) fn create() -> io::Result<&'static Green> {
        let free = {
            let _off = current::preemption_off();
            let mut free = FREE.lock();
            let mut batch = free.pop().unwrap_or(Lifo::new());
            let green = batch.pop();
            free.push(batch);
            green
        };
        free.map_or_else(make_piece, Ok)
    }

    /// Takes back a record that no processor keeps. The caller has preemption off.
    pub(crate) fn release(green: &'static Green) {
        let mut single = Lifo::new();
        single.push(green);
        FREE.lock().push(single);
    }

    /// Every record that was ever made, the newest first. Records that are made meanwhile may be missing.
    pub(crate) fn all() -> impl Iterator<Item = &'static Green> {
        // Acquire: partner: Release in `make_piece`.
        let pieces =
            core::iter::successors(NEWEST.load(Acquire), |piece| piece.older.load(Relaxed));
        pieces.flat_map(|piece| &piece.records)
    }

    #[cold]
    fn refill(&mut self) {
        let batch = self.full.pop().or_else(|| FREE.lock().pop());
        self.batch = batch.unwrap_or(Lifo::new());
    }

    #[cold]
    fn put_full_aside(&mut self) {
        // If another processor has the lock, this one does not wait, but keeps more batches for a while.
        if self.full.len >= KEPT
            && let Some(mut free) = FREE.try_lock()
        {
            let half = core::iter::from_fn(|| self.full.pop()).take(KEPT / 2);
            half.for_each(|batch| free.push(batch));
        }
        let batch = core::mem::replace(&mut self.batch, Lifo::new());
        self.full.push(batch);
    }
}

/// Records that were made together: an entry of the roster.
#[repr(C)]
pub(crate) struct Piece {
    records: [Green; BATCH],
    /// The piece that was made before.
    older: AtomicStatic<Piece>,
}

/// The roster: the piece that was made last leads to all others. It changes under the lock of the free records.
static NEWEST: AtomicStatic<Piece> = AtomicStatic::none();

/// For debuggers: where a piece leads to the one before.
pub(crate) const OLDER: usize = core::mem::offset_of!(Piece, older);
/// The place that leads to the newest piece.
pub(crate) type Roster = AtomicStatic<Piece>;
pub(crate) const fn roster() -> *const Roster {
    &raw const NEWEST
}

fn make_piece() -> io::Result<&'static Green> {
    let mut made: Vec<Piece> = Vec::new();
    made.try_reserve_exact(1)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Each record is written in its place, not on the stack of the calling thread, which may be small.
    let piece: *mut Piece = made.as_mut_ptr();
    // SAFETY: there is room for a piece, whose fields are all written before it counts.
    unsafe {
        // The compiler does not know the number here: otherwise it unrolls the loop to 8 KB.
        for i in 0..core::hint::black_box(BATCH) {
            (&raw mut (*piece).records[i]).write(Green::new());
        }
        (&raw mut (*piece).older).write(AtomicStatic::none());
        made.set_len(1);
    }
    let piece = &made.leak()[0];
    let (green, others) = (&piece.records[0], 1..core::hint::black_box(BATCH));
    let mut batch = Lifo::new();
    others.for_each(|i| batch.push(&piece.records[i]));
    let _off = current::preemption_off();
    let mut free = FREE.lock();
    free.push(batch);
    piece.older.store(NEWEST.load(Relaxed), Relaxed);
    // Release: the piece, and under the lock those before it; partner: Acquire in `all`.
    NEWEST.store(Some(piece), Release);
    Ok(green)
}

// ==== as C sees a thread ====

/// A name as the system keeps it: 15 bytes at most, and a NUL.
pub(crate) type SystemName = [u8; 16];

/// Whose pthread one is.
pub(crate) enum Who {
    /// The calling green thread's.
    Own(&'static Green),
    /// Another green thread's. It may end at any moment, if the program lets it.
    Other(&'static Green),
    /// A kernel thread's, or nobody's.
    Libcs,
}

impl Who {
    pub(crate) fn is(thread: libc::pthread_t) -> Who {
        // SAFETY: the function has no arguments.
        let own = unsafe { libc::pthread_self() };
        match current::owner() {
            Some(green) if thread == own => Who::Own(green),
            // In a forked child the others do not exist.
            _ if current::is_forked_child() => Who::Libcs,
            _ => match stack::find(thread as usize).and_then(ThreadStack::owner_of) {
                Some((stack, green)) if stack.pthread() == thread as usize => Who::Other(green),
                _ => Who::Libcs,
            },
        }
    }

    /// The green thread, the caller's or another.
    pub(crate) fn green(self) -> Option<&'static Green> {
        match self {
            Who::Own(green) | Who::Other(green) => Some(green),
            Who::Libcs => None,
        }
    }

    /// The kernel thread that stands for it, as the kernel names it: the calling one, or the one that ran it last.
    /// `None`: libc knows it.
    pub(crate) fn kernel_thread(self) -> Option<usize> {
        const CALLING: usize = 0;
        match self {
            Who::Own(_) => Some(CALLING),
            Who::Other(green) => Some(green.last_worker().map_or(CALLING, |m| m.thread() as usize)),
            Who::Libcs => None,
        }
    }

    /// Writes its name to a place of `length` bytes; the answer is that of `pthread_getname_np`. `None`: it has no name of
    /// its own.
    pub(crate) fn tell_name(self, place: usize, length: usize) -> Option<i32> {
        let green = self.green()?;
        // A thread that is not the caller may end meanwhile: its name stays while the section is open.
        let section = ReadSection::begin();
        let told = tell_name(green, place, length);
        section.end_without_dropping();
        told
    }

    /// Its name is from now on the text at `text`, of `length` bytes; the answer is that of `pthread_setname_np`. `None`:
    /// libc knows it.
    pub(crate) fn set_name(self, text: usize, length: impl FnOnce() -> usize) -> Option<i32> {
        match self {
            Who::Libcs => None,
            _ if length() >= size_of::<SystemName>() => Some(libc::ERANGE),
            Who::Own(green) | Who::Other(green) => set_name(green, text),
        }
    }

    /// The number of its clock. `None`: libc knows it, or it has ended.
    pub(crate) fn clock(self) -> Option<libc::clockid_t> {
        self.green().and_then(cpu_time::clock_of)
    }
}

/// The answer to a `prctl` that sets or reads the name of the calling green thread. `None`: it is the kernel's.
pub(crate) fn prctl(option: usize, place: usize) -> Option<Result<usize, i32>> {
    let error = match option as i32 {
        libc::PR_SET_NAME => set_name(current::owner()?, place)?,
        libc::PR_GET_NAME => tell_name(current::owner()?, place, size_of::<SystemName>())?,
        _ => return None,
    };
    Some(if error == 0 { Ok(0) } else { Err(error) })
}

/// The name of `green` is the text at `text` now; the answer is 0, or an error number.
fn set_name(green: &Green, text: usize) -> Option<i32> {
    let stack = green.stack()?;
    let mut name = SystemName::default();
    for (number, place) in name.iter_mut().take(15).enumerate() {
        match word::load_byte(text.wrapping_add(number)) {
            Some(0) => break,
            Some(byte) => *place = byte,
            None => return Some(libc::EFAULT),
        }
    }
    stack.set_own_name(name);
    Some(0)
}

/// Writes the name of `green` to a place of `length` bytes: the name that the thread has given itself, or what there is
/// room for of the other one. The answer is 0, or an error number; `None`: the thread has no name. The thread is the
/// caller, or a read section is open.
fn tell_name(green: &Green, place: usize, length: usize) -> Option<i32> {
    let stack = green.stack();
    let name = stack.and_then(ThreadStack::own_name).or_else(|| {
        let mut kept = SystemName::default();
        // A pthread that nobody has named has the name of its creator: as a rule, that of the program.
        let programs = || {
            let is_pthread = stack.is_some_and(|stack| stack.joinable.is_pthread());
            is_pthread.then(libraries::program)
        };
        let name = green.name().map(str::as_bytes).or_else(programs)?;
        let length = name.len().min(kept.len() - 1);
        kept[..length].copy_from_slice(&name[..length]);
        Some(kept)
    })?;
    if length < name.len() {
        return Some(libc::ERANGE);
    }
    let mut bytes = name.into_iter().enumerate();
    let told =
        bytes.try_for_each(|(number, byte)| word::store_byte(place.wrapping_add(number), byte));
    Some(if told.is_some() { 0 } else { libc::EFAULT })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_is_counted_where_there_was_none() {
        let green = Records::create().unwrap();
        let _off = current::preemption_off();
        let mut records = Records::new();
        let mut others = Lifo::new();
        while let Some(other) = records.pop() {
            others.push(other);
        }
        records.push(green);
        assert_eq!((records.batch.len(), records.full.len), (1, 0));
        records.drain();
        FREE.lock().push(others);
    }
}
