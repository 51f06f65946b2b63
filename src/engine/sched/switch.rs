//! The switch: from the run loop to a green thread and back.
//!
//! A context is prepared with the function it is to run, resumed by a worker's run loop, and
//! suspends itself with an [`Action`], which the run loop does once the stack has been left. Parking is
//! safe because that is done there, and not before the switch: no thread is resumed whose context is
//! not yet saved.
//!
//! | the thread … | `own` | `run_loop` |
//! |---|---|---|
//! | has never run | where its first code begins | nothing |
//! | runs | (old) | the stack of the run loop that has resumed it |
//! | has left its stack | where it goes on | (old) |
//!
//! The thread pointer is written once, on the way in. On the way back the green thread's stays in
//! place until the scheduler needs the kernel thread's own ([`Worker::use_native_tls`]). So nothing
//! here, nor in the run loop's fast path, touches a thread-local: a test disassembles it.
//!
//! A thread that has changed its signal mask takes it along: once the mask was seen to differ
//! (`current::mask_changed`, `signals`), the switch saves it and restores the kernel thread's base mask.
//! If a signal that the thread blocks has come for it, the mask stays on the kernel thread, and the thread
//! with it (`locked`), until it has taken the signal: nobody else may get that, and only the kernel knows all
//! about it, its place in the queue of a real-time signal included. A thread that is locked by itself keeps its mask on
//! its kernel thread, too, and what has not been taken at its end ends with the kernel thread.
//!
//! A thread that has changed its floating-point control takes that along too. Each switch asks for
//! it. The scheduler has the default, and so has any new thread unless its spawner has something
//! else.
//!
//! malloc's cache travels with the kernel thread: the switch puts it into a green thread's block on
//! the way in and takes it out on the way back. A thread that was preempted, perhaps in the middle
//! of malloc's fast path, keeps the cache that it has. Caches that are thus left over, and kernel
//! threads that thus lack one, meet in [`SPARE_CACHES`]. A thread without a cache has in malloc's
//! word the value that a fresh thread has there, which need not be null (`tls::NO_CACHE`). Where
//! the word was not recognised, or taking a cache away was tried and failed (`tls::probe`), caches
//! stay in the stacks: they cost memory then, as much as the stacks' number at its peak times a
//! cache.

use core::cell::Cell;

use crate::engine::arch::{self, FloatControl};
use crate::engine::atomic::{AtomicU32, AtomicUsize, Ordering::*, compiler_fence, fence};
use crate::engine::sched::{Green, RunLoop, ThreadFlags, Worker, cpu_time, current, locked};
use crate::engine::sys::{clock, sanitizer, shared::Lock, signal};
use crate::engine::tls;

// ==== the context ====

/// The run loop's next step with a thread that has just left its stack.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Action {
    /// The thread is ready, and goes to the back of the queue.
    Yield,
    /// The thread was interrupted, and goes to the global queue; its registers lie on its stack.
    Preempt,
    /// The thread waits: its record says for which waiter and until when.
    Park,
    /// The thread waits, and only the thread in its `next` knows of it, which goes on in its place.
    HandOver,
    /// The thread has ended: its stack can be used again.
    Exit,
}

/// The part of a slot that serves as the stack: `bottom..top`, growing down.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bottom: usize,
    pub(crate) top: usize,
}

impl Bounds {
    pub(crate) fn holds(&self, address: usize) -> bool {
        (self.bottom..self.top).contains(&address)
    }

    /// Reads a word of the stack, which another thread may be running on; for reports.
    pub(crate) fn word(&self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        let last = address.checked_add(WORD - 1)?;
        if !address.is_multiple_of(WORD) || !self.holds(address) || !self.holds(last) {
            return None;
        }
        // SAFETY: the word is in the slot, which is mapped for as long as the process lives. Others write it
        // by whole instructions; this one reads what is there.
        Some(unsafe { arch::stack_word(address) })
    }
}

/// A context. Only the owner of the green thread may touch it (see `thread`), but for a look at `own`.
#[derive(Default)]
pub(crate) struct Context {
    /// The stack pointer of the thread. Relaxed: it belongs to the owner, and others take it for a hint.
    pub(super) own: AtomicUsize,
    /// The stack pointer of the run loop.
    run_loop: Cell<usize>,
}

