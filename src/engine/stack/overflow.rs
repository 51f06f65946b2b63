//! The report of a stack overflow: which thread, which size, then abort, as with std.
//!
//! A fault whose address lies in a slot's guard is an overflow of that slot's stack. A fault of a guarded
//! access (`sys::word`) ends that access. Any other goes to the previous handler of the signal (std's, a
//! crash reporter's), as if this one were not there.
//!
//! An overflow that passes the whole guard without touching it is not seen here (see the parent
//! module).
//!
//! # Invariants
//! 1. The handler is async-signal-safe and touches no thread-local: the thread pointer may be any
//!    thread's at that instruction. It allocates nothing, takes no lock, and calls nothing
//!    in libc but `memcpy`.
//! 2. It runs on the kernel thread's alternate stack: the faulting one has no room.
//! 3. `PREVIOUS` and `NAME_OF` are set before the handler is installed, and never change.

use super::{Slot, find};
use crate::engine::arch::Frame;
use crate::engine::sys::{self, signal, word};
use std::io::{Cursor, Write};
use std::{mem::transmute, sync::OnceLock, sync::atomic::Ordering::Relaxed};

/// Returns the name of a slot's thread. Runs in the handler: invariant 1.
pub(crate) type NameOf = fn(&'static Slot) -> &'static str;

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

static NAME_OF: OnceLock<NameOf> = OnceLock::new();
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

/// Installs the handler, once: later calls do nothing.
pub(crate) fn install(name_of: NameOf) {
    if NAME_OF.set(name_of).is_err() {
        return;
    }
    for (number, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let Ok(present) = signal::action(number, None) else {
            continue;
        };
        let before = previous.get_or_init(|| present);
        // The kernel treats this handler as it would have treated the previous one.
        let inherited = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        // The call fails only for a number that is no signal's.
        let _ = signal::install(number, handler, inherited, before);
    }
    word::CAUGHT.store(true, Relaxed);
}

unsafe extern "C" fn handler(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid record; only for faults (`si_code` > 0) is there an
    // address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: the handler's argument.
    if code > 0 && unsafe { Frame::new(context) }.end_access() {
        return;
    }
    if code > 0
        && let Some(slot) = find(address)
        && address < slot.bottom()
    {
        report(slot);
        abort();
    }
    let place = SIGNALS.iter().position(|&own| own == number);
    let previous = place.and_then(|i| PREVIOUS[i].get());
    let (function, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    // As in the kernel, SIG_IGN counts only for signals that were sent, not for faults.
    if function == libc::SIG_IGN && code <= 0 {
        return;
    }
    let default = function == libc::SIG_DFL || function == libc::SIG_IGN;
    if default || flags & libc::SA_RESETHAND != 0 {
        signal::set_default(number);
    }
    if default {
        // When the handler returns, the instruction that has faulted faults again. A signal that was sent must
        // be sent again: it stays blocked until the handler returns.
        if code <= 0 {
            signal::raise(number);
        }
        return;
    }
    // SAFETY: it was installed as a handler, and gets the kernel's arguments; one with fewer ignores the rest.
    unsafe { transmute::<usize, signal::Handler>(function)(number, info, context) };
}

fn report(slot: &'static Slot) {
    // The part of the text that does not fit is left out. Formatting an integer neither allocates nor fails.
    let mut message = Cursor::new([0; 512]);
    let _ = message.write_all(b"\nthread '");
    // A name of any length leaves room for the rest.
    let name = NAME_OF.get().map_or("", |name_of| name_of(slot)).as_bytes();
    let _ = message.write_all(&name[..name.len().min(256)]);
    let _ = writeln!(
        message,
        "' has overflowed its stack\n\
         stack size: {} bytes (Builder::stack_size or GREENTHREAD_STACK_SIZE sets it)",
        slot.size()
    );
    let length = message.position() as usize;
    sys::print(&message.get_ref()[..length]);
}

/// Ends the process by SIGABRT, as `libc::abort` does, but without thread-locals and locks.
fn abort() -> ! {
    signal::unblock(libc::SIGABRT);
    signal::raise(libc::SIGABRT);
    // The process still runs, so a handler of the program's has run and returned.
    signal::set_default(libc::SIGABRT);
    signal::raise(libc::SIGABRT);
    // SAFETY: it ends the process, should the signal not have.
    unsafe { libc::_exit(127) }
}
