//! C11's names. glibc's types are those of its pthreads, and its answers others.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{condition, mutex, once};
use crate::engine::door::unwinding::Next;
use crate::libc::around;

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

fn answer(errno: c_int) -> c_int {
    match errno {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

macro_rules! names {
    ($($name:ident($($argument:ident: $Type:ty),*) is $file:ident::$as_pthread:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $Type),*) -> c_int {
            // SAFETY: the caller's arguments, unchanged.
            answer(unsafe { $file::$as_pthread($($argument),*) })
        }
    )*};
}

names! {
    mtx_lock(lock: *mut pthread_mutex_t) is mutex::pthread_mutex_lock;
    mtx_timedlock(lock: *mut pthread_mutex_t, time: *const timespec) is mutex::pthread_mutex_timedlock;
    mtx_unlock(lock: *mut pthread_mutex_t) is mutex::pthread_mutex_unlock;
    cnd_signal(condition: *mut pthread_cond_t) is condition::pthread_cond_signal;
    cnd_broadcast(condition: *mut pthread_cond_t) is condition::pthread_cond_broadcast;
}

unsafe extern "C" fn answered(_: usize, errno: c_int) -> c_int {
    answer(errno)
}

unsafe extern "C" fn unwound(_: usize) {}

// A thread may be cancelled in these, or unwind.
around! {
    fn cnd_wait(condition: *mut pthread_cond_t, lock: *mut pthread_mutex_t) -> c_int {
        before {
            Next::call(condition::pthread_cond_wait as *const (), 0)
        }
        after answered,
        unwound unwound,
    }

    fn cnd_timedwait(
        condition: *mut pthread_cond_t,
        lock: *mut pthread_mutex_t,
        time: *const timespec,
    ) -> c_int {
        before {
            Next::call(condition::pthread_cond_timedwait as *const (), 0)
        }
        after answered,
        unwound unwound,
    }

    fn call_once(
        control: *mut libc::pthread_once_t,
        initialise: unsafe extern "C-unwind" fn(),
    ) -> c_int {
        before {
            Next::call(once::pthread_once as *const (), 0)
        }
        after answered,
        unwound unwound,
    }
}
