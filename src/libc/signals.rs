//! The program's signal handlers and signal masks.
//!
//! Handlers: `sigaction`, and all that is made of it: `signal` and its kin, `sigset`, `sigignore`, `siginterrupt`. What
//! becomes of a handler: `sched::signals`.
//!
//! Masks: `pthread_sigmask`, `sigprocmask`, `sighold`, `sigrelse`, `sigblock`, `sigsetmask`, `setcontext`, `swapcontext`. A
//! mask belongs to a kernel thread. So the green thread that changes the mask is marked, and the switch takes the mask along.
//! The thread is marked after the change: when a thread is preempted, a mark goes that no change of the mask stands behind.
//!
//! `sigaltstack`: a green thread keeps the alternate stack of its kernel thread. A stack of its own would stay behind when the
//! thread moves.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::{SIG_ERR, sighandler_t, sigset_t};

use super::{Real, fail};
use crate::engine::hooks::mask_changed;
use crate::engine::hooks::signals::{is_reserved, set_action};
use crate::sys::signal::{action, bit, is_own};

/// libc's function, of which no sanitizer learns: for the crate's own handlers, which a sanitizer must not delay.
static SIGACTION_OF_LIBC: Real = Real {
    is_libcs: true,
    ..Real::new("sigaction\0", "\0")
};
when_loaded!(SIGACTION_OF_LIBC.find());

/// The signals for which `siginterrupt` was told that they interrupt. Relaxed: the set guards nothing.
static INTERRUPT: AtomicU64 = AtomicU64::new(0);
const HOLD: sighandler_t = 2;

/// Sets a handler that has `flags`, and of the mask at most its own signal; returns the handler before.
fn set(number: c_int, handler: sighandler_t, flags: c_int, blocks_itself: bool) -> sighandler_t {
    if handler == SIG_ERR || !(1..=64).contains(&number) {
        fail(libc::EINVAL);
        return SIG_ERR;
    }
    // SAFETY: zeroes are a valid action, and its mask a place of ours.
    let new = unsafe {
        let mut new: libc::sigaction = zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        if blocks_itself {
            libc::sigaddset(&mut new.sa_mask, number);
        }
        new
    };
    action(number, Some(&new)).map_or(SIG_ERR, |old| old.sa_sigaction)
}

/// Sets a handler as `signal` does.
fn set_as_bsd(number: c_int, handler: sighandler_t) -> sighandler_t {
    let is_valid = (1..=64).contains(&number);
    let interrupts = is_valid && INTERRUPT.load(Relaxed) & bit(number) != 0;
    let flags = if interrupts { 0 } else { libc::SA_RESTART };
    set(number, handler, flags, true)
}

/// Sets a handler for one signal, as `sysv_signal` does.
fn set_as_sysv(number: c_int, handler: sighandler_t) -> sighandler_t {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    set(number, handler, flags, false)
}

/// Declares functions that do the same under several names.
macro_rules! same {
    ($($name:ident),* = $set:ident) => {
        exported! {
            $(fn $name(number: c_int, handler: sighandler_t) -> sighandler_t {
                $set(number, handler)
            })*
        }
    };
}

same!(signal, bsd_signal, ssignal = set_as_bsd);
same!(sysv_signal, __sysv_signal = set_as_sysv);

