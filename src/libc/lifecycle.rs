//! What begins and ends beside threads: a library is unloaded (`dlclose`), and a child process begins (`vfork`, `_Fork`,
//! `clone`).
//!
//! `dlclose` waits for green threads that resolve symbols, too (`sched::unload`). A child with a copy of the memory is told
//! that it has one thread, and in a child that shares the memory the thread is hidden (`sched::fork`). `fork` calls the
//! handlers of `pthread_atfork`, so it is libc's own.

use core::ffi::{c_int, c_void};

use super::macros::interposed;
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::unloaded_by;
#[cfg(answers)]
use crate::engine::hooks::{after_vfork, before_vfork, reveal_all};

type Start = extern "C" fn(*mut c_void) -> c_int;

interposed! {
    fn dlclose(library: *mut c_void) -> c_int where real() {
        unloaded_by(real)
    }
}

#[cfg(answers)]
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn vfork() -> libc::pid_t {
    crate::arch::vfork!(before_vfork, after_vfork)
}

#[cfg(answers)]
interposed! {
    fn _Fork() -> libc::pid_t where real() {
        let pid = real();
        if pid == 0 {
            is_forked_child();
        }
        pid
    }

    // libc's has three arguments that need not be there; then they are not looked at.
    fn clone(
        start: Start, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent: *mut libc::pid_t, thread_pointer: *mut c_void, child: *mut libc::pid_t,
    ) -> c_int where real(start, argument) {
        if flags & libc::CLONE_VM == 0 {
            // The child has a copy of this.
            let mut begin = (start, argument);
            return real(begin_copy, (&raw mut begin).cast());
        }
        if flags & (libc::CLONE_THREAD | libc::CLONE_SETTLS) != 0 {
            return real(start, argument);
        }
        let was_seen = before_vfork();
        let pid = real(start, argument);
        if was_seen && (pid < 0 || flags & libc::CLONE_VFORK != 0) {
            reveal_all();
        }
        pid
    }
}

#[cfg(answers)]
extern "C" fn begin_copy(begin: *mut c_void) -> c_int {
    is_forked_child();
    // SAFETY: the child's copy of what `clone` has put there.
    let (start, argument) = unsafe { *begin.cast::<(Start, *mut c_void)>() };
    start(argument)
}
