//! The current green thread: which one it is, its preemption count, and its way into the runtime.
//!
//! [`green`] is the first question of everything that enters the scheduler: which green thread runs here, at a
//! place where it may enter? The answer lies in the runtime's only thread-local, [`OWN`], in the green
//! thread's own block, so it is right wherever the thread runs. On any other kernel thread it is `None`.
//!
//! The thread-local is read with preemption off, and in signal handlers. In a shared library the compiler reaches a
//! thread-local by a call of the loader, which may allocate, or wait for a thread that allocates. So the distance of
//! [`OWN`] from the thread pointer, which is the same in every thread, is learnt before the first green thread
//! ([`learn`]), and from then on the address is the result of an addition.
//!
//! # Hiding
//!
//! A thread must neither enter the scheduler nor leave its kernel thread in a signal handler, which may have interrupted
//! the scheduler and has a frame that only its kernel thread can return to; nor in a child of `vfork`, which runs on its
//! parent's memory. There the thread is *hidden* ([`Hiding`]), and [`green`] answers `None`:
//!
//! | | `owner` | `frame` | `seen`: the answer |
//! |---|---|---|---|
//! | green thread | the thread | 0 | the thread |
//! | … in a handler | the thread | the address of the outermost handler's frame | none |
//! | … while a child of `vfork` runs | the thread | [`VFORK`] | none |
//! | kernel thread | none | 0, or as above | none |
//!
//! `seen` follows from the others. A yield takes 2 % less with one word to look at.
//!
//! A handler may be left by `siglongjmp`, or by unwinding. Then the stack pointer lies above the handler's frame, or on
//! another stack, at the next question, which finds that out and ends the hiding ([`Hiding::still_hides`]).
//!
//! Invariants:
//! 1. Only the thread and the handlers that interrupt it touch these words, and each handler is done
//!    before the thread goes on. A handler that interrupts another one's first or last instructions here
//!    leaves the words as they were.
//! 2. A hidden thread is not preempted: the program's handlers run with the preemption signal blocked, and
//!    [`ThreadFlags::HIDDEN`] is for those that unblock it. The flag is set before the frame, and removed after it.
//! 3. A handler, when it ends, undoes what it has changed itself, and no more.
//! 4. `seen` changes after the frame, both ways: a handler that comes between finds the frame, and leaves `seen` empty for
//!    the outer one; or it finds none, and leaves the owner there, as the outer one is about to.
//!
//! # The way in
//!
//! A thread is preempted only while its count `off` is zero. It raises the count to enter the runtime
//! ([`enter`]), or where it must not be interrupted ([`preemption_off`]).
//!
//! Between [`enter`] and the end of [`Entered`] the thread is not preempted and its processor is not
//! taken, so a value that it reads of them stays true. The way in takes three steps whose order
//! matters:
//!
//! ```text
//!   thread                                  monitor (sched::processor)
//!   off += 1                                processor word: p -> null
//!   compiler fence                          membarrier
//!   read the processor word                 read off, current, tick
//! ```
//!
//! Either the thread reads null and takes the slow way, or the monitor reads `off != 0` and gives p
//! back: the membarrier makes the compiler fence a full one at the only moment that matters. The
//! way out is a Release store of `off`, which pairs with the monitor's Acquire load: the next owner
//! of the processor sees all changes that were made to it here. On its way out a thread whose time
//! slice is over gives way (the first of the three steps of preemption).
//!
//! # Calls that block
//!
//! A thread that is about to block, or may, announces that by a flag in its record, which the monitor
//! reads. A thread that has announced a blocking call loses its processor at once if others wait; a thread in a
//! call that may block is not signalled. The front defines functions with the names of libc's, and each of them asks
//! first whether the calling thread is to be parked ([`is_hooked`]). In an announced call a thread means the kernel's
//! function; in a signal handler, or in a child that shares or has copied its memory, it is nobody's.

use core::marker::PhantomData;

use crate::engine::atomic::{
    AtomicBool, AtomicIsize, AtomicU32, Cell, Ordering::*, compiler_fence, const_fn,
};
use crate::engine::sched::{Green, Owned, Processor, ThreadFlags, Worker, fork, switch::Action};
use crate::engine::sys::sanitizer::{self, Unseen};
#[cfg(sim)]
use crate::engine::sys::simulated;
use crate::engine::sys::{kernel_thread, perturb, shared::AtomicStatic, shared::entry_fence};
use crate::engine::{arch, tls};

