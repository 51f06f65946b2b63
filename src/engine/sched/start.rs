//! A thread's stack, with its thread-local block; the thread's first time on a processor, when it gets the stack, and
//! its last, when it leaves it to others; and how many threads live.
//!
//! ```text
//!   slot:  | guard | stack ... | thread-local block | ThreadStack | Slot header |
//! ```
//!
//! Slots are never unmapped, so a [`ThreadStack`] is `&'static`; it belongs to one thread after another. An unused
//! stack can be destroyed (`stack::reclaim`): then its memory is zero, until another stack is made in the slot. A reader
//! of a stack whose thread may have ended meanwhile finds that out, and throws away what it has read
//! (`inspect::threads`); or it keeps stacks from being destroyed (`inspect::notes`).
//!
//! A thread that has been spawned is a record in a queue. Most threads run to their end without
//! waiting, and the next one can have the same stack, still in the CPU's caches: ten thousand threads that are spawned
//! at once need a few stacks, not ten thousand.
//!
//! A new stack needs memory from malloc, whose locks a preempted thread may hold; so the scheduler
//! takes free stacks only, from its processor's cache and the common list. Threads make sure that
//! there is one, while they are preemptible:
//!
//! - a processor begins with one;
//! - a thread that spawns makes one if its processor (or, from outside, the common list) has none
//!   ([`stock_up`]; if there is no memory for one, `spawn` fails);
//! - a thread that begins on its processor's last stack, or had to wait for one, makes another
//!   before anything else.
//!
//! That can be too late, as when such a thread is preempted at once. Then the thread without a stack
//! goes to the back of the queue, and the spawner, which may wait for malloc, makes a stack ([`supply`]). The worker runs
//! the queue meanwhile: a thread in it may hold malloc's lock, or end, and leave its stack. If there are thousands of
//! threads without a stack, the first of them that gets one makes the next one, and so on.
//!
//! Invariant: a slot in a processor's cache has a `ThreadStack`.
//!
//! # How many threads live
//!
//! A thread closes the cluster, and learns that the last green thread has ended.
//!
//! A spawn and an end are each one plain store, into a count of the processor where they happen. There is no
//! number of the living that all would write: it is the sum of the spawns less the sum of the ends, and is taken
//! only when it is asked for. Threads that own no processor count in a shared place, `outside`.
//!
//! The closer says that it closes, makes a barrier, and looks; then it sleeps until it is woken, and looks
//! again. A thread that has ended is counted by its run loop, which then asks whether the cluster closes,
//! and only if so whether anybody lives:
//!
//! ```text
//!   end                                     closer
//!   ended += 1                              closing = true
//!   compiler fence                          membarrier
//!   closing? then: fence, sums              fence, sums
//!   nobody lives: wake the closer           somebody lives: sleep
//! ```
//!
//! | an end whose question found | is seen by |
//! |---|---|
//! | `closing` not set | the closer, and all that make their fence after the barrier |
//! | `closing` set | any thread that makes its fence later, be it the closer or another end |
//!
//! Invariants:
//! 1. A thread's spawn is counted before the thread can run, its end after all that it does, its own spawns
//!    included; and the end before the question.
//! 2. Ends are counted with Release, and all are summed before any spawn is, with an Acquire fence between. So with an
//!    end the sums have its spawn, and what its thread has spawned: their difference is never negative. A spawn
//!    that is seen too late only makes a sum too small, so it needs no order of its own.
//! 3. If the closer finds no difference, no thread lives. The spawns in its sum are those of the threads whose ends are
//!    in it, and these have spawned nobody else (2). It knows of every spawn from outside: nobody else has
//!    the runtime any more. So nobody is left who could spawn a thread. What the threads did comes before
//!    what the closer does next.
//! 4. The closer does not sleep for ever. Of all that make a fence and sum while the cluster closes, the last to
//!    make its fence sees every end, by the table. If it is the closer, it does not sleep; if not, it wakes the
//!    closer. (A wake-up that comes before the sleep ends the sleep at once: `sched::park`.)
//! 5. A wake-up may come too early: an end may see `closing` and not see a spawn from outside that came before. So
//!    the closer looks again.
//!
//! The fence before the sums cannot be left to the membarrier: of two threads that end at once after it, on two
//! processors, neither might see the other's count.
//!
//! # Orderings
//!
//! A thread, a record or a stack changes hands by a queue, by a list under its lock, or with the processor: the rest of
//! this file needs orderings only for observers, who read stacks of others.

