//! Green threads, with the API of [`std::thread`].
//!
//! A program that uses `std::thread` needs to change only its imports. The crate's root has the
//! same names as this module. All functions work on kernel threads too.
//!
//! Beyond std there are [`park_until`] and [`sleep_until`], [`blocking`], [`lock_kernel_thread`],
//! and handles that join [with a time limit](JoinHandle::join_timeout) or in async code.
//!
//! # Examples
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

// A spawned closure takes the road `builder` → `spawn` → `sched::ready_from` → the run loop; see
// `spawn`.

#[cfg_attr(not(green), path = "../engine/elsewhere/bare.rs")]
mod bare;
pub(crate) mod builder;
mod end;
pub(crate) mod handle;
mod panic_hook;
mod scope;
mod spawn;

use core::marker::PhantomData;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

pub use std::thread::{AccessError, LocalKey};

pub use self::builder::{Builder, JoinHandle, spawn};
pub use self::handle::{Thread, ThreadId, current};
#[cfg(green)]
pub(crate) use self::panic_hook::install as install_panic_hook;
pub(crate) use self::panic_hook::text_of;
pub use self::scope::{Scope, ScopedJoinHandle, scope};
pub use self::spawn::Result;

use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::context::Action;
use crate::engine::current as me;
use crate::engine::green::Green;
use crate::engine::sched::locked;
use crate::engine::sys::clock;
use crate::engine::wait::Waiter;
use crate::runtime::Runtime;

/// Gives way to other threads: the current thread goes to the back of the queue.
///
/// On a kernel thread this is [`std::thread::yield_now`].
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// thread::spawn(|| {
///     thread::yield_now(); // others run
/// })
/// .join()
/// .unwrap();
/// ```
#[inline]
pub fn yield_now() {
    match me::enter() {
        Some(entered) => entered.suspend(Action::Yield),
        None => std::thread::yield_now(),
    }
}

/// Blocks the current thread until its token is available, and takes the token.
///
/// [`Thread::unpark`] makes the token available. As in std, this may also return for no reason, so
/// callers check in a loop whether they may go on.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let go = Arc::new(AtomicBool::new(false));
/// let waiting = thread::spawn({
///     let go = go.clone();
///     move || {
///         while !go.load(Ordering::Acquire) {
///             thread::park();
///         }
///     }
/// });
/// go.store(true, Ordering::Release);
/// waiting.thread().unpark();
/// waiting.join().unwrap();
/// ```
pub fn park() {
    handle::with_token(|token| token.wait(None));
}

/// Blocks like [`park`], but for `duration` at most.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::time::Duration;
///
/// thread::park_timeout(Duration::from_millis(1)); // no thread unparks this one
/// ```
pub fn park_timeout(duration: Duration) {
    let deadline = clock::after(duration);
    handle::with_token(|token| token.wait(Some(deadline)));
}

/// Blocks like [`park`], but until `deadline` at most.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::time::{Duration, Instant};
///
/// thread::park_until(Instant::now() + Duration::from_millis(1)); // no thread unparks this one
/// ```
pub fn park_until(deadline: Instant) {
    let deadline = clock::at(deadline);
    handle::with_token(|token| token.wait(Some(deadline)));
}

/// Blocks the current thread for at least `duration`; other threads run meanwhile.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// thread::sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) {
    sleep_to(clock::after(duration));
}

/// Blocks the current thread for at least `ms` milliseconds.
#[deprecated(note = "as in std: use `sleep`")]
pub fn sleep_ms(ms: u32) {
    sleep(Duration::from_millis(u64::from(ms)));
}

/// Blocks like [`park`], but for `ms` milliseconds at most.
#[deprecated(note = "as in std: use `park_timeout`")]
pub fn park_timeout_ms(ms: u32) {
    park_timeout(Duration::from_millis(u64::from(ms)));
}

/// Blocks the current thread until `deadline`, and returns at once if that has passed.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// thread::sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) {
    sleep_to(clock::at(deadline));
}

fn sleep_to(deadline: u64) {
    let alarm = Waiter::new();
    while clock::now() < deadline {
        alarm.wait(Some(deadline));
    }
}

