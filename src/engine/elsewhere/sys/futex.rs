//! Blocking a kernel thread on a word of memory, by std's means: words share condition variables.
//!
//! | waiter | waker |
//! |---|---|
//! | takes the lock of the word's bucket | changes the word |
//! | looks at the word: another value? returns | takes the lock, and lets it go |
//! | waits on the condition variable, which lets the lock go | notifies all |
//!
//! Invariant: no wake-up is lost. The waker takes the lock after its change of the word. If that is
//! before the waiter takes the lock, the waiter sees the change; if after, the waiter waits
//! already, and is notified.
//!
//! A wake-up in a bucket wakes all its waiters, and each looks at its word again: callers expect
//! that of a futex.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::clock;
use crate::engine::atomic::{AtomicU32, Ordering};

const BUCKETS: usize = 256;

struct Bucket {
    lock: Mutex<()>,
    changed: Condvar,
}

static TABLE: [Bucket; BUCKETS] = [const {
    Bucket {
        lock: Mutex::new(()),
        changed: Condvar::new(),
    }
}; BUCKETS];

/// Finds the bucket by the address of the word; the lowest bits are the same for all words.
fn bucket(word: *const AtomicU32) -> &'static Bucket {
    let hash = (word.addr() as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> 56) as usize % BUCKETS]
}

/// Blocks while `word` holds `expected`, at most until `deadline` (nanoseconds of [`clock`]). May
/// return early.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    is_interrupted_wait(word, expected, deadline);
}

/// [`wait`]. False: std does not tell whether a signal's handler has run on the kernel thread.
pub(crate) fn is_interrupted_wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
    let bucket = bucket(word);
    let guard = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed: the lock orders the load after the waker's change, if that has come already.
    if word.load(Ordering::Relaxed) != expected {
        return false;
    }
    match deadline.filter(|&deadline| deadline != clock::NEVER) {
        None => drop(bucket.changed.wait(guard)),
        Some(deadline) => {
            let rest = Duration::from_nanos(deadline.saturating_sub(clock::now()));
            drop(bucket.changed.wait_timeout(guard, rest));
        }
    }
    false
}

/// Wakes the threads that wait on `word`, and maybe others. The word may be gone by now.
pub(crate) fn wake(word: *const AtomicU32, _count: u32) {
    let bucket = bucket(word);
    drop(bucket.lock.lock().unwrap_or_else(PoisonError::into_inner));
    bucket.changed.notify_all();
}