use std::io;

use crate::engine::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*, compiler_fence, fence,
};
use crate::engine::inspect::notes;
use crate::engine::policy::Readied;
use crate::engine::sched::current::{self, Entered, enter};
use crate::engine::sched::switch::{Bounds, no_cache, spare_cache};
use crate::engine::sched::thread::{Records, SystemName};
use crate::engine::sched::{
    Cluster, Green, Owned, RunLoop, Worker, idle::Rested, joinable::Joinable, processor::Counts,
    ready_globally, tuning::SOON,
};
use crate::engine::stack::{self, Slot, reclaim::Stays};
use crate::engine::sys::{self, kernel_thread, perturb, sanitizer, shared::AtomicStatic};
use crate::engine::tls;

// ==== a thread's stack ====

#[repr(align(64))]
pub(crate) struct ThreadStack {
    pub(crate) thread_pointer: *mut u8,
    /// The address of malloc's word for its per-thread cache, in this block; null if it was not
    /// found.
    pub(crate) tcache: *mut usize,
    pub(crate) bounds: Bounds,
    pub(crate) slot: &'static Slot,
    /// The thread to which the stack belongs, or belonged last; for the fault handler.
    owner: AtomicStatic<Green>,
    /// The owner's.
    pub(crate) cpu_time: AtomicU64,
    /// The owner's.
    pub(crate) fiber: sanitizer::Fiber,
    /// The name that the owner has given itself by a call of C's; [`NAMED`] in the place of the last NUL if it has.
    name: [AtomicU8; 16],
    /// Who gives the stack back.
    pub(crate) joinable: Joinable,
    /// What the joiner of a thread of C's owns (`runtime::pthread`).
    pub(crate) joiner: AtomicPtr<()>,
    /// The number by which such a thread knows itself.
    pub(crate) number: AtomicU32,
    /// The owner does not let C cancel it now.
    pub(crate) is_uncancellable: AtomicBool,
    /// The owner has asked C for asynchronous cancellation.
    pub(crate) is_asynchronous: AtomicBool,
    /// The signals that are noted for the owner (`directed`).
    pub(crate) directed: AtomicU64,
}

const NAMED: u8 = 1;

// SAFETY: all fields but the owner and the name, which are atomic, are written once. The holder of the stack may touch
// the memory behind the pointers.
unsafe impl Sync for ThreadStack {}

/// The number of different distances, a cache line apart, at which stacks, and the blocks below
/// them, lie from the tops of their slots. All slots begin at the same place of a page, so
/// otherwise the blocks of a thousand threads would share the few sets of the caches to which such
/// addresses map.
const COLOURS: usize = 16;
const LINE: usize = 64;

/// The number of bytes at the top of a slot that do not belong to the stack.
pub(crate) fn reserve() -> usize {
    const TOP: usize = 1 << 40;
    let lowest = TOP - size_of::<ThreadStack>() - (COLOURS - 1) * LINE;
    TOP - tls::stack_top(tls::place(lowest)).addr()
}

