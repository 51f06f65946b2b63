//! Signals: the one that preempts, and those that the program handles.
//!
//! # Preemption
//!
//! The monitor sends the signal, the handler decides, the trampoline (`arch`) suspends.
//!
//! The handler runs on the kernel thread's alternate stack, touches no thread-local, and returns at
//! once. It accepts only if all of these conditions hold; else it declines, and the monitor tries
//! again or takes the processor:
//! 1. The payload names this worker and the switch that the monitor saw: a late signal hits no
//!    other thread.
//! 2. The thread is on its green stack (so: this kernel thread is that worker's, in user code),
//!    with space for the saved state, and that state is one that can be saved (`Frame::room_needed`).
//! 3. Preemption is not off.
//! 4. It is in no handler of the program's, which must not move to another kernel thread. A thread with a mask of its own
//!    is preempted as any other: the handler notes that the mask differs, and the mask travels with the thread.
//! 5. The instruction is not in libc or the loader, except in leaf functions called from outside: a
//!    thread suspended in libc may hold a lock of libc's that others need soon. The same holds for
//!    the program's own allocator if that is a library. But a thread that is about to wait in a
//!    call that begins anew can be suspended anywhere: it does nothing for others now.
//!
//! *System calls.* The monitor does not signal a thread that is blocked, or in a call that may block
//! (`current`). But a thread can enter a call while the signal is under way. The system makes most calls again by
//! itself (SA_RESTART). Of the others the hooked ones are made again by us (`src/libc`); the rest fail with EINTR, or
//! do a part, as POSIX allows.
//!
//! *One at a time.* Real-time signals queue, and the user's are limited in number. A thread that
//! blocks all signals while it computes would have one more every 50 µs. So a worker remembers
//! that a signal is on its way (`Worker::expect_signal`), and gets no other until that one has
//! come.
//!
//! *None at all* can be sent while RLIMIT_SIGPENDING is used up. That limit counts the pending
//! signals of all processes of a user, and a real-time signal is not sent without its payload. (An
//! ordinary signal would be sent, but those belong to the program.) None can either where a filter refuses the
//! call. Then the monitor takes processors, it is reported, once, and each look tries again.
//!
//! *The program's signals* for the whole process go to the threads that would take them without us
//! ([`would_take_others`]).
//!
//! Rule 5 saves time; it is not what makes preemption sound: see invariant 1 of `sched`.
//!
//! Rejected: suspending in the handler itself. The kernel would restore the old kernel thread's
//! alternate stack on the new one at `sigreturn`.
//!
//! # The program's handlers
//!
//! A handler interrupts its thread anywhere: in the scheduler, while the thread holds a lock of ours, between two
//! writes of the thread pointer. And it ends on the kernel thread on which it began: the kernel restores what
//! belongs to that kernel thread. So a handler neither enters the scheduler nor leaves its kernel thread. In place of the
//! program's handlers the kernel calls [`call_handler`], which hides the thread (`sched::current`) as long as the
//! handler runs.
//!
//! A program sets an action by `sigaction`, whose name is ours: [`set_action`] keeps the handler in [`HANDLERS`], and gives
//! the kernel [`call_handler`], with the preemption signals in its mask. It refuses those signals themselves (EINVAL, as libc does
//! for its own).
//!
//! A program can ask the kernel by itself, too. Such handlers are found by asking the kernel for all actions
//! ([`adopt`]): when a cluster starts, after a system call by `syscall(2)`, and before a thread is preempted,
//! once for all threads that the monitor preempts in one look. A handler that is found is called by [`call_handler`] from then on;
//! and since it may be running unseen, no thread is preempted before it has left its stack by itself.
//!
//! Not counted as the program's: the crate's own handlers, and the two signals that libc keeps.
//!
//! # Deferred wakes
//!
//! By way of the hooked calls of libc a handler can wake threads. It takes no lock. So it pushes a woken thread onto a
//! stack of the cluster ([`DeferredWakes`]) and wakes the monitor, which makes the thread ready. What needs a lock is a
//! *chore*: the lock's owner has registered a function, which the monitor calls, and which finds out by itself
//! what is to be done.
//!
//! Invariants:
//! 1. A thread on the stack was claimed, and belongs to the stack: `next` is its link.
//! 2. No thread is left behind, and no chore: the handler pushes, and then changes the monitor's word; the monitor looks
//!    at the stack after it has said that it sleeps. A monitor that is about to wait for its next look may miss the
//!    change, and sees the thread at that look: 10 ms later at most.
//!
//! Orderings: Release where a thread is pushed or a chore is left, and Acquire where they are taken, are
//! partners: the link, and all that the handler did.
//!
//! # User ids
//!
//! `setuid` and its like change one kernel thread. libc makes them change the process: it sends its
//! own signal to every kernel thread, and the signal's handler makes the same call and reports to
//! the thread's control block. On a kernel thread that runs a green thread, the thread pointer
//! names another block. So libc's handler is wrapped ([`wrap_libcs`]): the kernel thread's own thread pointer is put
//! back while the handler runs.

