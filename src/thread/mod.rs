//! Threads, with [`std::thread`]'s names and semantics. Every function works on kernel threads too.
//!
//! Replace `std::thread` by `greenthread::thread` in the imports and nothing else. The crate's root
//! has the same names.
//!
//! ```
//! use greenthread::{sync::Mutex, thread}; // instead of std
//!
//! let total = Mutex::new(0);
//! thread::scope(|s| {
//!     for i in 0..10 {
//!         let total = &total;
//!         s.spawn(move || *total.lock().unwrap() += i);
//!     }
//! });
//! assert_eq!(total.into_inner().unwrap(), 45);
//! ```
//!
//! Beyond std: [`park_until`], [`sleep_until`], [`blocking`], [`lock_kernel_thread`], and joining
//! [with a time limit](JoinHandle::join_timeout) or in async code.

// A spawned closure takes the road `builder` → `engine/backend/packet` → `sched::ready_from` → the run
// loop.

pub(crate) mod builder;
mod scope;

use core::marker::PhantomData;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

pub use std::thread::{AccessError, LocalKey};

pub use self::builder::{Builder, JoinHandle, spawn};
pub use self::scope::{ScopedJoinHandle, scope};
pub use crate::engine::door::Scope;
pub use crate::engine::door::handle::{Thread, ThreadId, current};

use crate::engine::door::clock;
use crate::engine::door::{self, Backend, handle};

/// The result of a thread: what its closure returned, or what it panicked with.
pub type Result<T> = std::thread::Result<T>;

/// Lets others run: the thread goes to the back of the queue. On a kernel thread,
/// [`std::thread::yield_now`].
///
/// ```
/// greenthread::spawn(|| greenthread::yield_now()).join().unwrap();
/// ```
#[inline]
pub fn yield_now() {
    door::yield_now();
}

/// Blocks until the thread's token is available ([`Thread::unpark`]), and takes it. As with std, be
/// ready for it to return for no reason.
///
/// ```
/// let waiting = greenthread::spawn(greenthread::park);
/// waiting.thread().unpark();
/// waiting.join().unwrap();
/// ```
pub fn park() {
    handle::with_token(|token| token.wait(None));
}

/// [`park`], for `duration` at most.
///
/// ```
/// use std::time::Duration;
/// greenthread::park_timeout(Duration::from_millis(1)); // nobody unparks us
/// ```
pub fn park_timeout(duration: Duration) {
    let deadline = clock::after(duration);
    handle::with_token(|token| token.wait(Some(deadline)));
}

/// [`park`], until `deadline` at most.
///
/// ```
/// use std::time::{Duration, Instant};
/// greenthread::park_until(Instant::now() + Duration::from_millis(1)); // nobody unparks us
/// ```
pub fn park_until(deadline: Instant) {
    let deadline = clock::at(deadline);
    handle::with_token(|token| token.wait(Some(deadline)));
}

/// Blocks for at least `duration`; other threads run meanwhile.
///
/// ```
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// greenthread::sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) {
    door::sleep_until(clock::after(duration));
}

/// [`sleep`], for so many milliseconds.
#[deprecated(note = "as in std: use `sleep`")]
pub fn sleep_ms(ms: u32) {
    sleep(Duration::from_millis(u64::from(ms)));
}

/// [`park_timeout`], for so many milliseconds.
#[deprecated(note = "as in std: use `park_timeout`")]
pub fn park_timeout_ms(ms: u32) {
    park_timeout(Duration::from_millis(u64::from(ms)));
}

/// Blocks until `deadline`; returns at once if it has passed.
///
/// ```
/// use std::time::{Duration, Instant};
/// let deadline = Instant::now() + Duration::from_millis(2);
/// greenthread::sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    door::sleep_until(clock::at(deadline));
}

/// Whether the thread is unwinding; [`std::thread::panicking`].
///
/// ```
/// assert!(!greenthread::panicking());
/// ```
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// How many threads can run at once: the processors of the caller's runtime at this moment, or of
/// the default one. Unless somebody has named another number, they are as many as the CPUs that this
/// process may use, by affinity and cgroup quota.
///
/// ```
/// assert!(greenthread::available_parallelism()?.get() >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `GREENTHREAD_PROCS` is set, and to something that is not a number of processors.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    let count = Backend::parallelism_here()?;
    Ok(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN))
}

/// Runs `f`, which blocks the kernel thread, and says so: the processor goes to other threads at
/// once if they wait.
///
/// It is not needed for correctness: a thread that blocks without a word loses its processor too,
/// only later.
///
/// ```
/// let text = greenthread::spawn(|| greenthread::blocking(||
/// std::fs::read_to_string("Cargo.toml"))); assert!(text.join().unwrap()?.contains("greenthread"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    door::blocking(f)
}

/// Keeps a thread on its kernel thread for as long as it lives; see [`lock_kernel_thread`].
#[derive(Debug)]
#[must_use = "the thread is unlocked when this is dropped"]
pub struct KernelThreadLock(PhantomData<*mut ()>);

/// Locks the thread to its kernel thread, and the kernel thread to it, until all locks are dropped.
///
/// For what belongs to a kernel thread and cannot be moved: CPU affinity, namespaces, GUI toolkits. A
/// switch to or from a locked thread costs a switch of kernel threads. On a kernel thread it does
/// nothing.
///
/// What a thread has changed about its kernel thread is there for whoever runs on that next, once the
/// thread has unlocked it. Who cannot undo it does not unlock: a thread that ends locked (which has
/// [forgotten](core::mem::forget) the lock) takes its kernel thread with it.
///
/// Mutexes that inherit priorities (`PTHREAD_PRIO_INHERIT`) are not supported in green threads, locked
/// ones included: the kernel finds a mutex's owner by the id that libc has for the thread, and a green
/// thread keeps the one of its own under which it may have locked other mutexes.
/// `pthread_mutexattr_setprotocol` says ENOTSUP there. One that was made elsewhere must not be locked by a
/// green thread: who has to wait for it, or for a green thread to unlock it, waits for ever.
///
/// ```
/// greenthread::spawn(|| {
///     let kernel_thread = || unsafe { libc::gettid() };
///     let _lock = greenthread::lock_kernel_thread();
///     let before = kernel_thread();
///     greenthread::yield_now();
///     assert_eq!(kernel_thread(), before);
/// }).join().unwrap();
/// ```
pub fn lock_kernel_thread() -> KernelThreadLock {
    door::lock_kernel_thread();
    KernelThreadLock(PhantomData)
}

impl Drop for KernelThreadLock {
    fn drop(&mut self) {
        door::unlock_kernel_thread();
    }
}
