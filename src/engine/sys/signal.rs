//! Signals: masks, handlers, alternate stacks, a signal sent to one kernel thread with a payload, and the handler of
//! signals that are to become messages.
//!
//! # Signals that become messages
//! Their handler leaves a bit in a word and wakes the thread that waits for signals ([`next_caught`]).
//!
//! ```text
//!   handler (any thread)              the waiting thread
//!   former handler, if any            s = SEQUENCE            (Acquire)
//!   PENDING |= bit     (Release)      came = PENDING.swap(0)  (Acquire)
//!   SEQUENCE += 1      (Release)      came == 0: futex wait while SEQUENCE == s
//!   futex wake
//! ```
//!
//! ## Invariants
//! 1. No signal is lost: if the swap misses the bit, the waiting thread has read `SEQUENCE` before
//!    it was raised (its Acquire pairs with the raise's Release), so the futex does not block it.
//! 2. The handler runs on the alternate stack: a green thread's stack may have little space left.
//!    The other signals are blocked meanwhile: an alternate stack of std's is too small for two
//!    handlers. The handler touches no thread-local, `errno` included. (The usual crate for this,
//!    `signal-hook-registry`, asks for no alternate stack; with one fixed action its table of
//!    actions would be of no use here.)
//! 3. A handler stays for good, and so does the stored former one.
//! 4. Nobody hears of a signal while a handler is at work. It may be running on the main thread's alternate stack, which
//!    std unmaps when any thread calls `exit`, as a thread does that is told to stop. (The few instructions of the way out
//!    are left, and the system's own.)

use core::ptr;
use std::{io, sync::OnceLock};

use super::calls::answer;
use super::mm::page;
use super::shared::AtomicStatic;
use super::{futex, kernel_thread, syscall};
use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A signal mask, as the kernel has it: bit `n - 1` for signal `n`.
pub(crate) type Mask = u64;

/// Every signal, but for the two that libc keeps to itself: it waits for their handlers.
pub(crate) const ALL: Mask = !(1 << 31 | 1 << 32 | bit(libc::SIGSEGV) | bit(libc::SIGBUS));

/// The mask bit of `signal`.
pub(crate) const fn bit(signal: i32) -> Mask {
    1 << (signal - 1)
}

/// Replaces the calling kernel thread's mask and returns the old one.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    change_mask(libc::SIG_SETMASK, mask)
}

/// The calling kernel thread's mask.
pub(crate) fn mask() -> Mask {
    change_mask(libc::SIG_BLOCK, 0)
}

/// The signals that the calling kernel thread blocks, and that wait for it or for the whole process; none if the system does
/// not tell.
pub(crate) fn pending() -> Mask {
    let mut pending: Mask = 0;
    // SAFETY: the kernel writes the mask.
    let _ = unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut pending, size_of::<Mask>()) };
    pending
}

/// Lets the calling kernel thread receive `signal`.
pub(crate) fn unblock(signal: i32) {
    change_mask(libc::SIG_UNBLOCK, bit(signal));
}

/// Changes the calling kernel thread's mask; returns the old one.
pub(crate) fn change_mask(how: i32, change: Mask) -> Mask {
    let mut old: Mask = 0;
    let (change, size) = (&raw const change, size_of::<Mask>());
    // SAFETY: the new mask is valid, and so is the place for the old one.
    let _ = unsafe { syscall!(libc::SYS_rt_sigprocmask, how, change, &raw mut old, size) };
    old
}

/// A handler of signals, with the arguments that the kernel gives it.
pub(crate) type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs `handler` for `signal`, on the alternate stack, restarting system calls. Other signals wait until it has ended.
pub(crate) fn handle(signal: i32, handler: Handler) -> io::Result<()> {
    // SAFETY: a zeroed action is valid; a set's first word has all signals.
    let blocks_all = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        (&raw mut action.sa_mask).cast::<Mask>().write(ALL);
        action
    };
    install(signal, handler, libc::SA_RESTART, &blocks_all)
}

/// The crate's handlers: they do not count as the program's.
static OWN: [OnceLock<usize>; 4] = [const { OnceLock::new() }; 4];

/// Whether `handler` is the crate's.
pub(crate) fn is_own(handler: usize) -> bool {
    OWN.iter().any(|own| own.get() == Some(&handler))
}