use core::ffi::{CStr, c_int};
use core::ops::{Range, RangeInclusive};
use core::{mem::transmute, ptr};
use std::{ffi::CString, io, sync::OnceLock};

use crate::engine::arch::{self, Frame};
use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use crate::engine::inspect::hold;
use crate::engine::policy::Readied;
use crate::engine::probe::{self, By, ReadyReason};
#[cfg(hooks)]
use crate::engine::sched::directed;
use crate::engine::sched::{
    Cluster, Green, ThreadFlags, Worker, current, ready_globally, spawner, switch::Bounds,
};
use crate::engine::sys::kernel_thread::{SystemCall, begins_anew, call_of, is_blocked};
use crate::engine::sys::signal::{self, KernelAction, Mask, Payload, bit};
use crate::engine::sys::{clock, kernel_thread, libraries, sanitizer, word};

// ==== preemption ====

/// A signal that is declined takes less CPU time than this, in nanoseconds.
pub(super) const HANDLING: u64 = 100_000;

/// The code in which a thread is not preempted: that of libc, of the loader, and of the allocator if it is another library.
static LIBC: OnceLock<Vec<Range<usize>>> = OnceLock::new();
/// The exceptions to it.
static LEAVES: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Installs the handler. It allocates. Once per signal is enough; more calls do no harm. (Observers hold threads by the
/// signal in a process that preempts nobody, too: the signal is not reserved there.)
pub(crate) fn install_preemption(signal: i32) -> io::Result<()> {
    LIBC.get_or_init(libc_text);
    LEAVES.get_or_init(leaf_functions);
    #[cfg(not(tsan))]
    signal::handle(signal, on_signal)?;
    #[cfg(tsan)]
    signal::handle(signal, screened)?;
    hold::SIGNAL.store(signal as u32, Relaxed);
    Ok(())
}

/// Sends the preemption signal to `worker`, for the switch to `green` that it is in. False,
/// without a signal: `green` is blocked in the kernel, or in a call that may block, or the last
/// signal has not come yet. `has_moved`: whether its CPU clock has moved since the last look; it
/// decides where the kernel does not tell. The look was at `now`.
pub(crate) fn send_preemption(worker: &Worker, green: &Green, now: u64, has_moved: bool) -> bool {
    send_if(worker, green, now, |thread| {
        let is_blocked = is_blocked(thread);
        if is_blocked == Some(true) {
            note_own_call(green, call_of(thread).as_ref());
        }
        !green.says(Green::MAY_BLOCK) && !is_blocked.unwrap_or(!has_moved)
    })
}

/// Notes whether `green`, which is blocked in `call` if that is known, makes calls by assembly of the program's own: nobody
/// repeats such a call, if a signal cuts it short.
pub(crate) fn note_own_call(green: &Green, call: Option<&SystemCall>) {
    if let Some(call) = call
        && !is_in(&LIBC, call.program_counter)
        && !green.says(Green::ANNOUNCED | Green::MAY_BLOCK)
    {
        green.calls_itself.store(true, Relaxed);
    }
}

/// Sends the signal to a worker whose thread waits in a call that begins anew, if the kernel says so:
/// the handler suspends the thread before that call, and the thread makes the call again when it goes
/// on.
pub(crate) fn evict(worker: &Worker, green: &Green, now: u64) {
    send_if(worker, green, now, |thread| {
        call_of(thread).is_some_and(|call| begins_anew(call.number, &call.arguments))
    });
}

fn send_if(worker: &Worker, green: &Green, now: u64, is_ripe: impl FnOnce(i32) -> bool) -> bool {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    // Once in each of the monitor's looks, before it interrupts a thread: looks for handlers that came past our functions,
    // with 62 system calls.
    if LATEST.swap(now, Relaxed) != now && adopt() {
        // A thread that runs now may be in such a handler: it is not preempted before it has left its stack by itself.
        Worker::all().for_each(|worker| worker.spared.store(worker.tick.load(Relaxed), Relaxed));
    }
    // Acquire, here and below: pairs with the Release stores of both in `switch::to`.
    let tick = worker.tick.load(Acquire);
    let thread = worker.thread();
    let payload = Payload {
        who: worker.index,
        tick,
    };
    thread != 0
        && worker.spared.load(Relaxed) != tick
        && worker.is_running(green)
        && green.off.load(Relaxed) == 0
        && is_ripe(thread)
        && !would_take_others(worker.cluster().base_mask)
        // The questions to the kernel take a while: another thread may run there by now.
        && worker.tick.load(Relaxed) == tick
        && worker.expect_signal(thread, || {
            let signal = worker.cluster().config.signal;
            let sent = signal::queue(0, thread, signal, payload);
            if let Err(number) = sent
                && number != libc::ESRCH
            {
                spawner::report_signals(number);
            }
            sent.is_ok()
        })
}

/// Whether a signal for the whole process is under way that a kernel thread with this mask would take. The caller blocks
/// all signals: the monitor before it sends one, the preemption signal's handler, and a worker before it takes any.
///
/// The kernel wakes one thread for such a signal, the first one if that takes it. But any thread that is about to run a
/// handler takes all signals that wait: a worker that is signalled now would take one from the program's first thread, in
/// a sleep, say, that the signal is to end. So that thread gets a moment to come to a CPU.
pub(super) fn would_take_others(mask: Mask) -> bool {
    /// How long a thread that was woken may wait for a CPU, on a busy system. Meanwhile processors are taken from
    /// threads that compute.
    const MOST: u64 = 500_000_000;
    /// Since when there has been one; 0: there is none.
    static SINCE: AtomicU64 = AtomicU64::new(0);
    // Preemption signals are not for the process: another one for this thread may be pending if the monitor has sent it
    // again.
    if signal::pending() & !(mask | reserved()) == 0 {
        SINCE.store(0, Relaxed);
        return false;
    }
    let now = clock::now();
    let begun = SINCE.compare_exchange(0, now, Relaxed, Relaxed);
    begun.is_ok() || begun.is_err_and(|since| now.saturating_sub(since) < MOST)
}

/// Waits while the calling kernel thread, which is about to have this mask, [would take](would_take_others) another
/// thread's signal; about `most` nanoseconds at most.
pub(super) fn leave_others(mask: Mask, most: u64) {
    /// Nanoseconds after which it asks again.
    const A_MOMENT: u64 = 100_000;
    let mut waited = 0;
    while waited < most && would_take_others(mask) {
        kernel_thread::rest(A_MOMENT);
        waited += A_MOMENT;
    }
}

#[cfg(tsan)]
sanitizer::screened!(screened, on_signal);

unsafe extern "C" fn on_signal(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let _unseen = sanitizer::unseen();
    // SAFETY: both are this handler's arguments, which the kernel has filled in.
    let (info, mut frame) = unsafe { (&*info, Frame::new(context)) };
    let payload = signal::payload(info);
    answer(payload, &mut frame);
    /// The signal may be for this thread alone, and wait for the end of this handler.
    const MOST: u64 = 10_000_000;
    // A signal for the process may have come since the monitor sent this one.
    leave_others(frame.mask(), MOST);
}

fn answer(payload: Option<Payload>, frame: &mut Frame<'_>) {
    let Some(payload) = payload else { return };
    if payload.who == hold::WHO {
        return hold::answer(payload, frame);
    }
    let Some(worker) = Worker::get(payload.who as usize) else {
        return;
    };
    worker.expect_no_signal();
    let Some(green) = worker.current.load(Relaxed) else {
        return;
    };
    let has_room = |stack: Bounds| {
        let needed = frame.room_needed();
        needed.is_some_and(|needed| (stack.bottom + needed..=stack.top).contains(&frame.sp()))
    };
    if !green.bounds().is_some_and(has_room)
        || worker.tick.load(Relaxed) != payload.tick
        || green.off.load(Relaxed) != 0
        || green.flags.has(ThreadFlags::HIDDEN)
        || worker.spared.load(Relaxed) == payload.tick
    {
        return;
    }
    if frame.mask() != worker.base_mask.get() {
        green.flags.add(ThreadFlags::MASK);
    }
    // SAFETY: the stack pointer lies in the green stack, which is mapped.
    let caller = unsafe { frame.return_address_of_leaf() };
    let call = frame.call_ahead();
    let waits = call.is_some_and(|(number, arguments)| begins_anew(number, &arguments));
    if !may_interrupt(frame.pc(), caller) && !waits {
        return;
    }
    green.off.store(1, Relaxed);
    // SAFETY: the space was checked; the thread is in user code with preemption on, so it may be
    // suspended.
    unsafe { frame.inject() };
}

/// Rule 5. `caller`: where the function returns to, if it is a leaf.
fn may_interrupt(pc: usize, caller: usize) -> bool {
    !is_in(&LIBC, pc) || is_in(&LEAVES, pc) && !is_in(&LIBC, caller)
}

fn is_in(code: &OnceLock<Vec<Range<usize>>>, address: usize) -> bool {
    let mut ranges = code.get().into_iter().flatten();
    ranges.any(|range| range.contains(&address))
}

/// The executable segments of libc and of the loader, and of the library that `malloc` is found in.
fn libc_text() -> Vec<Range<usize>> {
    const PARTS: [&str; 2] = ["/libc.so", "/ld-linux"];
    // SAFETY: a valid name.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) }.addr();
    let mut found = Vec::new();
    libraries::visit(|library| {
        let name = library.name.to_string_lossy();
        let allocates = || library.code().any(|range| range.contains(&malloc));
        // The loader lists the program itself without a name. A program with an allocator of its own also computes, so its code
        // is not excluded.
        if PARTS.iter().any(|part| name.contains(part)) || !name.is_empty() && allocates() {
            found.extend(library.code());
        }
    });
    found
}

/// Functions of libc that call nothing and hold nothing: a thread can be suspended in them.
fn leaf_functions() -> Vec<Range<usize>> {
    const NAMES: &str = "memcpy memmove mempcpy memset memcmp bcmp memchr memrchr rawmemchr strlen strnlen strcmp \
        strncmp strchr strrchr syscall";
    let names = NAMES.split(' ').filter_map(|name| CString::new(name).ok());
    names.filter_map(|name| function_range(&name)).collect()
}

unsafe extern "C" {
    /// The unwinder's table entry for the function at `pc`; `bases[2]` receives the function's
    /// start.
    fn _Unwind_Find_FDE(pc: *const u8, bases: *mut [usize; 3]) -> *const u8;
}

/// Where the function `name`, as it was chosen for this processor, begins and ends, according to
/// its unwind entry.
fn function_range(name: &CStr) -> Option<Range<usize>> {
    // SAFETY: dlsym with a valid name; an unwind entry has its length (4 bytes), a CIE pointer (4),
    // the function's start (4, in glibc relative to itself) and its size (4). The start is checked
    // against the unwinder's answer.
    unsafe {
        // RTLD_NEXT finds libc's function, even if the program has one of the same name.
        let address = libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as *const u8;
        if address.is_null() {
            return None;
        }
        let mut bases = [0; 3];
        let entry = _Unwind_Find_FDE(address.add(1), &mut bases);
        if entry.is_null() {
            return None;
        }
        let field = entry.add(8);
        let start =
            (field as usize).wrapping_add_signed(field.cast::<i32>().read_unaligned() as isize);
        let size = entry.add(12).cast::<u32>().read_unaligned() as usize;
        (start == bases[2] && start == address as usize).then(|| start..start + size)
    }
}

// ==== the program's handlers ====

/// As the kernel calls a handler. A handler with fewer arguments ignores the others.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// libc's own signals, whose handlers it installs by itself.
const LIBCS: RangeInclusive<c_int> = 32..=33;

/// The program's handlers, by signal. A word is read only where the kernel has [`call_handler`] for the signal.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];
/// The preemption signals of all clusters.
static RESERVED: AtomicU64 = AtomicU64::new(0);
/// The signals that the program itself ignores, and not whoever has started it.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// How often a handler of the program's has begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// The signals that preempt; 0 as long as there are no green threads.
pub(crate) fn reserved() -> u64 {
    RESERVED.load(Relaxed)
}

/// How often a handler of the program's has begun, on whatever thread. A call that fails with EINTR while this stands
/// still was interrupted for the crate's sake.
#[cfg(interposes)]
pub(crate) fn begun() -> usize {
    BEGUN.load(Relaxed)
}

/// From now on `signal` preempts.
pub(crate) fn reserve(signal: c_int) {
    RESERVED.fetch_or(bit(signal), Relaxed);
    adopt();
}

/// Whether `signal` preempts already.
pub(crate) fn is_reserved(signal: c_int) -> bool {
    reserved() & bit(signal) != 0
}

/// Whether the program itself has said that it ignores `signal`.
pub(crate) fn are_ignored(signal: c_int) -> bool {
    IGNORED.load(Relaxed) & bit(signal) != 0
}

/// What the kernel calls in place of the program's handlers.
unsafe extern "C-unwind" fn call_handler(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    BEGUN.fetch_add(1, Relaxed);
    let handler = HANDLERS[signal as usize].load(Relaxed);
    // The frames of all functions that the handler calls lie below this variable.
    let frame = 0_u8;
    let hidden = current::hide((&raw const frame).addr());
    // SAFETY: the program's handler, which takes three arguments or fewer; they are the kernel's. A mask's first word has all
    // signals.
    let is_same_mask = unsafe {
        let mask = (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>();
        let before = mask.read();
        transmute::<usize, Handler>(handler)(signal, info, context);
        mask.read() == before
    };
    current::reveal(hidden);
    if !is_same_mask {
        current::mask_changed();
    }
}

fn called() -> usize {
    call_handler as *const () as usize
}

/// Whether an action's handler is one of the program's, and not yet called by [`call_handler`].
fn is_programs(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
        && handler != called()
        && !signal::is_own(handler)
}

/// Keeps the program's handler for `signal`; returns the one before.
fn keep(signal: c_int, handler: usize) -> usize {
    const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    if !FAULTS.contains(&signal) {
        current::HANDLERS_EXIST.store(true, Relaxed);
    }
    HANDLERS[signal as usize].swap(handler, Relaxed)
}

/// Sees to it that the kernel calls [`call_handler`] in place of all of the program's handlers, with the preemption signals
/// blocked. Returns whether there was a handler that was not known. Async-signal-safe.
pub(crate) fn adopt() -> bool {
    let mut is_new = false;
    if cfg!(tsan) {
        return false; // the kernel has the sanitizer's handlers, which call the program's: `call_handler`
    }
    for signal in (1..=64).filter(|signal| !LIBCS.contains(signal)) {
        let Some(seen) = signal::exchange_action(signal, None) else {
            continue;
        };
        if seen.handler != called() && !is_programs(seen.handler) {
            continue;
        }
        let wanted = KernelAction {
            handler: called(),
            mask: seen.mask | RESERVED.load(Relaxed),
            ..seen
        };
        if wanted == seen {
            continue;
        }
        let before = is_programs(seen.handler).then(|| keep(signal, seen.handler));
        let found = signal::exchange_action(signal, Some(&wanted));
        let Some(newer) = found.filter(|found| *found != seen) else {
            is_new |= before.is_some();
            continue;
        };
        // Another thread has set an action meanwhile, and that one stays.
        if let Some(before) = before {
            let place = &HANDLERS[signal as usize];
            let _ = place.compare_exchange(seen.handler, before, Relaxed, Relaxed);
        }
        signal::exchange_action(signal, Some(&newer));
    }
    is_new
}

/// What `sigaction` does: `real`, libc's function, sets the action, and has [`call_handler`] in place of a handler of the program's.
///
/// # Safety
/// The arguments are those of `sigaction`: valid or null.
#[cfg(interposes)]
pub(crate) unsafe fn set_action(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    real: impl Fn(*const libc::sigaction) -> c_int,
) -> c_int {
    let Some(place) = usize::try_from(signal).ok().and_then(|i| HANDLERS.get(i)) else {
        return real(new);
    };
    // SAFETY: `new` and `old` are valid or null, as `sigaction` demands; `errno` is the thread's own.
    unsafe {
        let handler = new.as_ref().map(|new| new.sa_sigaction);
        let mut given = new;
        let mut before = place.load(Relaxed);
        let mut ours: libc::sigaction;
        if handler.is_some_and(|new| is_reserved(signal) && !signal::is_own(new)) {
            *libc::__errno_location() = libc::EINVAL;
            return -1;
        }
        if handler.is_some() && matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
            word::CAUGHT.store(false, Relaxed); // the crate says so once its handler is in place
        }
        // A child of `vfork` has its own actions, but its parent's memory, where the parent's handlers are kept.
        let kept = handler.filter(|&new| is_programs(new) && signal > 0);
        let kept = kept.filter(|_| !current::is_child_of_vfork());
        if let Some(handler) = kept {
            before = keep(signal, handler);
            ours = *new;
            ours.sa_sigaction = called();
            let mask: *mut Mask = (&raw mut ours.sa_mask).cast();
            *mask |= RESERVED.load(Relaxed);
            given = &ours;
        }
        let result = real(given);
        if result != 0 {
            if kept.is_some() {
                place.store(before, Relaxed);
            }
            return result;
        }
        match handler {
            Some(libc::SIG_IGN) => _ = IGNORED.fetch_or(bit(signal), Relaxed),
            Some(_) => _ = IGNORED.fetch_and(!bit(signal), Relaxed),
            None => {}
        }
        if let Some(old) = old.as_mut().filter(|old| old.sa_sigaction == called()) {
            old.sa_sigaction = before;
        }
        0
    }
}

// ==== deferred wakes ====

/// The threads of a cluster that handlers have woken.
#[derive(Default)]
pub(crate) struct DeferredWakes(AtomicPtr<Green>);

static CHORE: OnceLock<fn()> = OnceLock::new();
static IS_LEFT: AtomicBool = AtomicBool::new(false);

impl DeferredWakes {
    fn push(&self, green: &'static Green) {
        let new = ptr::from_ref(green).cast_mut();
        let push = |top: *mut Green| {
            // SAFETY: null, or a thread on the stack: records are never freed.
            green.next.set(unsafe { top.as_ref() });
            Some(new)
        };
        // Release: the link, and what the waker did; partner: Acquire in `take_handed`. Acquire: the links
        // of the threads below are handed on.
        let _ = self.0.fetch_update(AcqRel, Relaxed, push);
    }

    /// Whether nothing was left to this cluster's monitor, nor to anyone's.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null() && !IS_LEFT.load(Relaxed)
    }
}

