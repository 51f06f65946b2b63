//! The stand-in for `runtime::green`: there are no green threads here.

use std::io;

/// The reason why there are no green threads.
pub(super) fn prepare(_: usize) -> io::Result<Result<(), String>> {
    const WHY: &str = "green threads need Linux on x86-64 or aarch64, with glibc, \
        and neither Miri nor MemorySanitizer";
    Ok(Err(WHY.into()))
}

/// Accepts any signal: the runtime preempts no thread.
pub(super) fn check_signal(_: i32) -> io::Result<()> {
    Ok(())
}

pub(super) fn accepted_signals() -> String {
    "a number".into()
}
