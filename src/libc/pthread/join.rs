//! `pthread_join`: a green thread waits until the descriptor of the kernel thread says that it has ended.
//!
//! The kernel has descriptors of threads since Linux 6.9; on older ones the thread is handed off. A green thread is
//! not a pthread that could be joined.

use core::ffi::{c_int, c_void};
use std::io;
use std::os::fd::OwnedFd;

use libc::pthread_t;

use crate::engine::facade::{Direction, Limit, Source, blocking};
use crate::engine::hooks::thread_id;
use crate::libc::{count_parked, hooked};
use crate::sys::calls;

/// A descriptor that is readable when the thread has ended. `None`: the kernel has none to give.
unsafe fn descriptor(thread: pthread_t) -> Option<OwnedFd> {
    // SAFETY: the caller's thread, which nobody has joined yet, so its control block is there.
    let name = || unsafe { thread_id(thread as usize) };
    let id = name().filter(|&id| id != 0)?;
    // The first thread of a process ends otherwise than the others.
    // SAFETY: it takes nothing and cannot fail.
    if id == unsafe { libc::getpid() } as u32 {
        return None;
    }
    // If the id is still the thread's, the descriptor is, too.
    calls::pidfd_of_thread(id)
        .ok()
        .filter(|_| name() == Some(id))
}

hooked! {
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
        // SAFETY: the caller's thread and place.
        let attempt = || unsafe { libc::pthread_tryjoin_np(thread, result) };
        // SAFETY: the caller's arguments.
        let real = || unsafe { pthread_join::real(thread, result) };
        // SAFETY: it takes nothing.
        if thread == unsafe { libc::pthread_self() } {
            return real(); // it says that this would wait for ever
        }
        let first = attempt();
        if first != libc::EBUSY {
            return first;
        }
        // SAFETY: the caller's thread, which nobody has joined yet.
        let Some(descriptor) = (unsafe { descriptor(thread) }) else {
            return blocking(real);
        };
        count_parked();
        let ended = Source::new(descriptor).run(Direction::Read, Limit::Forever, || match attempt() {
            libc::EBUSY => Err(io::ErrorKind::WouldBlock.into()),
            answer => Ok(answer),
        });
        ended.unwrap_or_else(|_| blocking(real))
    }
}
