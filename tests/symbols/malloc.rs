//! A `malloc` of the program's own with one lock. libc calls it too, for each kernel thread that it
//! makes: none can be made while a preempted thread holds the lock.

#[path = "../support/hammer.rs"]
mod hammer;

use crate::common::alone;
use core::ffi::c_void;
use hammer::OneLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static LOCK: OneLock = OneLock::new();
/// Whether the lock is taken: for the test, which begins and ends with the allocations of one process.
static LOCKS: AtomicBool = AtomicBool::new(false);

fn with_lock<R>(call: impl FnOnce() -> R) -> R {
    match LOCKS.load(Relaxed) {
        true => LOCK.with(call),
        false => call(),
    }
}

// glibc's own, under its other names.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(pointer: *mut c_void);
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    with_lock(|| unsafe { __libc_malloc(size) })
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    with_lock(|| unsafe { __libc_calloc(count, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    with_lock(|| unsafe { __libc_realloc(pointer, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    with_lock(|| unsafe { __libc_free(pointer) })
}

#[test]
fn holders_that_are_preempted_come_back() {
    alone!();
    // Or else this test tries nothing.
    // SAFETY: a valid name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    assert_eq!(found, malloc as *mut c_void, "libc calls another malloc");
    LOCKS.store(true, Relaxed);
    hammer::hammer();
}
