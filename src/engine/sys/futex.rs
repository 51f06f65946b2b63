//! Blocking a kernel thread on a word of memory.

use super::perturb;
use crate::engine::atomic::AtomicU32;

/// Blocks while `word` holds `expected`, at most until `deadline` (monotonic nanoseconds). May
/// return early.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    perturb::point("futex: waiting");
    let until = deadline.map(|nanos| libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    });
    let until = until
        .as_ref()
        .map_or(core::ptr::null(), |t| t as *const libc::timespec);
    // WAIT_BITSET takes an absolute monotonic time, so an interrupted wait need not compute a
    // remainder.
    let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let arguments = [
        word.as_ptr() as usize,
        operation as usize,
        expected as usize,
        until as usize,
        0,
        libc::FUTEX_BITSET_MATCH_ANY as u32 as usize,
    ];
    // SAFETY: both pointers are valid for the call; every failure (EAGAIN, EINTR, ETIMEDOUT) means
    // "look again".
    let _ = unsafe { super::call(libc::SYS_futex, &arguments) };
}

/// Wakes at most `count` of those that wait on `word`. The word may be gone by now: the kernel then
/// wakes nobody, or somebody who looks again.
pub(crate) fn wake(word: *const AtomicU32, count: u32) {
    perturb::point("futex: waking");
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let arguments = [word as usize, operation as usize, count as usize];
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    let _ = unsafe { super::call(libc::SYS_futex, &arguments) };
}