impl ThreadStack {
    /// Returns a free stack with at least `size` bytes of stack. Allocates if the stack is new: call
    /// it preemptible.
    pub(crate) fn find(size: usize) -> io::Result<&'static ThreadStack> {
        let _unseen = sanitizer::unseen();
        let slot = {
            // A thread takes the lock of the common list with preemption off.
            let _off = current::preemption_off();
            stack::acquire(size)?
        };
        // Relaxed: the slot came through a lock.
        if slot.extra.load(Relaxed) != 0 {
            return Ok(ThreadStack::on(slot));
        }
        ThreadStack::make(slot).inspect_err(|_| {
            let _off = current::preemption_off();
            stack::release(slot);
        })
    }

    /// Returns the stack on a slot that [`stack::Cache`] gave out: such slots have one.
    #[inline(always)]
    pub(crate) fn on(slot: &'static Slot) -> &'static ThreadStack {
        // Relaxed: the slot is the caller's.
        ThreadStack::at(slot.extra.load(Relaxed))
    }

    /// Returns the stack to which the word of a slot leads that has one.
    #[inline(always)]
    pub(crate) fn at(extra: usize) -> &'static ThreadStack {
        // SAFETY: `extra` is the stack that `make` put there, in memory that is never unmapped.
        unsafe { &*(extra as *const ThreadStack) }
    }

    fn make(slot: &'static Slot) -> io::Result<&'static ThreadStack> {
        const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
        let colour = (slot.top() / 4096).wrapping_mul(SPREAD) >> (usize::BITS - COLOURS.ilog2());
        let at = slot.top() - size_of::<ThreadStack>() - colour * LINE;
        let at = at & !(align_of::<ThreadStack>() - 1);
        let thread_pointer = tls::place(at);
        let (bottom, top) = (slot.bottom(), tls::stack_top(thread_pointer).addr());
        // SAFETY: the slot is fresh, hence zeroed and ours alone, and large enough: see `reserve`.
        unsafe {
            tls::create(thread_pointer, bottom, top - bottom)?;
            let tcache = tls::tcache_offset().map_or(core::ptr::null_mut(), |offset| {
                thread_pointer.offset(offset).cast()
            });
            let stack = at as *mut ThreadStack;
            stack.write(ThreadStack {
                thread_pointer,
                tcache,
                bounds: Bounds { bottom, top },
                slot,
                owner: AtomicStatic::none(),
                cpu_time: AtomicU64::new(0),
                fiber: sanitizer::Fiber::new(),
                name: Default::default(),
                joinable: Joinable::default(),
                joiner: AtomicPtr::default(),
                number: AtomicU32::new(0),
                is_uncancellable: AtomicBool::new(false),
                is_asynchronous: AtomicBool::new(false),
                directed: AtomicU64::new(0),
            });
            // Release: pairs with the Acquire in `owner_of`, which a fault handler calls.
            slot.extra.store(at, Release);
            #[cfg(asan)]
            sanitizer::holds_pointers(slot.bottom(), slot.top());
            Ok(&*stack)
        }
    }

    /// Gives the memory of a free stack back. An error: it cannot be had now, and the slot, which the
    /// caller has taken out of its list, is the caller's as before.
    ///
    /// Takes malloc's locks: call it on a kernel thread that runs no green thread.
    pub(crate) fn destroy(slot: &'static Slot) -> Result<(), Stays> {
        let stack = ThreadStack::on(slot);
        // Locked memory (`mlock`) cannot be given back, and without the address of malloc's word the cache cannot be found.
        if stack.tcache.is_null() || stack::trim(slot).is_err() {
            return Err(Stays::ForEver);
        }
        let extra = slot.extra.swap(0, Relaxed);
        let gives_cache = || {
            // SAFETY: the word is in the block of a free stack, which is the caller's.
            !stack.has_cache() || spare_cache(unsafe { stack.tcache.read() })
        };
        if !(notes::no_section_is_open() && gives_cache()) {
            // Release: as in `make`.
            slot.extra.store(extra, Release);
            return Err(Stays::ForNow);
        }
        perturb::point("stack: dismantled");
        #[cfg(asan)]
        sanitizer::holds_no_pointers(slot.bottom(), slot.top());
        // SAFETY: its thread has ended, nobody sees the stack or can get it, it has no cache, and the block was all in
        // the slot that was of use.
        unsafe {
            tls::destroy(stack.thread_pointer);
            stack::decommit(slot);
        }
        Ok(())
    }

    /// The stack belongs to `green` from now on.
    #[inline(always)]
    pub(super) fn belong_to(&self, green: &'static Green) {
        // Relaxed: the handler that asks runs on this stack.
        self.owner.store(Some(green), Relaxed);
        self.cpu_time.store(0, Relaxed);
        self.fiber.begin(self.thread_pointer);
        self.name[15].store(0, Relaxed);
        self.joinable.forget();
        self.directed.store(0, Relaxed);
        self.is_uncancellable.store(false, Relaxed);
        self.is_asynchronous.store(false, Relaxed);
        tls::forget_cancellation(self.thread_pointer);
    }

    /// The owner, the caller, gives itself a name.
    pub(super) fn set_own_name(&self, mut name: SystemName) {
        name[15] = NAMED;
        // Relaxed: a report that reads the name meanwhile may see parts of two names.
        let bytes = self.name.iter().zip(name);
        bytes.for_each(|(place, byte)| place.store(byte, Relaxed));
    }

    /// The name that the owner has given itself.
    pub(crate) fn own_name(&self) -> Option<SystemName> {
        let mut name = self.name.each_ref().map(|byte| byte.load(Relaxed));
        (core::mem::take(&mut name[15]) == NAMED).then_some(name)
    }

    /// [`ThreadStack::own_name`], where it lies, for the owner.
    fn name_in_place(&self) -> Option<&str> {
        let name = self.own_name()?;
        let length = name.iter().position(|&byte| byte == 0)?;
        // SAFETY: the bytes are initialised, and only the owner, on whose behalf this runs, changes them.
        let bytes = unsafe { core::slice::from_raw_parts(self.name.as_ptr().cast(), length) };
        core::str::from_utf8(bytes).ok()
    }

    /// Whether the last owner has left malloc's cache behind, because there was no place for it
    /// elsewhere (`switch`).
    #[inline(always)]
    pub(super) fn has_cache(&self) -> bool {
        // SAFETY: the word is in the block, which is the caller's while the stack belongs to no thread that lives.
        !self.tcache.is_null() && unsafe { self.tcache.read() != no_cache() }
    }

    /// The stack on `slot` and its owner, if that thread lives at this moment. Takes no lock.
    pub(crate) fn owner_of(slot: &Slot) -> Option<(&'static ThreadStack, &'static Green)> {
        // Acquire: pairs with the Release in `make`.
        let extra = slot.extra.load(Acquire);
        let stack = (extra != 0).then(|| ThreadStack::at(extra))?;
        // A stack that is destroyed meanwhile reads as zero, and has no owner.
        let green = stack.owner.load(Relaxed)?;
        let is_on_it = green.stack().is_some_and(|own| core::ptr::eq(own, stack));
        is_on_it.then_some((stack, green))
    }

    /// The stack with this control block.
    pub(crate) fn of_pthread(pthread: usize) -> Option<&'static ThreadStack> {
        // Acquire: pairs with the Release in `make`.
        let extra = stack::find(pthread)?.extra.load(Acquire);
        let stack = (extra != 0).then(|| ThreadStack::at(extra))?;
        (stack.pthread() == pthread).then_some(stack)
    }

    /// The name that libc has for the owner.
    pub(crate) fn pthread(&self) -> usize {
        tls::control_block(self.thread_pointer)
    }
}