/// Installs the crate's `handler` for `signal`, on the alternate stack, with `flags`, and the mask of `like`.
pub(crate) fn install(
    signal: i32,
    handler: Handler,
    flags: i32,
    like: &libc::sigaction,
) -> io::Result<()> {
    let address = handler as *const () as usize;
    let is_noted = |own: &OnceLock<usize>| *own.get_or_init(|| address) == address;
    if !OWN.iter().any(is_noted) {
        super::die("the crate has more handlers than it knows of");
    }
    let mut new = *like;
    new.sa_sigaction = address;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;
    action(signal, Some(&new)).map(drop)
}

/// Sets the action of `signal`, if there is a `new` one, by the crate's `sigaction`, which knows the crate's handlers.
/// Returns the action before.
pub(crate) fn action(signal: i32, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the new action is null or valid, its handler is of the type that its flags say; libc writes the old one to a
    // valid place, and a zeroed one is valid, too.
    unsafe {
        let mut old = core::mem::zeroed();
        answer(libc::sigaction(signal, new, &mut old)).map(|_| old)
    }
}

/// Whether `signal` has its default, or is ignored and `may_be_ignored`.
pub(crate) fn is_unhandled(signal: i32, may_be_ignored: bool) -> bool {
    action(signal, None).is_ok_and(|action| match action.sa_sigaction {
        libc::SIG_DFL => true,
        libc::SIG_IGN => may_be_ignored,
        _ => false,
    })
}

/// Whether `signal` can be sent: it is, to this thread, which has it blocked, and takes it back. (qemu keeps
/// some signals for itself, but accepts handlers for them.)
pub(crate) fn is_known(signal: i32) -> bool {
    let set = bit(signal);
    let mask = change_mask(libc::SIG_BLOCK, set);
    let sent = kernel_thread::send(kernel_thread::id(), signal);
    if sent.is_ok() {
        let at_once = [0_u64; 2];
        let (set, time, size) = (&raw const set, &raw const at_once, size_of::<Mask>());
        // SAFETY: the kernel reads the set and the time.
        let _ = unsafe { syscall!(libc::SYS_rt_sigtimedwait, set, 0, time, size) };
    }
    set_mask(mask);
    sent != Err(libc::EINVAL)
}

/// An action as the kernel has it. All zero is the default action.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelAction {
    pub(crate) handler: usize,
    pub(crate) flags: usize,
    pub(crate) restorer: usize,
    pub(crate) mask: Mask,
}

/// Sets the action for `signal`, if there is a new one, without libc; returns the old one. `None`: there is no such
/// signal, or it cannot be set.
pub(crate) fn exchange_action(signal: i32, new: Option<&KernelAction>) -> Option<KernelAction> {
    let mut old = KernelAction::default();
    let (new, size) = (new.map_or(ptr::null(), ptr::from_ref), size_of::<Mask>());
    // SAFETY: the kernel reads a record, or none, and writes another.
    let answer = unsafe { syscall!(libc::SYS_rt_sigaction, signal, new, &raw mut old, size) };
    answer.ok().map(|_| old)
}

/// Restores the default action for `signal`, without libc: the program may have interposed its
/// `sigaction`.
pub(crate) fn set_default(signal: i32) {
    exchange_action(signal, Some(&KernelAction::default()));
}

/// Sends `signal` to the calling kernel thread, as `raise` does.
pub(crate) fn raise(signal: i32) {
    let _ = kernel_thread::send(kernel_thread::id(), signal);
}

/// A payload of two words that travels with a signal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Payload {
    pub(crate) who: u32,
    pub(crate) tick: u32,
}

/// The kernel's siginfo as `sigqueue` fills it in.
#[repr(C)]
#[derive(Default)]
struct QueuedInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    process: i32,
    user: u32,
    payload: Payload,
    rest: [u64; 12],
}

/// Sends `signal` with `value` to the calling kernel thread, as `pthread_sigqueue` does. Async-signal-safe; the caller
/// stays on its kernel thread.
#[cfg(answers)]
pub(crate) fn queue_to_self(signal: i32, value: libc::sigval) -> Result<(), i32> {
    // SAFETY: a value has as many bytes as a payload, which consists of numbers.
    let payload = unsafe { core::mem::transmute::<libc::sigval, Payload>(value) };
    // SAFETY: the call has no arguments.
    let user = unsafe { libc::getuid() };
    queue(user, kernel_thread::id(), signal, payload)
}