// ==== hiding ====

/// The frame of no handler: a child of `vfork` runs on this thread's memory.
pub(crate) const VFORK: usize = usize::MAX;

/// Which green thread this is, and where it is hidden; see the table above.
pub(crate) struct Hiding {
    /// The green thread where it is not hidden: so the usual answer is one word.
    seen: Cell<Option<&'static Green>>,
    /// The green thread, hidden or not; `None`: a kernel thread's words.
    owner: Cell<Option<&'static Green>>,
    pub(crate) frame: Cell<usize>,
}

/// What [`Hiding::hide`] has changed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Changed {
    /// The thread was not hidden before.
    pub(crate) frame: bool,
    flag: bool,
}

impl Hiding {
    const_fn! {
        /// The words of a kernel thread.
        pub(crate) const fn new() -> Hiding {
            Hiding {
                seen: Cell::new(None),
                owner: Cell::new(None),
                frame: Cell::new(0),
            }
        }
    }

    /// The words are `owner`'s from now on; `None`: a kernel thread's.
    pub(crate) fn belong_to(&self, owner: Option<&'static Green>) {
        self.owner.set(owner);
        self.seen.set(owner);
    }

    /// The green thread, if it is not hidden.
    #[inline(always)]
    pub(crate) fn green(&self) -> Option<&'static Green> {
        self.seen.get().or_else(|| self.unseen())
    }

    #[cold]
    fn unseen(&self) -> Option<&'static Green> {
        match self.is_hidden() {
            true => None,
            false => self.owner.get(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_hidden(&self) -> bool {
        match self.frame.get() {
            0 => false,
            frame => self.still_hides(frame, core::ptr::from_ref(&frame).addr()),
        }
    }

    /// A handler begins that has its frame at `frame`, or the thread is about to make a child by `vfork`.
    pub(crate) fn hide(&self, frame: usize) -> Changed {
        // The frames of an inner handler lie below the outer one's, and so does its own frame. (`VFORK` is no place.)
        let here = if frame == VFORK {
            core::ptr::from_ref(&frame).addr()
        } else {
            frame
        };
        let is_outermost = match self.frame.get() {
            0 => true,
            outer => !self.still_hides(outer, here),
        };
        let owner = self.owner.get();
        let told = owner.filter(|green| !green.flags.has(ThreadFlags::HIDDEN));
        if let Some(green) = told {
            green.flags.add(ThreadFlags::HIDDEN);
        }
        // The fence keeps the order that invariant 2 asks for, as a handler on this kernel thread sees it.
        compiler_fence(SeqCst);
        if is_outermost {
            self.frame.set(frame);
        }
        compiler_fence(SeqCst);
        self.seen.set(None);
        Changed {
            frame: is_outermost,
            flag: told.is_some(),
        }
    }

    /// Takes a [`hide`](Hiding::hide) back.
    pub(crate) fn reveal(&self, changed: Changed) {
        if changed.frame {
            self.frame.set(0);
            compiler_fence(SeqCst);
            self.seen.set(self.owner.get());
        }
        // As in `hide`.
        compiler_fence(SeqCst);
        if changed.flag
            && let Some(green) = self.owner.get()
        {
            green.flags.remove(ThreadFlags::HIDDEN);
        }
    }

    /// The thread is hidden no longer, whatever has hidden it.
    pub(crate) fn reveal_all(&self) {
        self.reveal(Changed {
            frame: true,
            flag: true,
        });
    }

    /// Whether the handler with this frame runs still, or the child of `vfork`; the stack pointer is about `here`. If the
    /// handler has been left without returning, this ends the hiding.
    #[cold]
    fn still_hides(&self, frame: usize, here: usize) -> bool {
        let hides = frame == VFORK || self.is_alive(frame, here);
        if !hides {
            self.reveal_all();
            // The handler was left without `sigreturn`, so the thread may still have the handler's signal mask.
            if let Some(green) = self.owner.get() {
                green.flags.add(ThreadFlags::MASK);
                // Nor has the call returned that it may have interrupted.
                #[cfg(hooks)]
                green.interruption.store(0, Relaxed);
                // Nor has the operation ended that it may have interrupted.
                #[cfg(sim)]
                green.observed[1].store(0, Relaxed);
            }
        }
        hides
    }

    /// Whether the handler with this frame has not been left: the frames of what it calls lie below its own. A handler
    /// on the alternate stack has been left if the thread is on its own stack.
    fn is_alive(&self, frame: usize, here: usize) -> bool {
        let stack = self.owner.get().and_then(Green::bounds);
        let on_stack = |address| stack.is_some_and(|stack| stack.holds(address));
        match (on_stack(frame), on_stack(here)) {
            (false, true) => false,
            (true, false) => true,
            _ => here < frame,
        }
    }
}

// ==== who am I ====

thread_local! {
    /// What the runtime keeps in a thread's block.
    static OWN: Hiding = const { Hiding::new() };
}

/// From the thread pointer to [`OWN`]; 0 as long as there are no green threads.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// Learns where [`OWN`] lies. The error says that the distance is not the same in every thread, since the library that
/// has the thread-local was loaded after the program.
pub(crate) fn learn() -> Result<(), String> {
    let place = OWN.with(|own| core::ptr::from_ref(own).cast::<u8>());
    let distance = tls::distance_in_block(place);
    let distance =
        distance.ok_or("the loader has put its thread-locals into memory of their own")?;
    // Relaxed: a thread that runs green threads, or is one, has seen that they were begun.
    DISTANCE.store(distance, Relaxed);
    Ok(())
}

/// The calling thread's [`OWN`]; `None` as long as there are no green threads.
#[inline(always)]
fn own<'a>() -> Option<&'a Hiding> {
    #[cfg(not(greenthread_points))]
    let distance = DISTANCE.load(Relaxed);
    // SAFETY: the word is aligned, and written before the first green thread. This load is no schedule point.
    #[cfg(greenthread_points)]
    let distance = unsafe { DISTANCE.as_ptr().read_volatile() };
    let place = arch::thread_pointer().wrapping_offset(distance);
    // SAFETY: OWN lies there in the calling thread's block, which is there for as long as the thread runs.
    (distance != 0).then(|| unsafe { &*place.cast::<Hiding>() })
}

/// The running green thread, at a place where it may enter the scheduler; `None` on a kernel thread that
/// runs none, and where the thread is hidden.
#[inline]
pub(crate) fn green() -> Option<&'static Green> {
    own()?.green()
}

