//! Variables of the environment, and which of them the crate reads.
//!
//! The environment is the caller's. A program that has rights which its caller lacks (setuid, setgid, capabilities
//! of the file) must not let that caller name a file to be written, so the crate reads no variable at all there, as
//! with `secure_getenv`: the kernel says so at the start of the program, for good.
//!
//! Invariant: all of the crate that reads the environment reads it here (`.ci/house` looks).

use core::ffi::CStr;
use std::ffi::OsString;

use crate::engine::arch;

/// The value of variable `name`.
pub(crate) fn read(name: &str) -> Option<OsString> {
    is_heard().then(|| std::env::var_os(name)).flatten()
}

/// Calls `f` with the value of variable `name`, for code that may neither allocate nor take std's lock, which a
/// preempted thread may hold. The program does not change such a variable.
pub(crate) fn peek<T>(name: &CStr, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if !is_heard() {
        return None;
    }
    // SAFETY: the name is a string; the answer is null, or a string that stays as it is while `f` runs.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| f(CStr::from_ptr(value).to_bytes()))
    }
}

fn is_heard() -> bool {
    arch::auxiliary(libc::AT_SECURE) == 0
}
