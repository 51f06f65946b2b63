//! Calls that block inside libc or the kernel, and that no event ends which could be waited for: they are announced, so
//! that the processor goes to other threads at once.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr::null;

use super::poll::for_time;
use super::{hooked, in_kernel};
use crate::engine::facade::blocking;

/// Declares such calls.
macro_rules! announced {
    ($(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {
        hooked! {
            $(fn $name($($argument: $Type),*) -> $Result {
                // SAFETY: the caller's arguments.
                blocking(|| unsafe { $name::real($($argument),*) })
            })*
        }
    };
    (again $(fn $name:ident($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {
        hooked! {
            $(fn $name($($argument: $Type),*) -> $Result {
                // SAFETY: the caller's arguments.
                in_kernel(|| unsafe { $name::real($($argument),*) })
            })*
        }
    };
}

announced! {
    // Names of hosts.
    fn getaddrinfo(
        name: *const c_char,
        service: *const c_char,
        hints: *const libc::addrinfo,
        answer: *mut *mut libc::addrinfo,
    ) -> c_int;
    fn getnameinfo(
        address: *const libc::sockaddr,
        length: libc::socklen_t,
        host: *mut c_char,
        host_length: libc::socklen_t,
        service: *mut c_char,
        service_length: libc::socklen_t,
        flags: c_int,
    ) -> c_int;
    fn gethostbyname(name: *const c_char) -> *mut c_void;
    // Other programs.
    fn system(command: *const c_char) -> c_int;
    fn pclose(stream: *mut c_void) -> c_int;
    fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) -> c_int;
}

// These do all or nothing, so they can be made again.
announced! { again
    // Queues of System V and of POSIX.
    fn msgsnd(queue: c_int, message: *const c_void, length: usize, flags: c_int) -> c_int;
    fn msgrcv(
        queue: c_int,
        message: *mut c_void,
        length: usize,
        kind: c_long,
        flags: c_int,
    ) -> isize;
    fn semop(set: c_int, operations: *mut c_void, count: usize) -> c_int;
    fn mq_send(queue: c_int, message: *const c_char, length: usize, priority: u32) -> c_int;
    fn mq_receive(
        queue: c_int,
        message: *mut c_char,
        length: usize,
        priority: *mut u32,
    ) -> isize;
    // Signals.
    fn pause() -> c_int;
    fn sigsuspend(mask: *const libc::sigset_t) -> c_int;
    fn sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int;
    fn tcdrain(terminal: c_int) -> c_int;
}

// And these have a time-out.
hooked! {
    fn sigtimedwait(
        set: *const libc::sigset_t,
        info: *mut libc::siginfo_t,
        time: *const libc::timespec,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { for_time(time, null(), |_| None, |left| sigtimedwait::real(set, info, left)) }
    }

    fn semtimedop(
        set: c_int,
        operations: *mut c_void,
        count: usize,
        time: *const libc::timespec,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let real = |left| semtimedop::real(set, operations, count, left);
            for_time(time, null(), |_| None, real)
        }
    }
}