/// The green thread whose thread pointer this is, hidden or not.
pub(crate) fn owner() -> Option<&'static Green> {
    own()?.owner.get()
}

/// A word that is 0 in a child of a process with a runtime: the kernel clears the word's page there (`fork`).
pub(super) static IS_PARENT: AtomicStatic<AtomicU32> = AtomicStatic::none();

/// Whether this process was forked from one with a runtime.
#[inline]
pub(crate) fn is_forked_child() -> bool {
    // Acquire: the word; partner: Release in `fork::register`.
    let word = IS_PARENT.load(Acquire);
    word.is_some_and(|word| word.load(Relaxed) == 0) && fork::begin_as_child()
}

/// Whether this is in a child of `vfork`, which is another process.
pub(crate) fn is_child_of_vfork() -> bool {
    own().is_some_and(|own| own.frame.get() == VFORK)
}

/// Whether this is in a signal handler of the program's, or in a child of `vfork`: it may have interrupted
/// the scheduler, or a lock's holder.
#[inline]
pub(crate) fn is_hidden() -> bool {
    own().is_some_and(Hiding::is_hidden)
}

/// Hides the calling thread: a handler begins that has its frame at `frame`, or the thread is about to
/// make a child by `vfork`. Async-signal-safe.
pub(crate) fn hide(frame: usize) -> Changed {
    own().map_or_else(Changed::default, |own| own.hide(frame))
}

/// Takes a [`hide`] back.
pub(crate) fn reveal(changed: Changed) {
    if let Some(own) = own() {
        own.reveal(changed);
    }
}

/// The thread is hidden no longer, whatever has hidden it.
pub(crate) fn reveal_all() {
    if let Some(own) = own() {
        own.reveal_all();
    }
}

/// The alternate stack of the kernel thread that runs the calling green thread: where it begins, and its bytes.
pub(crate) fn alternate_stack() -> Option<(usize, usize)> {
    let _off = preemption_off();
    green().map(|green| green.worker().alternate_stack.get())
}