/// Sends `signal` with `payload` to kernel thread `thread` of this process; a handler sees `user`. EAGAIN: too many signals
/// wait for this user's processes.
pub(crate) fn queue(user: u32, thread: i32, signal: i32, payload: Payload) -> Result<(), i32> {
    queue_as(libc::SI_QUEUE, user, thread, signal, payload)
}

/// [`queue`] with this code.
fn queue_as(code: i32, user: u32, thread: i32, signal: i32, payload: Payload) -> Result<(), i32> {
    let process = kernel_thread::process();
    let info = QueuedInfo {
        signal,
        code,
        process,
        user,
        payload,
        ..QueuedInfo::default()
    };
    let (number, info) = (libc::SYS_rt_tgsigqueueinfo, &raw const info);
    // SAFETY: `info` has the kernel's layout and is valid for the call.
    unsafe { syscall!(number, process, thread, signal, info) }.map(drop)
}

/// libc's own signals: no mask blocks them, and the program neither sends nor awaits them.
#[cfg(hooks)]
pub(crate) const LIBCS: Mask = 3 << 31;

/// The code of a signal that [`tell`] has sent; none of the kernel's, which lets only the target send one with that of
/// `pthread_kill`.
#[cfg(hooks)]
const TOLD: i32 = -0x6774;

/// Sends `signal` to kernel thread `thread` of this process, with `value`, for [`told`].
#[cfg(hooks)]
pub(crate) fn tell(thread: i32, signal: i32, value: usize) -> Result<(), i32> {
    // SAFETY: a payload has as many bytes as a word, and consists of numbers.
    let payload = unsafe { core::mem::transmute::<usize, Payload>(value) };
    // SAFETY: the call has no arguments.
    let user = unsafe { libc::getuid() };
    queue_as(TOLD, user, thread, signal, payload)
}

/// The value with which [`tell`] sent a signal.
#[cfg(hooks)]
pub(crate) fn told(info: &libc::siginfo_t) -> Option<usize> {
    // SAFETY: a `siginfo_t` is at least as large as a `QueuedInfo` and is aligned like one; both consist of numbers, and so
    // does a word.
    unsafe {
        let info = &*ptr::from_ref(info).cast::<QueuedInfo>();
        (info.code == TOLD).then(|| core::mem::transmute::<Payload, usize>(info.payload))
    }
}

/// The record of a signal that this process has sent to one thread.
#[cfg(hooks)]
pub(crate) fn sent_here(signal: i32) -> libc::siginfo_t {
    // SAFETY: zeroes are a record, which begins as a `QueuedInfo` does; the call has no arguments.
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let sent = &mut *(&raw mut info).cast::<QueuedInfo>();
        (sent.signal, sent.code) = (signal, libc::SI_TKILL);
        (sent.process, sent.user) = (kernel_thread::process(), libc::getuid());
        info
    }
}

/// The payload of a signal that [`queue`] sent, or `None` for one from elsewhere.
pub(crate) fn payload(info: &libc::siginfo_t) -> Option<Payload> {
    // SAFETY: a `siginfo_t` is at least as large as a `QueuedInfo` and is aligned like one; both consist of numbers.
    let info = unsafe { &*ptr::from_ref(info).cast::<QueuedInfo>() };
    (info.code == libc::SI_QUEUE).then_some(info.payload)
}

/// Gives the calling kernel thread an alternate stack for signal handlers, large enough for the
/// processor's saved state. Returns where it begins, and its bytes.
pub(crate) fn give_alternate_stack() -> io::Result<(usize, usize)> {
    // Programs that ask for the size of this stack find it large enough, and green threads get no other one
    // (`libc::signals`).
    const HANDLERS_NEED: usize = 64 << 10;
    let minimum = arch::auxiliary(libc::AT_MINSIGSTKSZ) as usize;
    let size = (minimum + HANDLERS_NEED).next_multiple_of(page());
    let start = super::mm::map(size)?;
    let given = set_alternate_stack(start, size, 0).map(|_| (start, size));
    given.map_err(io::Error::from_raw_os_error)
}

/// Whether kernel threads can have alternate stacks: a filter may refuse them.
pub(crate) fn has_alternate_stacks() -> bool {
    // SAFETY: the call neither reads nor writes.
    unsafe { syscall!(libc::SYS_sigaltstack, 0, 0) }.is_ok()
}

