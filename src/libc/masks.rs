//! Signal masks: `pthread_sigmask`, `sigprocmask`, `sighold`, `sigrelse`, `sigblock`, `sigsetmask`, `setcontext`,
//! `swapcontext`. And `sigaltstack`.
//!
//! A mask belongs to a kernel thread. So the green thread that changes it is marked, and the switch takes the mask along. It
//! is marked after the change: a mark that nothing has changed goes when the thread is preempted. (What a handler does to
//! the mask: `sched::handlers`.)
//!
//! A green thread keeps its kernel thread's alternate stack: its own would stay behind when it moves.

use core::ffi::{c_int, c_void};

use super::macros::{interposed, libc_functions, when_loaded};
use crate::engine::hooks::mask_changed;
use crate::sys::unwinding::jump_where;

fn marked(answer: c_int, is_change: bool) -> c_int {
    if is_change {
        mask_changed();
    }
    answer
}

interposed! {
    fn pthread_sigmask(
        how: c_int,
        set: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        marked(unsafe { pthread_sigmask::real(how, set, old) }, !set.is_null())
    }

    fn sigprocmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
        // SAFETY: the caller's arguments.
        marked(unsafe { sigprocmask::real(how, set, old) }, !set.is_null())
    }

    fn sighold(signal: c_int) -> c_int {
        // SAFETY: a number.
        marked(unsafe { sighold::real(signal) }, true)
    }

    fn sigrelse(signal: c_int) -> c_int {
        // SAFETY: a number.
        marked(unsafe { sigrelse::real(signal) }, true)
    }

    fn sigblock(signals: c_int) -> c_int {
        // SAFETY: a number.
        marked(unsafe { sigblock::real(signals) }, true)
    }

    fn sigsetmask(signals: c_int) -> c_int {
        // SAFETY: a number.
        marked(unsafe { sigsetmask::real(signals) }, true)
    }
}

libc_functions! {
    fn setcontext(context: *const c_void) -> c_int;
    fn swapcontext(old: *mut c_void, new: *const c_void) -> c_int;
}

/// Declares functions that mark the thread, and go on as libc's, which return elsewhere.
macro_rules! returning_elsewhere {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            extern "C" fn way() -> *const () {
                mask_changed();
                $name::target()
            }
            jump_where!(way)
        }
    )*};
}

returning_elsewhere! { setcontext swapcontext }

when_loaded!(for real in [&setcontext::REAL, &swapcontext::REAL] {
    real.find();
});

#[cfg(answers)]
interposed! {
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
        use crate::engine::hooks::owner;
        use crate::sys::word;
        // One that cannot be read is an error.
        let can_be_read = |at: usize| word::load(at & !3).is_ok();
        let last = size_of::<libc::stack_t>() - 1;
        let is_ignored = owner().is_some()
            && can_be_read(new.addr())
            && can_be_read(new.addr().wrapping_add(last));
        let new = if is_ignored { core::ptr::null() } else { new };
        // SAFETY: the caller's arguments, or a null that asks for no change.
        unsafe { sigaltstack::real(new, old) }
    }
}
