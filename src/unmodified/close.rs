//! `close`, `dup2`, `dup3`, `close_range`: a number gets another meaning.
//!
//! Threads that wait for the descriptor go on with a duplicate, as threads that are blocked in the kernel keep
//! the file open; and what is remembered about the number is forgotten. These functions do so on any thread.

use core::ffi::{c_int, c_uint};

use super::descriptor::Nature;
use super::libc_functions;
use crate::engine::door::{is_forked_child, watch};

/// The number will be another file's.
#[inline]
fn closing(fd: c_int) {
    Nature::forget(fd);
    if !is_forked_child() {
        watch::closing(fd);
    }
}

libc_functions! {
    fn close(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    closing(fd);
    // SAFETY: the caller's argument.
    unsafe { close::real(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        closing(to);
    }
    // SAFETY: the caller's arguments.
    unsafe { dup2::real(from, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        closing(to);
    }
    // SAFETY: the caller's arguments.
    unsafe { dup3::real(from, to, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0 {
        Nature::forget_all(first, last);
        if !is_forked_child() {
            watch::closing_all(first, last);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { close_range::real(first, last, flags) }
}