impl Cluster {
    /// The monitor makes ready what was handed to it, in any order.
    pub(super) fn take_handed(&self) {
        if self.deferred.is_empty() {
            return;
        }
        // Acquire: partner: Release in `leave_chore`.
        if IS_LEFT.swap(false, Acquire)
            && let Some(chore) = CHORE.get()
        {
            chore();
        }
        // Acquire: partner: Release in `push`.
        // SAFETY: null, or a thread on the stack: records are never freed.
        let mut rest = unsafe { self.deferred.0.swap(ptr::null_mut(), Acquire).as_ref() };
        while let Some(green) = rest {
            rest = green.next.take();
            probe::readied(By::Outside, green, ReadyReason::Arrived);
            ready_globally(green, Readied::Woken);
        }
    }
}

/// Registers what [`leave_chore`] leaves to a monitor. `chore` allocates nothing.
pub(crate) fn register_chore(chore: fn()) {
    CHORE.get_or_init(|| chore);
}

/// A signal handler leaves the chore to the first monitor that looks.
pub(crate) fn leave_chore() {
    // Release: what the handler has noted; partner: Acquire in `take_handed`.
    IS_LEFT.store(true, Release);
    Worker::clusters().for_each(|cluster| cluster.monitor.rouse());
}

/// A signal handler leaves it to the monitor to make `green` ready.
#[cold]
pub(super) fn defer_wake(green: &'static Green) {
    let cluster = green.cluster();
    cluster.deferred.push(green);
    cluster.monitor.rouse();
}