/// The signal mask may have been changed, here or by the code to which this returns: the thread takes its mask along
/// from now on.
pub(crate) fn mask_changed() {
    if let Some(green) = owner() {
        green.flags.add(ThreadFlags::MASK);
    }
}

/// Makes `owner`, whose first code this is, the current green thread, with preemption off. `None`: the calling thread
/// is a kernel thread from now on, the only one in a forked child.
#[inline(never)]
pub(crate) fn begin(owner: Option<&'static Green>) {
    if let Some(own) = own() {
        own.belong_to(owner);
    }
}

/// Whether the caller runs with preemption off, or is a kernel thread of the runtime that owns a processor. For tests:
/// such code must not allocate.
pub fn is_preemption_off() -> bool {
    #[cfg(sim)]
    if simulated::is_over() {
        return false;
    }
    match green() {
        Some(green) => green.off.load(Relaxed) != 0,
        None => Worker::all()
            .filter(|worker| worker.processor.get().is_some())
            .any(|worker| worker.thread() == kernel_thread::id()),
    }
}

/// Whether the program has installed a handler, which may run in the scheduler; those for faults do not count.
pub(crate) static HANDLERS_EXIST: AtomicBool = AtomicBool::new(false);

/// A word that tells the calling thread, green or kernel, from all others that live: the address of its
/// control block.
#[inline(always)]
pub(crate) fn mark() -> usize {
    arch::thread_pointer() as usize
}

/// Raises the count of `green`, the current thread.
#[inline(always)]
pub(crate) fn off(green: &Green) {
    #[cfg(all(sim, greenthread_points))]
    if simulated::is_on() {
        // SAFETY: the current thread's word, which one kernel thread alone writes. These are no schedule points.
        return unsafe { *green.off.as_ptr() += 1 };
    }
    green.off.store(green.off.load(Relaxed) + 1, Relaxed);
    // The fence pairs with the monitor's membarrier. It keeps the store before all that the caller
    // does, as a signal handler on this kernel thread sees it.
    entry_fence();
}

/// Lowers the count again. At zero the thread may be preempted, and its processor taken.
#[inline(always)]
pub(crate) fn on(green: &Green) {
    #[cfg(all(sim, greenthread_points))]
    if simulated::is_on() {
        // SAFETY: as in `off`.
        return unsafe { *green.off.as_ptr() -= 1 };
    }
    // Release: pairs with the Acquire load of `off` in `sched::monitor`.
    green.off.store(green.off.load(Relaxed) - 1, Release);
}

