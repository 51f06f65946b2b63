//! Blocking a kernel thread on a word of memory.

use super::{clock, perturb};
use crate::engine::atomic::AtomicU32;

/// Blocks while `word` holds `expected`, at most until `deadline` (monotonic nanoseconds). May
/// return early.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    is_interrupted_wait(word, expected, deadline);
}

/// [`wait`]; true if a signal's handler has run on the kernel thread meanwhile.
pub(crate) fn is_interrupted_wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
    perturb::point("futex: waiting");
    // It takes an absolute monotonic time, so an interrupted wait need not compute a remainder.
    // Every failure (EAGAIN, EINTR, ETIMEDOUT) means "look again".
    call(word, libc::FUTEX_WAIT_BITSET, expected, deadline) == Err(libc::EINTR)
}

/// Wakes at most `count` of those that wait on `word`. The word may be gone by now: the kernel then
/// wakes no thread, or one that looks again.
pub(crate) fn wake(word: *const AtomicU32, count: u32) {
    perturb::point("futex: waking");
    let _ = call(word, libc::FUTEX_WAKE, count, None);
}

fn call(
    word: *const AtomicU32,
    operation: i32,
    value: u32,
    deadline: Option<u64>,
) -> Result<usize, i32> {
    let until = deadline.map(clock::timespec);
    let until = until
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref) as usize;
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    let (word, all) = (word as usize, libc::FUTEX_BITSET_MATCH_ANY as u32 as usize);
    let arguments = [word, operation, value as usize, until, 0, all];
    // SAFETY: the time is absent or valid. The kernel writes nowhere, and fails where it cannot read
    // the word; FUTEX_WAKE uses its address as a key only.
    unsafe { super::call(libc::SYS_futex, &arguments) }
}