impl Context {
    /// Runs the thread until it suspends or ends. Touches no thread-local.
    ///
    /// # Safety
    /// The context is prepared, has not ended, and the caller alone may run it; the thread pointer
    /// is the green thread's.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> Action {
        // SAFETY: the stack is prepared, or its thread has left it, and the caller alone may run the thread, so nothing
        // else runs on the stack. The word is an action: only `suspend` comes back here.
        unsafe {
            let word = arch::switch(self.run_loop.as_ptr(), self.own.load(Relaxed), 0);
            core::mem::transmute::<usize, Action>(word)
        }
    }

    /// The stack pointer that was saved when the thread last left its stack; 0 if none was. For reports and
    /// prefetches, while the thread may be running: the value may be old, and says where to look, not what
    /// is there.
    pub(crate) fn saved_stack_pointer(&self) -> usize {
        self.own.load(Relaxed)
    }

    /// Leaves the stack; returns when the thread is resumed, perhaps on another kernel thread.
    ///
    /// # Safety
    /// Called on the context's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, action: Action) {
        let _unseen = sanitizer::unseen();
        // SAFETY: this is the context's own stack, so its thread runs: the run loop has left its stack in `resume`, and
        // waits there for this thread.
        unsafe { arch::switch(self.own.as_ptr(), self.run_loop.get(), action as usize) };
    }
}

// ==== to a thread and back ====

/// Runs `green` on this kernel thread until it leaves its stack.
///
/// # Safety
/// The caller owns `green`, which is ready to run.
#[inline(always)]
pub(crate) unsafe fn to(run: &mut RunLoop, green: &'static Green, inherits: bool) -> Action {
    let worker = run.worker();
    green.set_worker(worker);
    let tick = worker.tick.load(Relaxed).wrapping_add(1);
    // Release: a monitor that sees this tick sees all that the scheduler did before; see
    // `processor`.
    worker.tick.store(tick, Release);
    if !inherits {
        let slice = worker.slice.load(Relaxed).wrapping_add(1);
        worker.slice.store(slice, Relaxed);
    }
    if green.flags.any() {
        enter_odd(worker, green);
    } else {
        lend_cache(worker, green);
    }
    if let Some(fiber) = green.fiber() {
        fiber.enter();
    }
    // Release: the monitor that sees the thread sees the tick; pairs with its Acquire.
    worker.current.store(Some(green), Release);
    // Release: a report that sees what the thread writes sees that it runs; partner: the Acquire fence in
    // `ThreadSnapshot::holds`.
    fence(Release);
    compiler_fence(SeqCst);
    worker.has_native_tls.set(false);
    // SAFETY: the block is `green`'s, and the caller owns `green`, which is ready to run; nothing here touches a
    // thread-local.
    let action = unsafe {
        arch::set_thread_pointer(green.thread_pointer.get());
        // The time is noted here because the CPU finishes earlier loads before it writes the thread pointer: it would wait
        // for the load of the time, too.
        green.since.note_time();
        green.context.resume()
    };
    compiler_fence(SeqCst);
    if let Some(fiber) = green.fiber() {
        worker.use_native_tls();
        fiber.leave();
    }
    green.since.left();
    // Release: pairs with the Acquire in the monitor's second look (`processor`), and in a report's
    // (`inspect::threads`).
    worker.current.store(None, Release);
    if current::HANDLERS_EXIST.load(Relaxed) {
        // A handler that interrupts the scheduler would find the thread-locals of a thread that may run elsewhere by then.
        worker.use_native_tls();
    }
    let floats = FloatControl::current();
    let is_odd = green.flags.has(ThreadFlags::MASK | ThreadFlags::CLOCKED);
    if is_odd || floats != FloatControl::DEFAULT {
        leave_odd(worker, green, floats);
    }
    if let Action::Preempt = action {
        green.flags.add(ThreadFlags::CACHE);
    } else {
        take_cache(worker, green);
    }
    action
}

#[cold]
#[inline(never)]
fn enter_odd(worker: &Worker, green: &Green) {
    if green.flags.has(ThreadFlags::MASK) && !green.flags.has(ThreadFlags::LOCKED) {
        signal::set_mask(green.mask.get());
    }
    if green.flags.has(ThreadFlags::CACHE) {
        green.flags.remove(ThreadFlags::CACHE);
    } else {
        lend_cache(worker, green);
    }
    if green.flags.has(ThreadFlags::FLOATS) {
        green.flags.remove(ThreadFlags::FLOATS);
        FloatControl(green.floats.get()).set();
    }
    if green.flags.has(ThreadFlags::CLOCKED) {
        cpu_time::begins(green);
    }
}

