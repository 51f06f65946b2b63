//! Signals: masks, handlers, alternate stacks, and a signal sent to one kernel thread with a
//! payload.

use std::io;

use super::{call, kernel_thread};

/// A signal mask, as the kernel has it: bit `n - 1` for signal `n`.
pub(crate) type Mask = u64;

/// Every signal, but for the two that libc keeps to itself: it waits for their handlers.
pub(crate) const ALL: Mask = !(1 << 31 | 1 << 32);

/// The mask bit of `signal`.
pub(crate) const fn bit(signal: i32) -> Mask {
    1 << (signal - 1)
}

/// Replaces the calling kernel thread's mask and returns the old one.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    let mut old: Mask = 0;
    let (new, previous) = (&raw const mask as usize, &raw mut old as usize);
    let arguments = [libc::SIG_SETMASK as usize, new, previous, size_of::<Mask>()];
    // SAFETY: both pointers are valid for the call.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, &arguments) };
    old
}

/// The calling kernel thread's mask.
pub(crate) fn mask() -> Mask {
    let mut old: Mask = 0;
    let arguments = [
        libc::SIG_BLOCK as usize,
        0,
        &raw mut old as usize,
        size_of::<Mask>(),
    ];
    // SAFETY: the pointer is valid for the call; a null set only reads.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, &arguments) };
    old
}

/// What a handler is given.
pub(crate) type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs `handler` for `signal`, on the alternate stack, restarting system calls.
pub(crate) fn handle(signal: i32, handler: Handler) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid; the handler has the type that SA_SIGINFO demands.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal, &action, core::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether nobody has installed a handler for `signal`.
pub(crate) fn is_free(signal: i32) -> bool {
    // SAFETY: reads the disposition into a valid place.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, core::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
    }
}

/// A payload of two words that travels with a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Payload {
    pub(crate) who: u32,
    pub(crate) tick: u32,
}

/// The kernel's siginfo as `sigqueue` fills it in.
#[repr(C)]
struct QueuedInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    process: i32,
    user: u32,
    value: Payload,
    rest: [u64; 12],
}

/// Sends `signal` with `payload` to kernel thread `thread` of this process. EAGAIN: too many wait for
/// this user's processes.
pub(crate) fn queue(process: i32, thread: i32, signal: i32, payload: Payload) -> Result<(), i32> {
    send(process, thread, signal, libc::SI_QUEUE, payload)
}

/// Sends `signal` to the calling kernel thread, however many wait: as if by `kill`, which the kernel holds
/// back for nobody, and which it may forget everything about but the number.
pub(crate) fn send_to_self(signal: i32) -> Result<(), i32> {
    let (process, thread) = (std::process::id() as i32, kernel_thread::id());
    send(
        process,
        thread,
        signal,
        libc::SI_USER,
        Payload { who: 0, tick: 0 },
    )
}

fn send(process: i32, thread: i32, signal: i32, code: i32, payload: Payload) -> Result<(), i32> {
    let info = QueuedInfo {
        signal,
        errno: 0,
        code,
        padding: 0,
        process,
        user: 0,
        value: payload,
        rest: [0; 12],
    };
    let info = &raw const info as usize;
    let arguments = [process as usize, thread as usize, signal as usize, info];
    // SAFETY: `info` has the kernel's layout and is valid for the call.
    unsafe { call(libc::SYS_rt_tgsigqueueinfo, &arguments) }.map(drop)
}

/// The payload of a signal that [`queue`] sent, or `None` for one from elsewhere.
///
/// # Safety
/// `info` is a handler's second argument.
pub(crate) unsafe fn payload(info: *const libc::siginfo_t) -> Option<Payload> {
    // SAFETY: siginfo is at least as large as the part of QueuedInfo that is read, and has its
    // layout.
    unsafe {
        let info = info.cast::<QueuedInfo>();
        ((*info).code == libc::SI_QUEUE).then(|| (*info).value)
    }
}

/// Gives the calling kernel thread an alternate stack for signal handlers, large enough for the
/// processor's saved state.
pub(crate) fn give_alternate_stack() -> io::Result<()> {
    // Programs that ask find it large enough, and green threads get no other (`interpose`).
    const HANDLERS_NEED: usize = 64 << 10;
    // SAFETY: reads the auxiliary vector.
    let minimum = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    let size = (minimum + HANDLERS_NEED).next_multiple_of(4096);
    let memory = super::mm::map(size)?;
    let stack = libc::stack_t {
        ss_sp: memory as *mut libc::c_void,
        ss_flags: 0,
        ss_size: size,
    };
    set_alternate_stack(&stack)
        .map(drop)
        .map_err(io::Error::from_raw_os_error)
}

/// Takes the alternate stack away again and unmaps it.
pub(crate) fn drop_alternate_stack() {
    let none = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    if let Ok(old) = set_alternate_stack(&none) {
        // SAFETY: mapped by `give_alternate_stack`, and no handler runs on it: this code does not.
        let _ = unsafe { super::mm::unmap(old.ss_sp as usize, old.ss_size) };
    }
}

fn set_alternate_stack(stack: &libc::stack_t) -> Result<libc::stack_t, i32> {
    // SAFETY: a zeroed stack_t is valid; both pointers are valid for the call.
    unsafe {
        let mut old: libc::stack_t = core::mem::zeroed();
        let (new, previous) = (&raw const *stack as usize, &raw mut old as usize);
        super::call(libc::SYS_sigaltstack, &[new, previous]).map(|_| old)
    }
}
