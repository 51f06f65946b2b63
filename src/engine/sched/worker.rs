//! A worker: one kernel thread of a cluster, which runs green threads while it owns a processor.
//!
//! | state | processor word | where it is |
//! |---|---|---|
//! | running | a processor | in the run loop, or in a green thread |
//! | detached | null, then detached | in a green thread whose processor was taken; on its way to `spare` |
//! | spare | detached | in the cluster's stack of spares, blocked on its wake word, or collecting events (`io`) |
//! | bound | detached | waiting on its wake word for the green thread that is locked to it; it ends when that does |
//!
//! Records are registered in a table under an index, which travels with the preemption signal, and
//! are never freed: a late signal or a late look of the monitor finds a record, and `tick` tells
//! that it is too late. The record of a kernel thread that has ended serves the next one. The
//! records lie in mapped memory, some in each piece: a thread that needs a worker may be waiting
//! for the allocator.

use core::cell::Cell;
use std::io;

use crate::engine::arch::{self, FloatControl};
use crate::engine::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::engine::sched::list::{Lifo, Linked};
use crate::engine::sched::parker::{Parker, Slept};
use crate::engine::sched::{
    Cluster, Green, Processor, monitor::Rest, preempt, processor::Ownership,
};
use crate::engine::sys::signal::{self, Mask};
use crate::engine::sys::{clock, kernel_thread, lock::Lock, mm, sanitizer, statics::AtomicStatic};

/// How many workers a process can have at once.
pub(crate) const MAX: usize = 1 << 16;
/// Records in a piece of memory.
const PER_PIECE: usize = 32;

/// Some records, in memory that stays mapped.
type Piece = [Worker; PER_PIECE];

static TABLE: [AtomicStatic<Piece>; MAX / PER_PIECE] =
    [const { AtomicStatic::none() }; MAX / PER_PIECE];
/// How many pieces there are; the last ones may not be in the table yet.
static PIECES: AtomicUsize = AtomicUsize::new(0);
/// Records whose kernel thread has ended, or that have had none.
static UNUSED: Lock<Lifo<Worker>> = Lock::new(Lifo::new());

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
    /// [`tls::NO_CACHE`] if it has none.
    pub(crate) tcache: Cell<usize>,
    /// The thread pointer of the kernel thread itself.
    pub(super) own_thread_pointer: Cell<*mut u8>,
    has_native_tls: Cell<bool>,

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
    spared: AtomicU32,
    /// What the monitor remembers of it as a stray.
    pub(super) rest: Rest,
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

/// The worker with this index, if there ever was one.
pub(crate) fn get(index: usize) -> Option<&'static Worker> {
    // Acquire: pairs with the Release in `register_some`.
    let piece = TABLE.get(index / PER_PIECE)?.load(Ordering::Acquire)?;
    Some(&piece[index % PER_PIECE])
}

/// One more than the highest index so far.
pub(crate) fn count() -> usize {
    // Acquire: pairs with the change in `register_some`.
    PIECES.load(Ordering::Acquire) * PER_PIECE
}

/// Every worker of the process, ended ones included.
pub(crate) fn all() -> impl Iterator<Item = &'static Worker> {
    (0..count()).filter_map(get)
}

/// The clusters of all workers, many times each.
pub(crate) fn clusters() -> impl Iterator<Item = &'static Cluster> {
    // Acquire: pairs with the Release in `new`.
    all().filter_map(|worker| worker.cluster.load(Ordering::Acquire))
}