#[cold]
#[inline(never)]
fn leave_odd(worker: &'static Worker, green: &Green, floats: FloatControl) {
    if floats != FloatControl::DEFAULT {
        green.keep_floats(floats);
        FloatControl::DEFAULT.set();
    }
    if green.flags.has(ThreadFlags::CLOCKED) {
        cpu_time::ends(green);
    }
    if green.flags.has(ThreadFlags::MASK) && !locked::keeps_mask(worker, green) {
        let base = worker.base_mask.get();
        let mask = signal::set_mask(base);
        // A preemption signal that the thread has blocked has come now, unless the program has fetched it (`sigwait`).
        worker.expect_no_signal();
        green.mask.set(mask);
        if mask == base {
            green.flags.remove(ThreadFlags::MASK);
        }
    }
}

/// How often a green thread has left its stack, and since when it is as it is, for observers.
///
/// The kernel thread that runs a green thread writes both words, a plain store each; any thread reads
/// them. The count lets a reader see whether what it has read of a suspended thread belongs together
/// (`inspect::threads`). The time is the coarse clock's ([`clock::coarse`]): a few milliseconds off while the
/// program is busy.
///
/// Orderings: the count is stored before the run loop says that the thread has left
/// (`Worker::current`, a Release), so a reader that sees this sees the count. A reader that sees the count sees what the
/// thread did before: it is stored with Release.
#[derive(Default)]
pub(crate) struct Since {
    turns: AtomicU32,
    /// In milliseconds of the coarse clock.
    pub(super) at: AtomicU32,
}

impl Since {
    /// From now on the thread runs, or is parked, or waits for its first run. (A thread that gives way keeps the
    /// time when it was resumed: that was a time slice ago at most.)
    #[inline(always)]
    pub(crate) fn note_time(&self) {
        self.at.store(clock::coarse(), Relaxed);
    }

    /// The thread has left its stack.
    #[inline(always)]
    pub(crate) fn left(&self) {
        let turns = self.turns.load(Relaxed).wrapping_add(1);
        // Release: partner: Acquire in `inspect::threads`.
        self.turns.store(turns, Release);
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Relaxed)
    }

    /// For how many milliseconds it has been as it is. The coarse clock stands still while the program rests, so
    /// the real one is asked.
    pub(crate) fn millis(&self) -> u32 {
        let now = (clock::now() / 1_000_000) as u32;
        now.wrapping_sub(self.at.load(Relaxed))
    }
}

// ==== malloc's cache ====

/// What malloc's word holds in a thread without a cache.
#[inline(always)]
pub(crate) fn no_cache() -> usize {
    tls::NO_CACHE.load(Relaxed)
}

#[inline(always)]
fn lend_cache(worker: &Worker, green: &Green) {
    let word = green.tcache.get();
    if word.is_null() {
        return;
    }
    if worker.tcache.get() == no_cache() && CACHES.load(Relaxed) != 0 {
        worker.tcache.set(take_spare_cache());
    }
    // SAFETY: a word of the green thread's block, which is the run loop's while the thread does not run.
    unsafe { word.write(worker.tcache.replace(no_cache())) };
}

#[inline(always)]
fn take_cache(worker: &Worker, green: &Green) {
    let word = green.tcache.get();
    if word.is_null() {
        return;
    }
    // SAFETY: as in `lend_cache`.
    let cache = unsafe { word.replace(no_cache()) };
    if worker.tcache.get() == no_cache() {
        worker.tcache.set(cache);
    } else if cache != no_cache() && !spare_cache(cache) {
        // SAFETY: as in `lend_cache`. The pool is full: the thread keeps what it has.
        unsafe { word.write(cache) };
        green.flags.add(ThreadFlags::CACHE);
    }
}

/// What is beyond stays with its thread.
const POOL: usize = 4096;
static SPARE_CACHES: Lock<[usize; POOL]> = Lock::new([0; POOL]);
/// How many caches there are; changed under the lock.
static CACHES: AtomicUsize = AtomicUsize::new(0);

#[cold]
#[inline(never)]
fn take_spare_cache() -> usize {
    let pool = SPARE_CACHES.lock();
    let count = CACHES.load(Relaxed);
    if count == 0 {
        return no_cache();
    }
    CACHES.store(count - 1, Relaxed);
    pool[count - 1]
}

#[cold]
#[inline(never)]
pub(super) fn spare_cache(cache: usize) -> bool {
    let mut pool = SPARE_CACHES.lock();
    let count = CACHES.load(Relaxed);
    if count == POOL {
        return false;
    }
    pool[count] = cache;
    CACHES.store(count + 1, Relaxed);
    true
}

/// A worker ends: its cache goes to another worker.
pub(crate) fn leave_cache(worker: &Worker) {
    let cache = worker.tcache.replace(no_cache());
    // If the pool is full, the cache is lost: only malloc knows how to free one.
    let _is_kept = cache == no_cache() || spare_cache(cache);
}