// ==== signals for one green thread ====

/// libc's handler for its first signal, by which it cancels threads; 0 until libc has set it.
#[cfg(hooks)]
static LIBCS_CANCELLER: AtomicUsize = AtomicUsize::new(0);

/// Sees to it that the kernel calls [`on_call`] for libc's first signal. There is a runtime, and so a signal that preempts. libc sets
/// its own handler when a thread is first cancelled.
#[cfg(hooks)]
pub(crate) fn answer_calls() {
    /// signal.h's SA_RESTORER, where the architecture has it.
    const RESTORER: usize = 0x0400_0000;
    let ours = on_call as *const () as usize;
    let preempts = reserved().trailing_zeros() as c_int + 1;
    if let Some(seen) = signal::exchange_action(directed::CANCEL, None)
        && seen.handler != ours
        && let Some(like) = signal::exchange_action(preempts, None)
    {
        if seen.handler > libc::SIG_IGN {
            LIBCS_CANCELLER.store(seen.handler, Relaxed);
        }
        let action = KernelAction {
            handler: ours,
            flags: like.flags & RESTORER | (libc::SA_SIGINFO | libc::SA_RESTART) as usize,
            mask: reserved(),
            ..like
        };
        signal::exchange_action(directed::CANCEL, Some(&action));
    }
}