/// Takes the alternate stack away again and unmaps it.
pub(crate) fn drop_alternate_stack() {
    if let Ok(old) = set_alternate_stack(0, 0, libc::SS_DISABLE) {
        // SAFETY: mapped by `give_alternate_stack`, and no handler runs on it: this code does not.
        let _ = unsafe { super::mm::unmap(old.ss_sp as usize, old.ss_size) };
    }
}

/// Returns the one before.
fn set_alternate_stack(start: usize, size: usize, flags: i32) -> Result<libc::stack_t, i32> {
    let stack = libc::stack_t {
        ss_sp: start as *mut libc::c_void,
        ss_flags: flags,
        ss_size: size,
    };
    // SAFETY: a zeroed stack_t is valid; both pointers are valid for the call.
    unsafe {
        let mut old: libc::stack_t = core::mem::zeroed();
        syscall!(libc::SYS_sigaltstack, &raw const stack, &raw mut old).map(|_| old)
    }
}

// ==== signals that become messages ====

/// The signals that came and were not fetched.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// The number of times that the waiting thread had a reason to look.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
/// The number of handlers that have not done all they do.
static HANDLING: AtomicU32 = AtomicU32::new(0);
/// The nanoseconds after which [`next_caught`] looks again whether handlers are at work.
const NEARLY_DONE: u64 = 20_000;
/// Whether [`catch`] was called.
static USED: AtomicBool = AtomicBool::new(false);
/// The former handlers of those signals that had one; boxes that are never freed.
static FORMER: [AtomicStatic<libc::sigaction>; 65] = [const { AtomicStatic::none() }; 65];

/// Lets [`next_caught`] return.
pub(crate) fn wake_receiver() {
    // Release: pairs with the Acquire in `next_caught`: the bit comes before.
    SEQUENCE.fetch_add(1, Ordering::Release);
    futex::wake(&SEQUENCE, 1);
}

/// Calls `prepare` and takes the signals that have come. If none has, waits until [`wake_receiver`] is called, unless that has
/// happened since `prepare`, and returns none.
pub(crate) fn next_caught(prepare: impl FnOnce()) -> Mask {
    // Acquire: pairs with the Release in `wake_receiver`.
    let sequence = SEQUENCE.load(Ordering::Acquire);
    prepare();
    // Acquire: pairs with the Release in `on_signal`.
    let came = PENDING.swap(0, Ordering::Acquire);
    if came == 0 {
        futex::wait(&SEQUENCE, sequence, None);
    }
    // Acquire: pairs with the Release in `on_signal`: all but the handler's way out is done.
    while came != 0 && HANDLING.load(Ordering::Acquire) != 0 {
        kernel_thread::rest(NEARLY_DONE);
    }
    came
}

/// Whether the program has asked for a signal.
pub(crate) fn are_caught() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Puts the handler in place, for good. `unblocked`: the signals that may interrupt it.
pub(crate) fn catch(signal: i32, unblocked: impl Iterator<Item = i32>) -> io::Result<()> {
    let former = action(signal, None)?;
    let mut ours = former;
    ours.sa_sigaction = on_signal as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the set is valid, and stays so.
    unsafe {
        libc::sigfillset(&mut ours.sa_mask);
        unblocked.for_each(|signal| _ = libc::sigdelset(&mut ours.sa_mask, signal));
    }
    if !matches!(former.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        // Release: pairs with the Acquire in the handler.
        FORMER[signal as usize].store(Some(Box::leak(Box::new(former))), Ordering::Release);
    }
    USED.store(true, Ordering::Relaxed);
    action(signal, Some(&ours)).map(drop)
}

unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if let Some(former) = FORMER[signal as usize].load(Ordering::Acquire) {
        // SAFETY: it was installed as a handler, and gets the kernel's arguments; one with fewer ignores the rest.
        unsafe {
            core::mem::transmute::<usize, Handler>(former.sa_sigaction)(signal, info, context)
        }
    }
    HANDLING.fetch_add(1, Ordering::Relaxed);
    PENDING.fetch_or(bit(signal), Ordering::Release);
    wake_receiver();
    // Release: pairs with the Acquire in `next_caught`: all but the way out is done.
    HANDLING.fetch_sub(1, Ordering::Release);
}
