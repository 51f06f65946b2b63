//! What libc's functions say about a pthread, where it is a green thread's. (`docs/unmodified.md` has the table.)
//!
//! A pthread is the address of a control block, and a green thread has one; but the kernel does not know the thread id in
//! it. libc's functions that ask the kernel about that id fail, or mean another thread. Here are those that say
//! something else; [`Who`] knows whose pthread one is.
//!
//! | function | on a green thread |
//! |---|---|
//! | `pthread_getattr_np` | has its own stack |
//! | `pthread_getname_np`, `pthread_setname_np` | are about its own name, not its kernel thread's |
//! | `pthread_getcpuclockid` | gives a clock of its own (`clocks`) |
//! | `pthread_setaffinity_np`, `pthread_setschedparam`, `pthread_setschedprio` | change its kernel thread, where it stays (`changes`); of another thread they change nothing |
//! | `pthread_getaffinity_np`, `pthread_getschedparam` | answer for the kernel thread that ran it last |
//! | `pthread_detach` | leaves one that detaches itself as it is: libc would note it in a control block that other threads have later |
//! | `pthread_kill`, `pthread_sigqueue` | signal its kernel thread when it signals itself. Another green thread is alive (signal 0), and can be sent nothing |
//! | `pthread_mutexattr_setprotocol` | refuses priority inheritance and ceilings: the kernel finds a mutex's owner by its id |

use core::ffi::{c_char, c_int};

use libc::{cpu_set_t, pthread_t, sched_param};

use super::changes::guard;
use super::macros::interposed;
use super::{errno, set_errno};
use crate::engine::facade::preemption_off;
use crate::engine::hooks::{GUARD_SIZE, Who, owner};
use crate::sys::{call as kernel_call, signal::queue_to_self};

/// Sends a signal: to the calling green thread by `to_self`, to a kernel thread by `real`.
fn send(
    thread: pthread_t,
    signal: c_int,
    to_self: impl FnOnce() -> c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    const LIBCS_OWN: [c_int; 2] = [32, 33];
    match Who::is(thread) {
        _ if LIBCS_OWN.contains(&signal) => real(),
        Who::Libcs => real(),
        Who::Own(_) => to_self(),
        // It lives. What it may be sent would come to whatever thread its kernel thread runs then.
        Who::Other(_) if signal == 0 => 0,
        Who::Other(_) if (1..=libc::SIGRTMAX()).contains(&signal) => libc::ENOTSUP,
        Who::Other(_) => libc::EINVAL,
    }
}

/// The system call's result as these functions give it.
fn answer(result: Result<usize, i32>) -> c_int {
    result.err().unwrap_or(0)
}

/// A change of the kernel thread of `thread`, by a system call that has it as its first argument. `None`: it is libc's.
///
/// # Safety
/// As the system call demands.
unsafe fn change(
    thread: pthread_t,
    number: libc::c_long,
    first: usize,
    second: usize,
) -> Option<c_int> {
    const CALLING: usize = 0;
    match Who::is(thread) {
        Who::Own(_) => {
            let arguments = [CALLING, first, second];
            // SAFETY: the caller's promise.
            let change = || unsafe { kernel_call(number, &arguments) };
            Some(answer(guard(number, &arguments, change)))
        }
        // It cannot be kept on its kernel thread from here.
        Who::Other(_) => Some(libc::ENOTSUP),
        Who::Libcs => None,
    }
}

