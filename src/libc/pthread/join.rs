//! `pthread_join`: a green thread waits until the descriptor of the kernel thread says that it has ended.
//!
//! The kernel has descriptors of threads since Linux 6.9; on older ones the thread is handed off. A green thread is
//! not a pthread that could be joined.

use core::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::pthread_t;

use crate::engine::facade::blocking;
use crate::engine::hooks::thread_id;
use crate::engine::hooks::watch::Purpose;
use crate::libc::descriptor::{not_ready, run};
use crate::libc::hooked;
use crate::sys::calls;

/// A descriptor that is readable when `thread` has ended, whose control block is there still. `None`: the kernel has none to
/// give.
fn descriptor(thread: pthread_t) -> Option<OwnedFd> {
    // SAFETY: the caller's thread, which nobody has joined yet, so its control block is there.
    let name = || unsafe { thread_id(thread as usize) };
    let id = name().filter(|&id| id != 0)?;
    // The first thread of a process ends otherwise than the others.
    if id == std::process::id() {
        return None;
    }
    // If the id is still the thread's, the descriptor is, too.
    let descriptor = calls::pidfd(id, calls::PIDFD_THREAD).ok();
    descriptor.filter(|_| name() == Some(id))
}

hooked! {
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int where real() {
        // SAFETY: it takes nothing.
        if thread == unsafe { libc::pthread_self() } {
            return real(); // it says that this would wait for ever
        }
        // SAFETY: the caller's thread and place.
        let attempt = || unsafe { libc::pthread_tryjoin_np(thread, result) };
        let first = attempt();
        if first != libc::EBUSY {
            return first;
        }
        let Some(descriptor) = descriptor(thread) else {
            return blocking(real);
        };
        let attempt = |_| match attempt() {
            libc::EBUSY => not_ready(),
            answer => answer as isize,
        };
        run(descriptor.as_raw_fd(), Purpose::Read, attempt, |_| real() as isize) as c_int
    }
}
