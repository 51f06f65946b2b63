//! Many threads at an allocator that has one lock, under which they are preempted: in code that is
//! not libc's. Whatever the runtime does to bring the holder back must not need that lock.

use std::cell::UnsafeCell;
use std::hint::black_box;

const THREADS: usize = 1_000;
/// For how many steps the lock is held; one takes longer if it is not optimized.
const HELD: usize = if cfg!(debug_assertions) { 30 } else { 500 };
const ALLOCATIONS: usize = if cfg!(debug_assertions) { 20 } else { 100 };

/// One mutex for all, held for a while each time.
pub struct OneLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is there to be shared.
unsafe impl Sync for OneLock {}

impl OneLock {
    pub const fn new() -> OneLock {
        OneLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    pub fn with<R>(&self, call: impl FnOnce() -> R) -> R {
        // SAFETY: a mutex that is never moved or destroyed, unlocked by who has locked it.
        unsafe {
            libc::pthread_mutex_lock(self.0.get());
            let result = call();
            (0..HELD).for_each(|i| {
                black_box(i);
            });
            libc::pthread_mutex_unlock(self.0.get());
            result
        }
    }
}

/// Threads that allocate, format and yield, all at once. Ends the process if they hang.
pub fn hammer() {
    // SAFETY: the signal ends the process, unless it is cancelled in time.
    unsafe { libc::alarm(120) };
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| greenthread::spawn(move || work(thread)))
        .collect();
    let sum: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(sum, (0..THREADS).map(work).sum());
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
}

fn work(thread: usize) -> usize {
    let mut random = (thread as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut kept = std::collections::VecDeque::new();
    let mut sum = 0;
    for i in 0..ALLOCATIONS {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        let size = 1 + random as usize % (64 << 10);
        kept.push_back(black_box(vec![i as u8; size]));
        sum += format!("{thread} {i} {size}").len() + usize::from(kept[0][0]);
        if kept.len() > 10 {
            kept.pop_front();
        }
        if i % 10 == 0 {
            greenthread::yield_now();
        }
    }
    sum
}