impl Worker {
    /// A record for the kernel thread that is about to start; or the number of an error.
    pub(crate) fn new(cluster: &'static Cluster) -> Result<&'static Worker, i32> {
        let worker = {
            let _off = crate::engine::sched::current::preemption_off();
            let unused = UNUSED.lock().pop();
            match unused {
                Some(worker) => worker,
                None => Worker::register_some()?,
            }
        };
        // Release: pairs with the Acquire in `clusters`, which any thread may call.
        worker.cluster.store(Some(cluster), Ordering::Release);
        worker.handed.set(None);
        worker.searching.set(false);
        worker.has_native_tls.set(true);
        Ok(worker)
    }

    /// Makes a piece of memory full of records; all except the returned one are unused.
    fn register_some() -> Result<&'static Worker, i32> {
        let size = size_of::<Piece>().next_multiple_of(mm::page());
        let mapping = mm::Mapping::new(size);
        let mapping = mapping.map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
        // Release: pairs with the Acquire in `count`.
        let number = PIECES
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| {
                (n < TABLE.len()).then_some(n + 1)
            })
            .map_err(|_| libc::EAGAIN)?;
        // The piece stays for good.
        let piece = core::mem::ManuallyDrop::new(mapping).start() as *mut Piece;
        // SAFETY: the memory is never unmapped, nobody else has it, and it is large enough; pages are aligned more
        // strictly than records. Each record is written before the piece is read.
        let piece: &'static Piece = unsafe {
            for i in 0..PER_PIECE {
                (&raw mut (*piece)[i]).write(Worker::unused((number * PER_PIECE + i) as u32));
            }
            &*piece
        };
        // Release: pairs with the Acquire in `get`.
        TABLE[number].store(Some(piece), Ordering::Release);
        let (first, others) = (&piece[0], &piece[1..]);
        others
            .iter()
            .rev()
            .for_each(|other| UNUSED.lock().push(other));
        Ok(first)
    }

    fn unused(index: u32) -> Worker {
        Worker {
            processor: Ownership::new(),
            current: AtomicStatic::none(),
            tick: AtomicU32::new(1),
            slice: AtomicU32::new(1),
            over: AtomicU32::new(0),
            tcache: Cell::new(super::switch::no_cache()),
            own_thread_pointer: Cell::new(core::ptr::null_mut()),
            has_native_tls: Cell::new(true),
            base_mask: Cell::new(0),
            index,
            kernel_thread: AtomicU32::new(0),
            signalled: AtomicU32::new(0),
            parker: Parker::new(),
            below: Cell::new(None),
            handed: Cell::new(None),
            searching: Cell::new(false),
            had_children: Cell::new(false),
            spared: AtomicU32::new(0),
            rest: Rest::default(),
            observed: [const { AtomicU64::new(0) }; 2],
            cluster: AtomicStatic::none(),
        }
    }

    /// The first call of a worker's kernel thread.
    pub(crate) fn begin(&'static self) -> io::Result<()> {
        self.own_thread_pointer.set(arch::thread_pointer());
        self.has_native_tls.set(true);
        // It may have inherited another setting from the thread that started the runtime.
        FloatControl::DEFAULT.set();
        let mask = self.cluster().base_mask;
        preempt::leave_others(mask, u64::MAX);
        signal::set_mask(mask);
        self.base_mask.set(mask);
        self.expect_no_signal();
        self.rest.begin();
        self.kernel_thread
            .store(kernel_thread::id() as u32, Ordering::Relaxed);
        signal::give_alternate_stack()
    }

    /// The kernel thread ends; its record can serve another.
    pub(crate) fn end(&'static self) {
        self.kernel_thread.store(0, Ordering::Relaxed);
        UNUSED.lock().push(self);
    }

    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        match self.cluster.load(Ordering::Relaxed) {
            Some(cluster) => cluster,
            None => crate::engine::sys::die("a running worker has no cluster"),
        }
    }

    /// Whether the monitor has ended the running thread's time slice.
    #[inline(always)]
    pub(crate) fn is_slice_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) == self.slice.load(Ordering::Relaxed)
    }

    /// The thread that runs now is not preempted before it leaves its stack.
    pub(super) fn spare_thread(&self) {
        let tick = self.tick.load(Ordering::Relaxed);
        self.spared.store(tick, Ordering::Relaxed);
    }

    /// Whether the thread that it runs in switch `tick` is not to be preempted.
    pub(super) fn is_spared(&self, tick: u32) -> bool {
        self.spared.load(Ordering::Relaxed) == tick
    }

    /// Sends a preemption signal to kernel thread `thread`, which was this worker's a moment ago,
    /// unless a signal is on its way. The monitor's.
    pub(crate) fn expect_signal(&self, thread: i32, send: impl FnOnce() -> bool) -> bool {
        let thread = thread as u32;
        // One that came in a sanitizer's code was not noticed.
        if !sanitizer::IS_TSAN && self.signalled.load(Ordering::Relaxed) == thread {
            return false;
        }
        // Relaxed, here and below: this store comes before the signal is sent, so before it has
        // come.
        self.signalled.store(thread, Ordering::Relaxed);
        let is_sent = send();
        if !is_sent {
            self.expect_no_signal();
        }
        is_sent
    }

    /// No signal is on its way: it has come, or must have come, since the kernel thread blocks it
    /// no longer.
    pub(crate) fn expect_no_signal(&self) {
        self.signalled.store(0, Ordering::Relaxed);
    }

    /// The green thread that it runs.
    pub(crate) fn running(&self) -> Option<&'static Green> {
        // Acquire: pairs with the Release in `switch`.
        self.current.load(Ordering::Acquire)
    }

    /// The system's number of its kernel thread.
    pub(crate) fn thread(&self) -> i32 {
        self.kernel_thread.load(Ordering::Relaxed) as i32
    }

    /// Whether it runs `green` now.
    pub(crate) fn is_running(&self, green: &Green) -> bool {
        // Acquire: pairs with the Release in `switch`.
        self.current.is(green, Ordering::Acquire)
    }

    /// The CPU time that its kernel thread has used, in nanoseconds.
    pub(super) fn cpu_time(&self) -> u64 {
        clock::cpu_time(kernel_thread::cpu_clock(self.thread()))
    }

    /// The part of it that was used in user mode. The system may count in ticks.
    pub(super) fn user_time(&self) -> u64 {
        clock::cpu_time(kernel_thread::user_clock(self.thread()))
    }

    /// The thread pointer is now a green thread's.
    #[inline(always)]
    pub(crate) fn use_thread_tls(&self) {
        self.has_native_tls.set(false);
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
        self.cluster.is(cluster, Ordering::Relaxed)
    }

    /// Blocks until the thread that has chosen this worker wakes it.
    pub(super) fn sleep_until_woken(&self) {
        while self.parker.sleep(None) != Slept::Woken {}
    }
}
