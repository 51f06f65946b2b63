//! C11's names. glibc's types are those of its pthreads, and its answers others.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use super::{Object, condition, mutex, once};
use crate::libc::{around, exported};
use crate::sys::unwinding::Next;

/// By threads.h: thrd_success, _busy, _nomem, _timedout, _error.
fn answer(errno: c_int) -> c_int {
    match errno {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

macro_rules! names {
    ($($name:ident($($argument:ident: $Type:ty),*) is $file:ident::$as_pthread:ident;)*) => {
        exported! {
            $(fn $name($($argument: $Type),*) -> c_int {
                // SAFETY: the caller's arguments, unchanged.
                answer(unsafe { $file::$as_pthread($($argument),*) })
            })*
        }
    };
}

names! {
    mtx_lock(lock: Object<pthread_mutex_t>) is mutex::pthread_mutex_lock;
    mtx_timedlock(lock: Object<pthread_mutex_t>, time: *const timespec) is mutex::pthread_mutex_timedlock;
    mtx_unlock(lock: Object<pthread_mutex_t>) is mutex::pthread_mutex_unlock;
    cnd_signal(condition: Object<pthread_cond_t>) is condition::pthread_cond_signal;
    cnd_broadcast(condition: Object<pthread_cond_t>) is condition::pthread_cond_broadcast;
}

extern "C" fn answered(_: usize, errno: c_int) -> c_int {
    answer(errno)
}

extern "C" fn unwound(_: usize) {}

/// The same for functions in which a thread may be cancelled, or which unwind.
macro_rules! names_around {
    ($($name:ident($($argument:ident: $Type:ty),*) is $file:ident::$as_pthread:ident;)*) => {
        around! {
            $(fn $name($($argument: $Type),*) -> c_int {
                before {
                    Next::call($file::$as_pthread as *const (), 0)
                }
                after answered,
                unwound unwound,
            })*
        }
    };
}

names_around! {
    cnd_wait(condition: Object<pthread_cond_t>, lock: Object<pthread_mutex_t>) is condition::pthread_cond_wait;
    cnd_timedwait(condition: Object<pthread_cond_t>, lock: Object<pthread_mutex_t>, time: *const timespec)
        is condition::pthread_cond_timedwait;
    call_once(control: Object<libc::pthread_once_t>, initialise: unsafe extern "C-unwind" fn()) is once::pthread_once;
}