/// The name of the thread on `slot`; for the fault handler, so it takes no lock.
pub(crate) fn name_of(slot: &'static Slot) -> &'static str {
    // The handler runs on behalf of the thread that faulted: its record and its identity
    // are alive. (If a stray pointer led another thread here, the last owner may have gone.)
    let owner = ThreadStack::owner_of(slot);
    let name = owner.and_then(|(stack, green)| green.name().or_else(|| stack.name_in_place()));
    name.unwrap_or("<unnamed>")
}

// ==== how many live ====

/// What a cluster has of this, beside the counts of its processors.
#[derive(Default)]
pub(crate) struct LiveCount {
    /// Of threads without a processor: shared.
    pub(crate) outside: Counts,
    /// A thread waits for the last green thread to end.
    closing: Closing,
}

/// It lies apart: each end reads it, while others spawn from outside.
#[derive(Default)]
#[repr(align(128))]
struct Closing(AtomicBool);

/// One of a processor's counts.
pub(crate) type Count = fn(&Counts) -> u64;

impl LiveCount {
    /// How many green threads have been spawned and have not ended. `inside` sums a count of all processors, those
    /// too that have come since it was last called.
    pub(crate) fn live(&self, inside: impl Fn(Count) -> u64) -> usize {
        let sum = |count: Count| inside(count) + count(&self.outside);
        let ended = sum(|counts| counts.ended.get());
        // Acquire: with an end comes the spawn (invariant 2); partner: Release in `Counter::add` and
        // `Counter::add_shared`.
        fence(Acquire);
        let spawned = sum(|counts| counts.spawned.get());
        (spawned - ended) as usize
    }

    /// A green thread has ended, and been counted. True: it was the last of a closing cluster, or may have been, and
    /// the caller wakes the closer.
    #[inline]
    pub(crate) fn was_last(&self, inside: impl Fn(Count) -> u64) -> bool {
        // SeqCst: partner: the barrier in `close`: the closer sees our count, or we see that it closes.
        compiler_fence(SeqCst);
        self.closing.0.load(Relaxed) && self.is_drained(inside)
    }

    #[cold]
    fn is_drained(&self, inside: impl Fn(Count) -> u64) -> bool {
        // SeqCst: of two that sum at once, two ends or an end and the closer, one sees the other's count; partner:
        // itself. (For the closer its barrier would do.)
        fence(SeqCst);
        self.live(inside) == 0
    }

    /// Returns when every green thread has ended. `wait` returns after [`was_last`](LiveCount::was_last) has been true
    /// for somebody. Nobody spawns from outside any more.
    pub(crate) fn close(&self, inside: impl Fn(Count) -> u64, wait: impl Fn()) {
        self.closing.0.store(true, Relaxed);
        perturb::point("close: closing");
        // Partner: the compiler fence in `was_last`: a thread that does not see `closing` has counted before our sums.
        kernel_thread::barrier();
        while !self.is_drained(&inside) {
            wait();
        }
    }
}

// ==== the first time, and the last ====

/// `green`, which is new, gets a stack, if there is one at hand.
#[inline]
pub(super) fn give_stack(mut processor: Owned<'_>, green: &'static Green) -> bool {
    #[cfg(test)]
    if tests::refuses(processor.cluster()) {
        return false;
    }
    let stacks = &mut processor.own().stacks;
    let slot = stacks.fetch().then(|| stacks.pop()).flatten();
    let Some(slot) = slot else { return false };
    green.took_last.set(stacks.is_empty());
    green.start_on(ThreadStack::on(slot));
    true
}

/// `green`, which is new and the calling thread's, gets its stack at once. Allocates if there is none: call it preemptible.
pub(crate) fn with_stack(cluster: &'static Cluster, green: &'static Green) -> io::Result<()> {
    while let Some(mut entered) = enter_here(cluster) {
        if give_stack(entered.processor(), green) {
            return Ok(());
        }
        drop(entered);
        stock_up(cluster)?;
    }
    green.start_on(ThreadStack::find(cluster.config.stack_size)?);
    Ok(())
}

/// Enters the runtime if the calling thread is one of the cluster's.
fn enter_here(cluster: &Cluster) -> Option<Entered> {
    enter().filter(|entered| entered.worker.is_of(cluster))
}

/// There was no stack for `green`, which goes to the back of the queue while the spawner makes one.
#[cold]
#[inline(never)]
pub(super) fn find_stack(run: &mut RunLoop, green: &'static Green) -> Rested {
    let worker = run.worker();
    worker.use_native_tls();
    let cluster = worker.cluster();
    if !cluster.needs_stack.swap(true, Relaxed) {
        cluster.spawner.ring();
    }
    perturb::point("find_stack: waits");
    // The policy has counted the thread as a spawned one already.
    ready_globally(green, Readied::Arrived);
    kernel_thread::give_way();
    Rested::Working { searching: false }
}

/// The spawner makes a stack, if a thread waits for one. `failures`: how often in a row there was no memory for it.
pub(super) fn supply(cluster: &'static Cluster, failures: &mut u32) {
    if !cluster.needs_stack.swap(false, Relaxed) {
        return;
    }
    let Err(error) = stock_up(cluster) else {
        *failures = 0;
        return;
    };
    *failures = failures.saturating_add(1);
    // By then threads have waited for a second.
    if *failures == 1000 {
        sys::say(format_args!(
            "threads that were spawned wait for a stack: {error}"
        ));
    }
    kernel_thread::rest(SOON);
}

/// The thread has ended: its block is reset, and others can use its stack and its record.
#[inline(always)]
pub(super) fn end(worker: &Worker, processor: Option<&mut Owned<'_>>, green: &'static Green) {
    let cluster = worker.cluster();
    green.locks.set(0);
    let stack = green.end();
    // SAFETY: the thread has ended, nobody uses its block.
    unsafe { tls::recycle(stack.thread_pointer) };
    stack.fiber.end(stack.slot.bottom(), stack.slot.top());
    let is_free = stack.joinable.end();
    match processor {
        Some(processor) => {
            let own = processor.own();
            if is_free {
                own.stacks.push(stack.slot);
            }
            own.records.push(green);
            processor.counts.ended.add(1);
        }
        None => {
            if is_free {
                stack::release(stack.slot);
            }
            Records::release(green);
            cluster.live_count.outside.ended.add_shared(1);
        }
    }
    perturb::point("end: counted");
    if cluster.live_count.was_last(|count| cluster.sum(count)) {
        worker.use_native_tls();
        say_drained(cluster);
    }
}

#[cold]
#[inline(never)]
fn say_drained(cluster: &'static Cluster) {
    cluster.closer.wake();
}

/// Makes sure that there is a stack for the next thread that starts: on the caller's processor, if
/// the caller is a green thread of `cluster`, else in the common list. Preemptible.
#[cold]
#[inline(never)]
pub(crate) fn stock_up(cluster: &'static Cluster) -> io::Result<()> {
    let size = cluster.config.stack_size;
    let is_stocked = match enter_here(cluster) {
        Some(mut entered) => entered.processor().own().stacks.fetch(),
        None => {
            let _off = current::preemption_off();
            stack::is_stocked(size)
        }
    };
    if is_stocked {
        return Ok(());
    }
    give(ThreadStack::find(size)?, stack::Cache::keep);
    Ok(())
}

/// Gives back the stack of a thread of C's that has ended (`joinable`).
pub(crate) fn give_back(stack: &'static ThreadStack) {
    give(stack, stack::Cache::push);
}

/// Gives a free stack to the caller's processor, or to the common list.
fn give(stack: &'static ThreadStack, keep: fn(&mut stack::Cache, &'static Slot)) {
    match enter() {
        Some(mut entered) => keep(&mut entered.processor().own().stacks, stack.slot),
        None => {
            let _off = current::preemption_off();
            stack::release(stack.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::atomic::AtomicUsize;
    use crate::policy::{ForOthers, Lock, Next, Others, Policy, Queue, Ready, Seat};
    use crate::runtime::{Mode, Runtime};
    use std::sync::Arc;

    /// Clusters with stacks of this size find no stack at hand, every other time.
    const SCARCE: usize = 2 * stack::MIN_SIZE;
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn refuses(cluster: &Cluster) -> bool {
        cluster.config.stack_size == SCARCE && ASKED.fetch_add(1, Relaxed).is_multiple_of(2)
    }

    /// One queue, and a count of the threads that were given as new.
    #[derive(Default)]
    struct Counting(Lock<Queue>, Arc<AtomicUsize>);

    impl Policy for Counting {
        fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> ForOthers {
            if how == Readied::Spawned {
                self.1.fetch_add(1, Relaxed);
            }
            self.0.lock().push(thread);
            ForOthers::Work
        }

        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            self.0.lock().pop().map(Next::from)
        }

        fn len(&self, processor: Option<usize>) -> usize {
            processor.map_or_else(|| self.0.lock().len(), |_| 0)
        }
    }

    /// Threads that find no stack, from outside and from each other, all run, once, and are new to
    /// the policy once.
    #[test]
    fn a_thread_that_finds_no_stack_gets_one() {
        const THREADS: usize = 2_000;
        let spawned = Arc::new(AtomicUsize::new(0));
        let runtime = Runtime::builder()
            .policy(Counting(Lock::default(), spawned.clone()))
            .processors(4)
            .stack_size(SCARCE)
            .build()
            .unwrap();
        if runtime.mode() == Mode::Kernel {
            return;
        }
        let runs: Arc<Vec<AtomicUsize>> =
            Arc::new((0..2 * THREADS).map(|_| AtomicUsize::new(0)).collect());
        let threads = (0..THREADS).map(|i| {
            let runs = runs.clone();
            runtime.spawn(move || {
                let others = runs.clone();
                let child = crate::spawn(move || others[THREADS + i].fetch_add(1, Relaxed));
                runs[i].fetch_add(1, Relaxed);
                if i % 3 == 0 {
                    crate::yield_now();
                }
                assert_eq!(child.join().unwrap(), 0);
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(runs.iter().all(|runs| runs.load(Relaxed) == 1));
        assert!(ASKED.load(Relaxed) >= 2 * THREADS);
        assert_eq!(spawned.load(Relaxed), 2 * THREADS);
        runtime.shutdown();
    }
}