/// A green thread is called (`directed`), or libc cancels a kernel thread.
#[cfg(hooks)]
unsafe extern "C-unwind" fn on_call(
    number: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the handler's arguments, which the kernel has filled in; libc's handler gets them as they are.
    unsafe {
        let Some(called) = signal::told(&*info) else {
            return call_canceller(number, info, context);
        };
        let mut frame = Frame::new(context);
        let is_here = |green: &&Green| {
            green.stack().is_some_and(|stack| stack.pthread() == called)
                && green.off.load(Relaxed) == 0
                && green.bounds().is_some_and(|stack| stack.holds(frame.sp()))
        };
        let Some(green) = current::owner().filter(is_here) else {
            return;
        };
        let is_in_call = directed::is_in_call(green);
        let mut ends = is_in_call && directed::due() != 0;
        // In a handler it may be cancelled; another one waits.
        if !is_in_call && !current::is_hidden() {
            while let Some(number) = directed::take(directed::due() & !directed::OWN) {
                let restarts = call_as_the_kernel(number, signal::mask() & !frame.mask());
                ends |= restarts == Some(false);
            }
        }
        // The system call fails with EINTR. Otherwise it begins anew: what the thread was called for, it has done before.
        if ends
            && let Some((number, arguments)) = frame.call_ahead()
            && kernel_thread::may_be_cut(number, &arguments)
        {
            frame.end_call(-i64::from(libc::EINTR));
        }
        // libc's handler acts in its cancellation points alone, hooked or not.
        if directed::is_noted(green, directed::CANCEL) && is_in(&LIBC, frame.pc()) {
            signal::set_mask(frame.mask()); // the thread may unwind
            cancel_as_libc(context);
        }
    }
}

