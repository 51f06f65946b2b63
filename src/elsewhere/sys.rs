//! The stand-in for `sys`: it asks the system by way of std.

/// The monotonic clock, in nanoseconds since the first use.
pub(crate) mod clock {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    /// A deadline that never comes.
    pub(crate) const NEVER: u64 = u64::MAX;

    pub(crate) fn now() -> u64 {
        /// The origin of the clock. The clock shows a little more than 0 there, since 0 stands for "not
        /// yet" in places.
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let start = *START;
        1 + Instant::now().saturating_duration_since(start).as_nanos() as u64
    }

    /// The time when `duration` will be over; [`NEVER`] if that is beyond the clock.
    pub(crate) fn after(duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
        now().saturating_add(nanos)
    }

    /// The time of `deadline` on this clock.
    pub(crate) fn at(deadline: Instant) -> u64 {
        after(deadline.saturating_duration_since(Instant::now()))
    }
}
/// Blocking a kernel thread on a word of memory, by std's means: words share condition variables.
///
/// | waiter | waker |
/// |---|---|
/// | takes the lock of the word's bucket | changes the word |
/// | looks at the word: another value? returns | takes the lock, and lets it go |
/// | waits on the condition variable, which lets the lock go | notifies all |
///
/// Invariant: no wake-up is lost. The waker takes the lock after its change of the word. If that is
/// before the waiter takes the lock, the waiter sees the change; if after, the waiter waits
/// already, and is notified.
///
/// A wake-up in a bucket wakes all its waiters, and each looks at its word again: callers expect
/// that of a futex.
pub(crate) mod futex {
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;

    use super::clock;
    use crate::engine::atomic::{AtomicU32, Ordering};

    const BUCKETS: usize = 256;

    type Bucket = (Mutex<()>, Condvar);

    static TABLE: [Bucket; BUCKETS] = [const { (Mutex::new(()), Condvar::new()) }; BUCKETS];

    /// Finds the bucket by the address of the word; the lowest bits are the same for all words.
    fn bucket(word: *const AtomicU32) -> &'static Bucket {
        let hash = (word.addr() as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &TABLE[(hash >> 56) as usize % BUCKETS]
    }

    /// Blocks while `word` holds `expected`, at most until `deadline` (nanoseconds of [`clock`]). May return early. Returns
    /// false: std does not tell whether a signal's handler has run on the kernel thread.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
        let (lock, changed) = bucket(word);
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the lock orders the load after the waker's change, if that has come already.
        if word.load(Ordering::Relaxed) != expected {
            return false;
        }
        match deadline.filter(|&deadline| deadline != clock::NEVER) {
            None => drop(changed.wait(guard)),
            Some(deadline) => {
                let rest = Duration::from_nanos(deadline.saturating_sub(clock::now()));
                drop(changed.wait_timeout(guard, rest));
            }
        }
        false
    }

    /// Wakes the threads that wait on `word`, and maybe others. The word may be gone by now.
    pub(crate) fn wake(word: *const AtomicU32, _count: u32) {
        let (lock, changed) = bucket(word);
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }
}
#[path = "../engine/sys/shared.rs"]
pub(crate) mod shared;
/// No thread stops.
pub(crate) mod perturb {
    #[inline(always)]
    pub(crate) fn point(_: &'static str) {}
}
/// No sanitizer is told anything: there is no scheduler.
pub(crate) mod sanitizer {
    pub(crate) fn hide() {}

    pub(crate) fn see_again() {}

    #[inline(always)]
    pub(crate) fn publish<T>(_: &T) {}

    pub(crate) use publish as observe;
}

pub(crate) mod variable {
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
}

/// Words of the program's memory are not read: no handler would end a fault.
pub(crate) mod word {
    pub(crate) fn read(_: usize) -> Option<usize> {
        None
    }

    pub(crate) fn look(_: usize) -> Option<u32> {
        None
    }
}

/// A flat machine: all processors are equally near.
pub(crate) mod topology {
    pub(crate) const RINGS: usize = 4;
}

pub(crate) mod kernel_thread {
    /// A number for the calling kernel thread. The system's is not to be had by way of std.
    pub(crate) fn id() -> i32 {
        static NEXT: AtomicI32 = AtomicI32::new(1);
        NEXT.fetch_add(1, Relaxed)
    }

    /// Whether there is a kernel thread with this number; it may have ended.
    pub(crate) fn exists(_: i32) -> bool {
        true
    }

    use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

    /// Registers no barrier: the runtime preempts no thread, so none is needed.
    pub(crate) fn register_barrier() -> bool {
        false
    }

    pub(crate) fn barrier() {}

    pub(crate) use std::thread::yield_now as give_way;

    pub(crate) fn rest(nanos: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(nanos));
    }

    pub(crate) fn making<T>(make: impl FnOnce() -> T) -> T {
        make()
    }

    pub(crate) const NAME: usize = 16;

    /// Returns no name: only the system knows it.
    pub(crate) fn own_name(_: &mut [u8; NAME]) -> &str {
        ""
    }
}

/// Writes a line to standard error.
pub(crate) fn say(text: core::fmt::Arguments<'_>) {
    eprintln!("greenthread: {text}");
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, and going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    eprintln!("greenthread: internal invariant broken: {message}");
    std::process::abort()
}