interposed! {
    fn pthread_getattr_np(thread: pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
        // SAFETY: the caller's arguments; `attributes` is initialised before it is filled in.
        unsafe {
            match Who::is(thread).green().and_then(|green| green.bounds()) {
                Some(bounds) => {
                    libc::pthread_attr_init(attributes);
                    libc::pthread_attr_setguardsize(attributes, GUARD_SIZE);
                    let bottom = bounds.bottom as *mut libc::c_void;
                    libc::pthread_attr_setstack(attributes, bottom, bounds.top - bounds.bottom)
                }
                None => pthread_getattr_np::real(thread, attributes),
            }
        }
    }

    fn pthread_getname_np(thread: pthread_t, buffer: *mut c_char, length: usize) -> c_int {
        // SAFETY: the caller's arguments.
        let real = || unsafe { pthread_getname_np::real(thread, buffer, length) };
        Who::is(thread).tell_name(buffer.addr(), length).unwrap_or_else(real)
    }

    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int {
        // SAFETY: the caller's arguments: a text, as libc's function has it.
        match Who::is(thread).set_name(name.addr(), || unsafe { libc::strlen(name) }) {
            Some(answer) => answer,
            // SAFETY: the same.
            None => unsafe { pthread_setname_np::real(thread, name) },
        }
    }

    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut libc::clockid_t) -> c_int {
        // SAFETY: the caller's arguments: `clock` is a valid place.
        unsafe {
            match Who::is(thread).clock() {
                Some(found) => {
                    *clock = found;
                    0
                }
                None => pthread_getcpuclockid::real(thread, clock),
            }
        }
    }

    fn pthread_detach(thread: pthread_t) -> c_int {
        // SAFETY: the caller's argument, unchanged.
        match owner().is_some() && thread == unsafe { libc::pthread_self() } {
            true => 0,
            // SAFETY: the same.
            false => unsafe { pthread_detach::real(thread) },
        }
    }

    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
        let raise = || {
            let before = errno();
            // SAFETY: a number. In libc the thread stays on its kernel thread.
            let failed = unsafe { libc::raise(signal) } != 0;
            let after = errno();
            set_errno(before);
            if failed { after } else { 0 }
        };
        // SAFETY: the caller's arguments, unchanged.
        send(thread, signal, raise, || unsafe { pthread_kill::real(thread, signal) })
    }

    fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: libc::sigval) -> c_int {
        let queue = || {
            let _off = preemption_off();
            queue_to_self(signal, value).err().unwrap_or(0)
        };
        // SAFETY: the caller's arguments, unchanged.
        send(thread, signal, queue, || unsafe { pthread_sigqueue::real(thread, signal, value) })
    }

    fn pthread_mutexattr_setprotocol(
        attributes: *mut libc::pthread_mutexattr_t,
        protocol: c_int,
    ) -> c_int {
        if protocol != libc::PTHREAD_PRIO_NONE && owner().is_some() {
            return libc::ENOTSUP;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { pthread_mutexattr_setprotocol::real(attributes, protocol) }
    }

    fn pthread_setaffinity_np(thread: pthread_t, size: usize, cpus: *const cpu_set_t) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            change(thread, libc::SYS_sched_setaffinity, size, cpus as usize)
                .unwrap_or_else(|| pthread_setaffinity_np::real(thread, size, cpus))
        }
    }

    fn pthread_setschedparam(
        thread: pthread_t,
        policy: c_int,
        parameter: *const sched_param,
    ) -> c_int {
        let number = libc::SYS_sched_setscheduler;
        // SAFETY: the caller's arguments.
        unsafe {
            change(thread, number, policy as usize, parameter as usize)
                .unwrap_or_else(|| pthread_setschedparam::real(thread, policy, parameter))
        }
    }

    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int {
        let parameter = sched_param { sched_priority: priority };
        // SAFETY: the caller's arguments, and a parameter of ours.
        unsafe {
            change(thread, libc::SYS_sched_setparam, &raw const parameter as usize, 0)
                .unwrap_or_else(|| pthread_setschedprio::real(thread, priority))
        }
    }

    fn pthread_getaffinity_np(thread: pthread_t, size: usize, cpus: *mut cpu_set_t) -> c_int {
        // SAFETY: the caller's arguments. The kernel has checked the part of the set that it has written.
        unsafe {
            let Some(asked) = Who::is(thread).kernel_thread() else {
                return pthread_getaffinity_np::real(thread, size, cpus);
            };
            let arguments = [asked, size.min(c_int::MAX as usize), cpus as usize];
            let written = kernel_call(libc::SYS_sched_getaffinity, &arguments);
            if let Ok(written) = written {
                cpus.cast::<u8>().add(written).write_bytes(0, size - written);
            }
            answer(written)
        }
    }

    fn pthread_getschedparam(
        thread: pthread_t,
        policy: *mut c_int,
        parameter: *mut sched_param,
    ) -> c_int {
        // SAFETY: the caller's arguments, which are valid places.
        unsafe {
            let Some(asked) = Who::is(thread).kernel_thread() else {
                return pthread_getschedparam::real(thread, policy, parameter);
            };
            let found = kernel_call(libc::SYS_sched_getparam, &[asked, parameter as usize])
                .and_then(|_| kernel_call(libc::SYS_sched_getscheduler, &[asked]));
            if let Ok(found) = found {
                *policy = found as c_int;
            }
            answer(found)
        }
    }
}
