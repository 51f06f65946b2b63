//! `close`, `dup2`, `dup3`, `close_range`: a number gets another meaning. `shutdown`: not every socket tells
//! those that wait for it.
//!
//! Threads that wait for the descriptor go on with a duplicate, as threads that are blocked in the kernel keep
//! the file open; and what is remembered about the number is forgotten. These functions do so on any thread.

use core::ffi::{c_int, c_long, c_uint};

use super::descriptor::Nature;
use super::{around, interposed};
use crate::engine::facade::is_forked_child;
use crate::engine::hooks::watch;
use crate::sys::unwinding::Next;

/// `fd` is about to be closed.
#[inline]
fn before(fd: c_int) {
    if !is_forked_child() {
        watch::closing(fd);
    }
    Nature::forget(fd);
}

/// It was closed, or shut down.
#[inline]
fn after(fd: c_int) {
    if !is_forked_child() {
        watch::look_again(fd);
    }
}

/// Makes `call`, which closes `fd`.
#[inline]
fn closing(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    before(fd);
    let answer = call();
    after(fd);
    answer
}

/// These calls by `syscall(2)`; `None` for others.
///
/// # Safety
/// As the system call demands.
pub(super) unsafe fn by_number(number: c_long, a: usize, b: usize, c: usize) -> Option<c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        Some(match number {
            libc::SYS_close => close(a as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => dup2(a as c_int, b as c_int),
            libc::SYS_dup3 => dup3(a as c_int, b as c_int, c as c_int),
            libc::SYS_shutdown => shutdown(a as c_int, b as c_int),
            libc::SYS_close_range => close_range(a as c_uint, b as c_uint, c as c_int),
            _ => return None,
        })
    }
}

extern "C" fn has_closed(fd: usize, answer: c_int) -> c_int {
    after(fd as c_int);
    answer
}

/// It may have been closed, or not.
extern "C" fn cancelled(fd: usize) {
    after(fd as c_int);
}

around! {
    fn close(fd: c_int) -> c_int {
        before {
            super::close::before(fd);
            Next::call(close::target(), fd as usize)
        }
        after has_closed,
        unwound cancelled,
    }
}

interposed! {
    fn dup2(from: c_int, to: c_int) -> c_int where real() {
        if from == to { real() } else { closing(to, real) }
    }

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int where real() {
        if from == to { real() } else { closing(to, real) }
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int where real() {
        if flags != 0 {
            return real();
        }
        let watches = !is_forked_child();
        if watches {
            watch::watched_from(first, last).for_each(watch::closing);
        }
        Nature::forget_all(first, last);
        let answer = real();
        if watches {
            watch::watched_from(first, last).for_each(watch::look_again);
        }
        answer
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int where real() {
        let answer = real();
        after(fd);
        answer
    }
}