/// Returns whether the current thread is unwinding because of a panic, like
/// [`std::thread::panicking`].
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// struct Witness;
///
/// impl Drop for Witness {
///     fn drop(&mut self) {
///         assert!(thread::panicking());
///     }
/// }
///
/// assert!(!thread::panicking());
/// let thread = thread::spawn(|| {
///     let _witness = Witness;
///     panic!("on purpose");
/// });
/// assert!(thread.join().is_err());
/// ```
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// Returns the number of threads that can run at once: the number of processors of the current
/// thread's runtime, or of the default one.
///
/// Unless another number was set, there are as many as CPUs that this process may use, by affinity
/// and cgroup quota.
///
/// # Errors
///
/// If the value of `GREENTHREAD_PROCS` is not a number of processors.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let count = thread::available_parallelism()?.get();
/// assert!(count >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    let count = Runtime::parallelism_here()?;
    Ok(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN))
}

/// Runs `f`, which blocks the kernel thread, and gives the processor to other threads meanwhile.
///
/// Programs are correct without it: the processor is taken from a thread that blocks the kernel
/// thread without saying so, only later.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let text = thread::spawn(|| thread::blocking(|| std::fs::read_to_string("Cargo.toml")));
/// assert!(text.join().unwrap()?.contains("greenthread"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.announced, f)
}

/// Runs `f`, whose system calls may block but seldom do, at little more than their cost.
///
/// The thread keeps its processor until the monitor sees that it is blocked, or that it has gone on
/// for longer than its time slice. It is not signalled meanwhile: a call that a signal would end
/// early does all its work.
#[cfg(green)]
pub(crate) fn may_block<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.in_call, f)
}

/// Runs `f` with one of the thread's flags set.
#[inline]
fn with_flag<T>(flag: impl Fn(&Green) -> &AtomicBool + Copy, f: impl FnOnce() -> T) -> T {
    struct Set<F: Fn(&Green) -> &AtomicBool>(F, bool);
    impl<F: Fn(&Green) -> &AtomicBool> Drop for Set<F> {
        fn drop(&mut self) {
            if let Some(green) = me::green() {
                (self.0)(green).store(self.1, Ordering::Relaxed);
                // Gives way if the slice is over. If the processor is gone, takes it back, or takes
                // an idle one, or queues for one.
                drop(me::enter());
            }
        }
    }
    // Only the thread itself writes the flag.
    let before = me::green().is_some_and(|green| {
        let flag = flag(green);
        let before = flag.load(Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        before
    });
    let _set = Set(flag, before);
    f()
}

/// Keeps a green thread on its kernel thread until it is dropped; [`lock_kernel_thread`] makes it.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// thread::spawn(|| {
///     let outer = thread::lock_kernel_thread();
///     let inner = thread::lock_kernel_thread();
///     drop(outer); // still locked
///     drop(inner);
/// })
/// .join()
/// .unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the thread is unlocked when this is dropped"]
pub struct KernelThreadLock(PhantomData<*mut ()>);

/// Locks the current thread to its kernel thread, and the kernel thread to it, until all its locks
/// are dropped.
///
/// This is for state that belongs to a kernel thread and cannot be moved: CPU affinity, namespaces,
/// GUI toolkits. A switch to or from a locked thread costs a switch of kernel threads. On a kernel
/// thread this does nothing.
///
/// When a thread has unlocked its kernel thread, other threads run there and find what it has
/// changed about it. A thread that cannot undo its changes should stay locked: one that ends while
/// it is locked (because it has [forgotten](core::mem::forget) the lock) takes its kernel thread
/// with it.
///
/// Mutexes that inherit priorities (`PTHREAD_PRIO_INHERIT`) are not supported in green threads,
/// locked ones included: the kernel finds the owner of a mutex by the id that libc has for the
/// thread, and a green thread keeps the id under which it may have locked other mutexes.
/// `pthread_mutexattr_setprotocol` fails with `ENOTSUP` there. A green thread must not lock such a
/// mutex that was made elsewhere: threads that wait for it may wait for ever.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// thread::spawn(|| {
///     let kernel_thread = || unsafe { libc::gettid() };
///     let _lock = thread::lock_kernel_thread();
///     let before = kernel_thread();
///     thread::yield_now();
///     assert_eq!(kernel_thread(), before);
/// })
/// .join()
/// .unwrap();
/// ```
pub fn lock_kernel_thread() -> KernelThreadLock {
    locked::lock();
    KernelThreadLock(PhantomData)
}

impl Drop for KernelThreadLock {
    fn drop(&mut self) {
        locked::unlock();
    }
}