/// Calls libc's handler, if there is one.
///
/// # Safety
/// The arguments are those of a handler.
#[cfg(hooks)]
unsafe fn call_canceller(number: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let handler = LIBCS_CANCELLER.load(Relaxed);
    if handler != 0 {
        // SAFETY: libc's handler, with such arguments.
        unsafe { transmute::<usize, Handler>(handler)(number, info, context) };
    }
}

/// libc has meant its signal for the calling green thread, and sent it to nobody: its handler notes in the thread's block that it is
/// cancelled (before 2.41); or it unwinds the thread, in a system call of libc's, as `context` says.
///
/// # Safety
/// That is the context of a handler, or all zero.
#[cfg(hooks)]
unsafe fn cancel_as_libc(context: *mut libc::c_void) {
    let mut info = signal::sent_here(directed::CANCEL);
    // SAFETY: the handler looks at the record and at the context.
    unsafe { call_canceller(directed::CANCEL, &mut info, context) };
}

/// The same where the calling thread is in no system call.
#[cfg(hooks)]
pub(crate) fn cancel_here() {
    // SAFETY: all zero is a value, in which no instruction is libc's.
    unsafe {
        let mut context = core::mem::zeroed::<libc::ucontext_t>();
        cancel_as_libc((&raw mut context).cast());
    }
}

