//! The program's signal handlers: `sigaction`, and all that is made of it: `signal` and its kin, `sigset`, `sigignore`,
//! `siginterrupt`. What becomes of a handler: `sched::handlers`.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::fail;
use super::macros::{Real, exported, interposed, when_loaded};
use crate::engine::hooks::handlers::{is_reserved, set_action};
use crate::sys::signal::{bit, is_own};

/// For the crate's own handlers, which a sanitizer is not to delay.
static SIGACTION_OF_LIBC: Real = Real::of_libc("sigaction\0");
when_loaded!(SIGACTION_OF_LIBC.find());

/// The signals for which `siginterrupt` was told that they interrupt. Relaxed: it guards nothing.
static INTERRUPT: AtomicU64 = AtomicU64::new(0);
const HOLD: libc::sighandler_t = 2;

interposed! {
    fn sigaction(
        number: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        type SetAction =
            unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
        // SAFETY: the caller's arguments: valid or null; and libc's function.
        unsafe {
            let is_own = new.as_ref().is_some_and(|new| is_own(new.sa_sigaction));
            // The handler for dumps can wait.
            let real = match is_own && number != libc::SIGQUIT {
                true => &SIGACTION_OF_LIBC,
                false => &sigaction::REAL,
            };
            let real = core::mem::transmute::<usize, SetAction>(real.address());
            set_action(number, new, old, |new| real(number, new, old))
        }
    }
}

/// Sets a handler that has `flags`, and of the mask at most its own signal; returns the one before.
fn set(
    number: c_int,
    handler: libc::sighandler_t,
    flags: c_int,
    blocks_itself: bool,
) -> libc::sighandler_t {
    if handler == libc::SIG_ERR || !(1..=64).contains(&number) {
        fail(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: zeroes are a valid action; valid places.
    unsafe {
        let mut new: libc::sigaction = zeroed();
        let mut old: libc::sigaction = zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        if blocks_itself {
            libc::sigaddset(&mut new.sa_mask, number);
        }
        match sigaction(number, &new, &mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// Sets a handler as `signal` does.
fn set_as_bsd(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    let is_valid = (1..=64).contains(&number);
    let interrupts = is_valid && INTERRUPT.load(Relaxed) & bit(number) != 0;
    let flags = if interrupts { 0 } else { libc::SA_RESTART };
    set(number, handler, flags, true)
}

/// Sets a handler for one signal, as `sysv_signal` does.
fn set_as_sysv(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    set(number, handler, flags, false)
}

/// Declares functions that do the same under several names.
macro_rules! same {
    ($($name:ident),* = $set:ident) => {
        exported! {
            $(fn $name(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
                $set(number, handler)
            })*
        }
    };
}

same!(signal, bsd_signal, ssignal = set_as_bsd);
same!(sysv_signal, __sysv_signal = set_as_sysv);

exported! {
    // libc's other name for it.
    fn __sigaction(
        number: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { sigaction(number, new, old) }
    }

    fn sigignore(number: c_int) -> c_int {
        match set(number, libc::SIG_IGN, 0, false) {
            libc::SIG_ERR => -1,
            _ => 0,
        }
    }

    fn sigset(number: c_int, disposition: libc::sighandler_t) -> libc::sighandler_t {
        // SAFETY: zeroes are a valid set; valid places. A number that is no signal's is refused.
        unsafe {
            let mut set_of_it: libc::sigset_t = zeroed();
            let mut before: libc::sigset_t = zeroed();
            if libc::sigaddset(&mut set_of_it, number) != 0 {
                return libc::SIG_ERR;
            }
            let mut old: libc::sigaction = zeroed();
            let how = if disposition == HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
            let handler = match disposition {
                HOLD if sigaction(number, null(), &mut old) == 0 => old.sa_sigaction,
                HOLD => libc::SIG_ERR,
                _ => set(number, disposition, 0, false),
            };
            if handler == libc::SIG_ERR || libc::sigprocmask(how, &set_of_it, &mut before) != 0 {
                return libc::SIG_ERR;
            }
            match libc::sigismember(&before, number) {
                1 => HOLD,
                _ => handler,
            }
        }
    }

    fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
        // SAFETY: zeroes are a valid action; valid places.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            if is_reserved(number) {
                return fail(libc::EINVAL);
            }
            if sigaction(number, null(), &mut action) != 0 {
                return -1;
            }
            if interrupts != 0 {
                INTERRUPT.fetch_or(bit(number), Relaxed);
                action.sa_flags &= !libc::SA_RESTART;
            } else {
                INTERRUPT.fetch_and(!bit(number), Relaxed);
                action.sa_flags |= libc::SA_RESTART;
            }
            sigaction(number, &action, null_mut())
        }
    }
}
