//! What libc's functions answer about the pthread of a green thread.
//!
//! A pthread is the address of a control block, and a green thread has one; but the kernel does not know the thread id in
//! it. libc's functions that ask the kernel about that id fail, or mean another thread. Here are those that say
//! something else (`docs/unmodified.md` has the table); [`interpose`](super::interpose) asks [`Who`] for the rest.
//!
//! A pthread is a living green thread's if it is the control block in a room in which a thread lives. That is looked up
//! from the address alone, without a lock: a signal handler may ask, with any pthread.

use core::ffi::c_int;

use super::fork;
use crate::engine::sched::room::Room;
use crate::engine::sched::{Green, current};
use crate::engine::stack;
use crate::engine::sys::real::Real;

/// Whose pthread one is.
pub(super) enum Who {
    /// The calling green thread's.
    Own(&'static Green),
    /// Another green thread's. It may end at any moment, if the program lets it.
    Other(&'static Green),
    /// A kernel thread's, or nobody's.
    Libcs,
}

impl Who {
    pub(super) fn is(thread: libc::pthread_t) -> Who {
        // SAFETY: it has no arguments.
        let own = unsafe { libc::pthread_self() };
        match current::owner() {
            Some(green) if thread == own => Who::Own(green),
            // In a forked child the others do not exist.
            _ if fork::is_child() => Who::Libcs,
            _ => match stack::find(thread as usize).and_then(Room::tenant_of) {
                Some((room, green)) if room.pthread() == thread as usize => Who::Other(green),
                _ => Who::Libcs,
            },
        }
    }

    /// The green thread, the caller's or another.
    pub(super) fn green(self) -> Option<&'static Green> {
        match self {
            Who::Own(green) | Who::Other(green) => Some(green),
            Who::Libcs => None,
        }
    }

    /// The kernel thread that stands for it, as the kernel names it: the calling one, or the one that ran it last.
    /// `None`: libc knows it.
    fn kernel_thread(self) -> Option<usize> {
        const CALLING: usize = 0;
        match self {
            Who::Own(_) => Some(CALLING),
            Who::Other(green) => Some(
                green
                    .last_machine()
                    .map_or(CALLING, |m| m.thread() as usize),
            ),
            Who::Libcs => None,
        }
    }
}

static SETAFFINITY: Real = Real::new(c"pthread_setaffinity_np");
static GETAFFINITY: Real = Real::new(c"pthread_getaffinity_np");
static SETSCHEDPARAM: Real = Real::new(c"pthread_setschedparam");
static GETSCHEDPARAM: Real = Real::new(c"pthread_getschedparam");
static SETSCHEDPRIO: Real = Real::new(c"pthread_setschedprio");
pub(super) static GETCLOCK: Real = Real::new(c"pthread_getcpuclockid");

/// Finds libc's functions (see `interpose::reserve`).
pub(super) fn find() {
    for real in [
        &SETAFFINITY,
        &GETAFFINITY,
        &SETSCHEDPARAM,
        &GETSCHEDPARAM,
        &SETSCHEDPRIO,
        &GETCLOCK,
    ] {
        real.address();
    }
}

#[cfg(answers)]
mod functions {
    use core::mem::transmute;

    use super::*;
    use crate::engine::sched::changes::guard;
    use crate::engine::sys::call;

    type Cpus = libc::cpu_set_t;
    type Parameter = libc::sched_param;

    /// The system call's result as these functions give it.
    fn answer(result: Result<usize, i32>) -> c_int {
        result.err().unwrap_or(0)
    }

    /// A change of the kernel thread of `who`, by a system call that has it as its first argument.
    ///
    /// # Safety
    /// As the system call demands.
    unsafe fn change(who: Who, number: libc::c_long, first: usize, second: usize) -> Option<c_int> {
        const CALLING: usize = 0;
        match who {
            Who::Own(_) => {
                let arguments = [CALLING, first, second];
                // SAFETY: the caller's promise.
                let change = || unsafe { call(number, &arguments) };
                Some(answer(guard(number, &arguments, change)))
            }
            // It cannot be kept on its kernel thread from here.
            Who::Other(_) => Some(libc::ENOTSUP),
            Who::Libcs => None,
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_setaffinity_np(
        thread: libc::pthread_t,
        size: usize,
        cpus: *const Cpus,
    ) -> c_int {
        type Set = unsafe extern "C" fn(libc::pthread_t, usize, *const Cpus) -> c_int;
        // SAFETY: the caller's arguments.
        unsafe {
            change(
                Who::is(thread),
                libc::SYS_sched_setaffinity,
                size,
                cpus as usize,
            )
            .unwrap_or_else(|| transmute::<usize, Set>(SETAFFINITY.address())(thread, size, cpus))
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_getaffinity_np(
        thread: libc::pthread_t,
        size: usize,
        cpus: *mut Cpus,
    ) -> c_int {
        type Get = unsafe extern "C" fn(libc::pthread_t, usize, *mut Cpus) -> c_int;
        // SAFETY: the caller's arguments. The kernel has checked the part of the set that it has written.
        unsafe {
            let Some(asked) = Who::is(thread).kernel_thread() else {
                return transmute::<usize, Get>(GETAFFINITY.address())(thread, size, cpus);
            };
            let arguments = [asked, size.min(c_int::MAX as usize), cpus as usize];
            let written = call(libc::SYS_sched_getaffinity, &arguments);
            if let Ok(written) = written {
                cpus.cast::<u8>()
                    .add(written)
                    .write_bytes(0, size - written);
            }
            answer(written)
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_setschedparam(
        thread: libc::pthread_t,
        policy: c_int,
        parameter: *const Parameter,
    ) -> c_int {
        type Set = unsafe extern "C" fn(libc::pthread_t, c_int, *const Parameter) -> c_int;
        let (who, number) = (Who::is(thread), libc::SYS_sched_setscheduler);
        // SAFETY: the caller's arguments.
        unsafe {
            change(who, number, policy as usize, parameter as usize).unwrap_or_else(|| {
                transmute::<usize, Set>(SETSCHEDPARAM.address())(thread, policy, parameter)
            })
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_setschedprio(thread: libc::pthread_t, priority: c_int) -> c_int {
        type Set = unsafe extern "C" fn(libc::pthread_t, c_int) -> c_int;
        let parameter = Parameter {
            sched_priority: priority,
        };
        let (who, number) = (Who::is(thread), libc::SYS_sched_setparam);
        // SAFETY: the caller's arguments, and a parameter of ours.
        unsafe {
            change(who, number, &raw const parameter as usize, 0).unwrap_or_else(|| {
                transmute::<usize, Set>(SETSCHEDPRIO.address())(thread, priority)
            })
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_getschedparam(
        thread: libc::pthread_t,
        policy: *mut c_int,
        parameter: *mut Parameter,
    ) -> c_int {
        type Get = unsafe extern "C" fn(libc::pthread_t, *mut c_int, *mut Parameter) -> c_int;
        // SAFETY: the caller's arguments, which are valid places.
        unsafe {
            let Some(asked) = Who::is(thread).kernel_thread() else {
                return transmute::<usize, Get>(GETSCHEDPARAM.address())(thread, policy, parameter);
            };
            let found = call(libc::SYS_sched_getparam, &[asked, parameter as usize])
                .and_then(|_| call(libc::SYS_sched_getscheduler, &[asked]));
            if let Ok(found) = found {
                *policy = found as c_int;
            }
            answer(found)
        }
    }
}