/// Does with a signal, which is the calling green thread's and not blocked, what the kernel would do: calls the program's handler, or
/// acts. `blocked` is what the caller alone blocks: it is not called within itself, but in the handler, which may be left by a jump.
/// Returns whether the handler has SA_RESTART; `None`: there is none.
#[cfg(hooks)]
pub(crate) fn call_as_the_kernel(number: c_int, blocked: Mask) -> Option<bool> {
    let action = signal::exchange_action(number, None)?;
    if action.handler != called() {
        signal::raise(number);
        return None;
    }
    let has = |flag: c_int| action.flags & flag as u32 as usize != 0;
    if has(libc::SA_RESETHAND) {
        signal::set_default(number);
    }
    let itself = if has(libc::SA_NODEFER) {
        0
    } else {
        bit(number)
    };
    let mut info = signal::sent_here(number);
    // SAFETY: libc fills a place of ours; the handler gets what the kernel would give it. The first word of a mask has all signals.
    unsafe {
        let mut context = core::mem::zeroed::<libc::ucontext_t>();
        libc::getcontext(&mut context);
        let mask = (&raw mut context.uc_sigmask).cast::<Mask>();
        mask.write(signal::mask() & !blocked);
        signal::set_mask(mask.read() | action.mask | itself);
        call_handler(number, &mut info, (&raw mut context).cast());
        signal::set_mask(mask.read() | blocked);
    }
    Some(has(libc::SA_RESTART))
}