/// Keeps preemption off until it is dropped. It holds no processor: it is for code that uses none.
pub(crate) struct PreemptionOff(Option<&'static Green>, PhantomData<*mut ()>);

/// Switches preemption off. On a kernel thread that runs no green thread this does nothing.
#[inline]
pub(crate) fn preemption_off() -> PreemptionOff {
    let green = green();
    if let Some(green) = green {
        off(green);
    }
    PreemptionOff(green, PhantomData)
}

/// [`preemption_off`] for a guard that users get: safe code can forget any number of guards, and
/// the count must not overflow. (`Arc` aborts at as many references.)
#[inline]
pub(crate) fn preemption_off_by_user() -> PreemptionOff {
    let off = preemption_off();
    if off.0.is_some_and(|green| green.off.load(Relaxed) > 1 << 31) {
        crate::engine::sys::die("a thread has forgotten 2^31 guards of policies' locks");
    }
    off
}

impl Drop for PreemptionOff {
    #[inline]
    fn drop(&mut self) {
        if let Some(green) = self.0 {
            on(green);
        }
    }
}

/// Switches preemption off for the last time; the thread then leaves its stack for good. The guards
/// that it has forgotten (`policy::Guard`) do not concern the next thread that has its record.
#[inline]
pub(crate) fn forbid_preemption(green: &'static Green) {
    green.off.store(1, Relaxed);
    entry_fence();
}

// ==== inside the runtime ====

/// The current green thread inside the runtime: preemption off, and a processor that nobody takes
/// away.
pub(crate) struct Entered {
    pub(crate) green: &'static Green,
    pub(crate) worker: &'static Worker,
    processor: Owned<'static>,
    _unseen: Unseen,
}

/// Enters the runtime: finds the processor, or waits for one. `None` on a kernel thread that runs no green thread.
#[inline]
pub(crate) fn enter() -> Option<Entered> {
    let green = green()?;
    off(green);
    let unseen = sanitizer::unseen();
    perturb::point("enter");
    loop {
        let worker = green.worker();
        let processor = worker.processor.get().or_else(|| recover(worker));
        if let Some(processor) = processor {
            // SAFETY: the word says that this kernel thread owns it, and preemption is off.
            // (The header of `processor` says what a signal handler that interrupts the runtime may do.)
            let processor = unsafe { Owned::assume(processor) };
            return Some(Entered {
                green,
                worker,
                processor,
                _unseen: unseen,
            });
        }
        // The monitor has taken the processor, so the thread queues for another one. The run loop sees that its worker has
        // no processor, and makes the thread ready for all workers.
        // SAFETY: `green` is the current thread, so this is its stack.
        unsafe { green.context.suspend(Action::Yield) };
    }
}

/// The processor was taken, or the monitor is about to decide: settles that, then looks for an idle
/// processor.
#[cold]
#[inline(never)]
fn recover(worker: &'static Worker) -> Option<&'static Processor> {
    let given = worker.processor.settle();
    given.or_else(|| worker.cluster().take_idle_processor(worker))
}

impl Entered {
    #[inline(always)]
    pub(crate) fn processor(&mut self) -> Owned<'_> {
        self.processor.lend()
    }

    pub(crate) fn count_refused_wait(&mut self) {
        self.processor().counts.refused_waits.add(1);
    }

    /// Leaves the runtime for a moment: a thread whose slice is over does not give way.
    pub(crate) fn leave(self) {
        let green = self.green;
        core::mem::forget(self);
        compiler_fence(SeqCst);
        sanitizer::see_again();
        on(green);
    }

    /// Leaves the stack with `action`, and leaves the runtime once the thread has been resumed.
    #[inline(always)]
    pub(crate) fn suspend(self, action: Action) {
        perturb::point("suspend");
        let green = self.green;
        // Once resumed, the thread may be on another kernel thread: no part of `self` is valid any
        // more.
        core::mem::forget(self);
        // SAFETY: an `Entered` exists on its own green thread only.
        unsafe { green.context.suspend(action) };
        compiler_fence(SeqCst);
        sanitizer::see_again();
        on(green);
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        let give_way = self.worker.is_slice_over() && self.green.off.load(Relaxed) == 1;
        on(self.green);
        if give_way {
            give_way_now();
        }
    }
}

/// The time slice is over and the monitor has said so: the thread goes to the global queue.
#[cold]
#[inline(never)]
fn give_way_now() {
    if let Some(entered) = enter() {
        entered.suspend(Action::Preempt);
    }
}

/// The destination of the preemption trampoline: leaves the stack in the middle of user code.
///
/// # Safety
/// Called by the trampoline only, once for each injection: the signal handler has set `off` to 1.
pub(crate) unsafe extern "C" fn suspend_preempted() {
    if let Some(green) = green() {
        // SAFETY: the trampoline runs on the current thread's stack.
        unsafe { green.context.suspend(Action::Preempt) };
        compiler_fence(SeqCst);
        on(green);
    }
}

/// The calling thread, if it is green, and not in the runtime: there it comes to no schedule point. Points may stand at any
/// atomic operation, so this makes none.
#[cfg(sim)]
#[inline(always)]
pub(crate) fn with_points() -> Option<&'static Green> {
    // SAFETY: the words are aligned, and one kernel thread alone is there to change them.
    unsafe {
        let green = own()?.seen.get()?;
        let has_points = *green.off.as_ptr() == 0 && *green.observed[1].as_ptr() == 0;
        has_points.then_some(green)
    }
}

/// The calling thread comes to a schedule point. `decides` gets the schedule's mark of the thread, and says whether it gives way.
#[cfg(sim)]
#[inline(always)]
pub(crate) fn at_point(decides: impl FnOnce(u64) -> bool) {
    if let Some(green) = with_points() {
        // SAFETY: as above.
        unsafe {
            *green.off.as_ptr() = 1;
            if decides(*green.observed[0].as_ptr()) {
                green.context.suspend(Action::Yield);
            }
            *green.off.as_ptr() = 0;
        }
    }
}

