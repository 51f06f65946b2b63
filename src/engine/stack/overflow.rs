//! The report of a stack overflow: which thread, which size, then abort, as with std.
//!
//! A fault whose address lies in a slot's guard is an overflow of that slot's stack. Any other goes
//! to whoever handled the signal before (std's handler, a crash reporter), as if this one were not
//! there.
//!
//! An overflow that passes the whole guard without touching it is not seen here: see the parent
//! module.
//!
//! # Invariants
//! 1. The handler is async-signal-safe and touches no thread-local: the thread pointer may be any
//!    thread's at that instruction. It allocates nothing, takes no lock, and calls nothing
//!    in libc but `memcpy`.
//! 2. It runs on the kernel thread's alternate stack: the faulting one has no room.
//! 3. `PREVIOUS` and `NAME_OF` are set before the handler is installed, and never change.

use super::{Slot, Where, find};
use crate::engine::sys;
use std::fmt::{self, Write};
use std::sync::OnceLock;

/// Passes the name of a slot's thread on, in one or more pieces. Runs in the handler: invariant 1.
pub(crate) type NameOf = fn(&'static Slot, &mut dyn FnMut(&[u8]));

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

static NAME_OF: OnceLock<NameOf> = OnceLock::new();
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

/// Installs the handler, once: later calls do nothing.
pub(crate) fn install(name_of: NameOf) {
    if NAME_OF.set(name_of).is_err() {
        return;
    }
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        // SAFETY: all zero is a valid `sigaction`; the call only reads the present one.
        let before = previous.get_or_init(|| unsafe {
            let mut before = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            before
        });
        // What the kernel would have done for the previous handler it does for this one.
        let inherited = libc::SA_NODEFER | libc::SA_RESTART;
        let action = libc::sigaction {
            sa_sigaction: handler as *const () as usize,
            sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | (before.sa_flags & inherited),
            ..*before
        };
        // SAFETY: `handler` has the signature that SA_SIGINFO demands and is async-signal-safe.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid record; only for faults (`si_code` > 0) is there an
    // address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0
        && let Some((slot, Where::Guard)) = find(address)
    {
        report(slot);
        abort();
    }
    let previous = SIGNALS
        .iter()
        .position(|&own| own == signal)
        .and_then(|i| PREVIOUS[i].get());
    let (function, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    // The kernel, too, heeds SIG_IGN only for signals that were sent, not for faults.
    if function == libc::SIG_IGN && code <= 0 {
        return;
    }
    let default = function == libc::SIG_DFL || function == libc::SIG_IGN;
    if default || flags & libc::SA_RESETHAND != 0 {
        set_default(signal);
    }
    if default {
        // A fault repeats when the handler returns; a signal that was sent must be sent again. It
        // is blocked until then.
        if code <= 0 {
            send(signal);
        }
    } else if flags & libc::SA_SIGINFO != 0 {
        type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: it was installed as such a handler, and gets what the kernel would give it.
        unsafe { std::mem::transmute::<usize, Handler>(function)(signal, info, context) };
    } else {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(i32)>(function)(signal) };
    }
}

/// Text in a fixed buffer; what does not fit is left out.
struct Message {
    bytes: [u8; 512],
    length: usize,
}

impl Message {
    fn push(&mut self, text: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text[..count]);
        self.length += count;
    }
}

impl fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

fn report(slot: &'static Slot) {
    let mut message = Message {
        bytes: [0; 512],
        length: 0,
    };
    message.push(b"\nthread '");
    if let Some(name_of) = NAME_OF.get() {
        // A name of any length leaves room for the rest.
        let mut room: usize = 256;
        name_of(slot, &mut |piece| {
            let count = piece.len().min(room);
            room -= count;
            message.push(&piece[..count]);
        });
    }
    message.push(b"' has overflowed its stack\n");
    // Integers and literals: formatting them neither allocates nor fails.
    let _ = writeln!(
        message,
        "stack size: {} bytes (Builder::stack_size or GREENTHREAD_STACK_SIZE sets it)",
        slot.size()
    );
    let text = &message.bytes[..message.length];
    let arguments = [
        libc::STDERR_FILENO as usize,
        text.as_ptr() as usize,
        text.len(),
    ];
    // SAFETY: the kernel reads `text`. Whatever comes of it, the process ends.
    let _ = unsafe { sys::call(libc::SYS_write, &arguments) };
}

/// Ends the process by SIGABRT, as `libc::abort` does, but without thread-locals and locks.
fn abort() -> ! {
    let abort = 1_u64 << (libc::SIGABRT - 1);
    let unblock = [libc::SIG_UNBLOCK as usize, &raw const abort as usize, 0, 8];
    // SAFETY: the kernel reads one word of signals. All other threads' masks are left alone.
    let _ = unsafe { sys::call(libc::SYS_rt_sigprocmask, &unblock) };
    send(libc::SIGABRT);
    // A handler of the program's ran and returned.
    set_default(libc::SIGABRT);
    send(libc::SIGABRT);
    loop {
        // SAFETY: ends the process, should the signal not have.
        let _ = unsafe { sys::call(libc::SYS_exit_group, &[127]) };
    }
}

/// Restores the default action, without libc: the program may have interposed its `sigaction`.
fn set_default(signal: i32) {
    // The kernel's record: handler, flags, restorer, mask. All zero is the default action.
    let action = [0_usize; 4];
    let arguments = [signal as usize, action.as_ptr() as usize, 0, 8];
    // SAFETY: the kernel reads the record.
    let _ = unsafe { sys::call(libc::SYS_rt_sigaction, &arguments) };
}

/// Sends `signal` to this kernel thread.
fn send(signal: i32) {
    // SAFETY: asks for numbers.
    let own = |number| unsafe { sys::call(number, &[]) }.unwrap_or(0);
    let (process, thread) = (own(libc::SYS_getpid), own(libc::SYS_gettid));
    // SAFETY: touches no memory; what the signal does is the caller's wish.
    let _ = unsafe { sys::call(libc::SYS_tgkill, &[process, thread, signal as usize]) };
}