// ==== user ids ====

/// The second real-time signal, which libc keeps to itself.
const SIGSETXID: c_int = 33;

/// libc's handler for [`SIGSETXID`]; 0 until it is wrapped.
static LIBCS_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Wraps libc's handler, which libc has installed when the first kernel thread was made. Once per process.
pub(crate) fn wrap_libcs() {
    if let Some(libcs) = signal::exchange_action(SIGSETXID, None)
        && libcs.handler > libc::SIG_IGN
    {
        LIBCS_HANDLER.store(libcs.handler, Relaxed);
        let handler = under_own_thread_pointer as *const () as usize;
        signal::exchange_action(SIGSETXID, Some(&KernelAction { handler, ..libcs }));
    }
}

unsafe extern "C-unwind" fn under_own_thread_pointer(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let id = kernel_thread::id();
    // If this interrupts the scheduler, the green thread that this thread pointer belongs to may be
    // running elsewhere by now. So the worker is found by its kernel thread; the signal is rare.
    let here = Worker::all().find(|worker| worker.thread() == id);
    let interrupted = arch::thread_pointer();
    let own = here.map_or(interrupted, |worker| worker.own_thread_pointer.get());
    // SAFETY: libc's handler, with its arguments, under the control block that it expects. This function touches no
    // thread-local itself, and puts back the thread pointer that it found.
    unsafe {
        arch::set_thread_pointer(own);
        transmute::<usize, Handler>(LIBCS_HANDLER.load(Relaxed))(signal, info, context);
        arch::set_thread_pointer(interrupted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_found_within_libc() {
        let (libc, leaves) = (libc_text(), leaf_functions());
        assert!(!libc.is_empty());
        assert!(leaves.len() >= 10, "{leaves:?}");
        for leaf in leaves {
            assert!(
                libc.iter()
                    .any(|range| range.contains(&leaf.start) && range.contains(&(leaf.end - 1)))
            );
        }
    }
}
