//! The stand-in for `sys::variable`.

use std::ffi::OsString;

/// The value of variable `name`.
pub(crate) fn read(name: &str) -> Option<OsString> {
    is_heard().then(|| std::env::var_os(name)).flatten()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_heard() -> bool {
    unsafe extern "C" {
        fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
    }
    const AT_SECURE: core::ffi::c_ulong = 23;
    // SAFETY: it reads a vector that does not change.
    unsafe { getauxval(AT_SECURE) == 0 }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn is_heard() -> bool {
    unsafe extern "C" {
        fn getuid() -> u32;
        fn geteuid() -> u32;
        fn getgid() -> u32;
        fn getegid() -> u32;
    }
    // SAFETY: plain questions.
    unsafe { getuid() == geteuid() && getgid() == getegid() }
}

#[cfg(not(unix))]
fn is_heard() -> bool {
    true
}