exported! {
    // libc's other name for it.
    fn __sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        // SAFETY: the caller's arguments, unchanged, for the same function.
        unsafe { sigaction(number, new, old) }
    }

    fn sigignore(number: c_int) -> c_int {
        if set(number, libc::SIG_IGN, 0, false) == SIG_ERR { -1 } else { 0 }
    }

    fn sigset(number: c_int, disposition: sighandler_t) -> sighandler_t {
        // SAFETY: zeroes are a valid set; the sets are places of ours. libc refuses a number that is no signal's.
        unsafe {
            let mut set_of_it: sigset_t = zeroed();
            let mut before: sigset_t = zeroed();
            if libc::sigaddset(&mut set_of_it, number) != 0 {
                return SIG_ERR;
            }
            let (how, handler) = match disposition {
                HOLD => (libc::SIG_BLOCK, action(number, None).map_or(SIG_ERR, |old| old.sa_sigaction)),
                _ => (libc::SIG_UNBLOCK, set(number, disposition, 0, false)),
            };
            if handler == SIG_ERR || libc::sigprocmask(how, &set_of_it, &mut before) != 0 {
                return SIG_ERR;
            }
            match libc::sigismember(&before, number) {
                1 => HOLD,
                _ => handler,
            }
        }
    }

    fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
        if is_reserved(number) {
            return fail(libc::EINVAL);
        }
        let Ok(mut changed) = action(number, None) else {
            return -1;
        };
        if interrupts != 0 {
            INTERRUPT.fetch_or(bit(number), Relaxed);
            changed.sa_flags &= !libc::SA_RESTART;
        } else {
            INTERRUPT.fetch_and(!bit(number), Relaxed);
            changed.sa_flags |= libc::SA_RESTART;
        }
        action(number, Some(&changed)).map_or(-1, |_| 0)
    }
}

fn marked(answer: c_int, is_change: bool) -> c_int {
    if is_change {
        mask_changed();
        #[cfg(hooks)]
        if crate::engine::hooks::directed::pending() != 0 {
            super::pthread::signals::handle();
        }
    }
    answer
}

interposed! {
    fn sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        type SetAction =
            unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
        // SAFETY: the caller's actions are valid or null; the address is that of libc's function, which has this type.
        unsafe {
            let is_own = new.as_ref().is_some_and(|new| is_own(new.sa_sigaction));
            // A sanitizer may delay the handler for dumps.
            let real = match is_own && number != libc::SIGQUIT {
                true => &SIGACTION_OF_LIBC,
                false => &sigaction::REAL,
            };
            let real = core::mem::transmute::<*const (), SetAction>(real.target());
            set_action(number, new, old, |new| real(number, new, old))
        }
    }

    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int where real() {
        marked(real(), !set.is_null())
    }

    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int where real() {
        marked(real(), !set.is_null())
    }

}

/// Declares functions that change the mask, whatever they are given.
macro_rules! changing_the_mask {
    ($($name:ident)*) => {
        interposed! {
            $(fn $name(signals: c_int) -> c_int where real() {
                marked(real(), true)
            })*
        }
    };
}

changing_the_mask! { sighold sigrelse sigblock sigsetmask }

// They return at another place.
choosing! {
    fn setcontext(context: *const c_void) -> c_int {
        marks() => 0,
    }

    fn swapcontext(old: *mut c_void, new: *const c_void) -> c_int {
        marks() => 0,
    }
}

when_loaded!(for real in [&setcontext::REAL, &swapcontext::REAL] {
    real.find();
});

/// Marks the thread, which goes on in libc's function.
fn marks() -> bool {
    mask_changed();
    false
}

#[cfg(answers)]
interposed! {
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int where real(new) {
        use crate::engine::hooks::{alternate_stack, owner};
        use crate::sys::word;
        let last = size_of::<libc::stack_t>() - 1;
        // std asks at the start of each of its threads. A place that cannot be written is an error.
        let can_be_written = |at: usize| word::store_byte(at, 0).is_some();
        if new.is_null()
            && let Some((start, ss_size)) = alternate_stack()
            && can_be_written(old.addr())
            && can_be_written(old.addr().wrapping_add(last))
        {
            // SAFETY: the caller's place.
            unsafe { *old = libc::stack_t { ss_sp: start as *mut c_void, ss_flags: 0, ss_size } };
            return 0;
        }
        // A record that cannot be read is an error.
        let can_be_read = |at: usize| word::load(at & !3).is_some();
        let is_ignored = owner().is_some()
            && can_be_read(new.addr())
            && can_be_read(new.addr().wrapping_add(last));
        // With null in its place the call changes nothing.
        real(if is_ignored { null() } else { new })
    }
}