/// The schedule's mark of the current thread, if this is a green one.
#[cfg(sim)]
pub(crate) fn own_mark() -> Option<u64> {
    // SAFETY: the current thread's own word. This is no schedule point.
    green().map(|green| unsafe { *green.observed[0].as_ptr() })
}

/// An operation of the crate's, or a hooked call, has begun: in a simulated process this is a schedule point, and inside, as
/// long as the value lives, there is none.
#[cfg(sim)]
pub(crate) struct Operation(Option<&'static Green>);

#[cfg(sim)]
#[inline]
pub(crate) fn operation(what: simulated::Step) -> Operation {
    simulated::point(what);
    without_points()
}

/// As long as the value lives, the calling thread comes to no schedule point: what is done once in a process takes none, so that
/// a seed's run is the same in a process that has run others.
#[cfg(sim)]
#[inline]
pub(crate) fn without_points() -> Operation {
    let green = simulated::is_on().then(green).flatten();
    green.inspect(|green| count_operations(green, 1));
    Operation(green)
}

#[cfg(sim)]
impl Drop for Operation {
    fn drop(&mut self) {
        self.0
            .inspect(|green| count_operations(green, -1_i64 as u64));
    }
}

/// How many of its operations the current thread is inside.
#[cfg(sim)]
#[inline]
fn count_operations(green: &Green, more: u64) {
    let count = green.observed[1].as_ptr();
    // SAFETY: one kernel thread writes the word. This is no schedule point.
    unsafe { *count = (*count).wrapping_add(more) };
}

// ==== calls that block ====

/// Runs `f`, which blocks the kernel thread.
pub(crate) fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    let _until_the_end = Saying::new(Green::ANNOUNCED);
    f()
}

/// Runs `f`, whose system calls may block but seldom do, at little more than their cost.
///
/// The thread keeps its processor until the monitor sees that it is blocked, or that it has gone on
/// for longer than its time slice. The monitor does not signal it meanwhile, so a call that a
/// signal would end early does all its work.
pub(crate) fn may_block<F: FnOnce() -> T, T>(f: F) -> T {
    let _until_the_end = Saying::new(Green::MAY_BLOCK);
    f()
}

/// Runs `f`, whose calls of libc are libc's: they block the kernel thread.
pub(crate) fn unhooked<F: FnOnce() -> T, T>(f: F) -> T {
    let _until_the_end = Saying::new(Green::UNHOOKED);
    f()
}

/// The calling thread's calls are as a flag says until this is dropped, and then as they were before.
struct Saying(u8);

impl Saying {
    // This function and `drop` are not inlined: a call costs little beside the system call that follows, and many
    // functions have such a value.
    #[inline(never)]
    fn new(flag: u8) -> Saying {
        let Some(green) = green() else {
            return Saying(0);
        };
        let before = green.calls.load(Relaxed);
        // In a simulated process no other kernel thread could go on meanwhile: there the calls park the thread.
        #[cfg(sim)]
        let flag = match simulated::is_on() {
            true => flag & Green::UNHOOKED,
            false => flag,
        };
        green.calls.store(before | flag, Relaxed);
        Saying(before)
    }
}

impl Drop for Saying {
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(green) = green() {
            green.calls.store(self.0, Relaxed);
            // The thread gives way if its slice is over. If its processor is gone, the thread takes
            // that back, or takes an idle one, or queues for one.
            drop(enter());
        }
    }
}

/// Whether a call of libc that blocks is to park the calling thread instead: a green thread, with
/// preemption on, on its own stack, that has not said otherwise.
///
/// On another stack the thread may be in a handler that came past our functions (`signals`), and runs on the kernel
/// thread's alternate stack.
#[inline]
pub(crate) fn is_hooked() -> bool {
    let here = 0_u8;
    let here = (&raw const here).addr();
    !is_forked_child()
        && green().is_some_and(|green| {
            green.off.load(Relaxed) == 0
                && green.calls.load(Relaxed) == 0
                && green.bounds().is_some_and(|stack| stack.holds(here))
        })
}

/// Counts a call of libc that parks the calling thread.
pub(crate) fn count_parked() {
    if let Some(mut entered) = enter() {
        entered.processor().counts.parked_calls.add(1);
    }
}
