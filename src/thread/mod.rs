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

/// Lets others run: the thread goes to the back of the queue. On a kernel thread,
/// [`std::thread::yield_now`].
///
/// # Examples
///
/// ```
/// greenthread::spawn(|| greenthread::yield_now()).join().unwrap();
/// ```
#[inline]
pub fn yield_now() {
    match me::enter() {
        Some(entered) => entered.suspend(Action::Yield),
        None => std::thread::yield_now(),
    }
}

/// Blocks until the thread's token is available ([`Thread::unpark`]), and takes it. As with std, be
/// ready for it to return for no reason.
///
/// # Examples
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
/// # Examples
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
/// # Examples
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
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// greenthread::sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) {
    sleep_to(clock::after(duration));
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
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// let deadline = Instant::now() + Duration::from_millis(2);
/// greenthread::sleep_until(deadline);
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

/// Whether the thread is unwinding; [`std::thread::panicking`].
///
/// # Examples
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
/// # Errors
/// `GREENTHREAD_PROCS` is set, and to something that is not a number of processors.
///
/// # Examples
///
/// ```
/// assert!(greenthread::available_parallelism()?.get() >= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    let count = Runtime::parallelism_here()?;
    Ok(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN))
}

/// Runs `f`, which blocks the kernel thread, and says so: the processor goes to other threads at
/// once if they wait.
///
/// It is not needed for correctness: a thread that blocks without a word loses its processor too,
/// only later.
///
/// # Examples
///
/// ```
/// let text = greenthread::spawn(|| greenthread::blocking(||
/// std::fs::read_to_string("Cargo.toml"))); assert!(text.join().unwrap()?.contains("greenthread"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    with_flag(|green| &green.announced, f)
}

/// Runs `f`, which makes system calls that may block and seldom do, for little more than they cost.
///
/// The processor stays until the monitor sees that the thread is blocked, or that it goes on for longer
/// than its time slice. It is not signalled meanwhile: what a call does partly when a signal comes, it
/// does completely.
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
                // Gives way if the slice is over; takes the processor back if it is gone, or an idle
                // one, or queues for one.
                drop(me::enter());
            }
        }
    }
    // Only the thread itself writes it.
    let before = me::green().is_some_and(|green| {
        let flag = flag(green);
        let before = flag.load(Ordering::Relaxed);
        flag.store(true, Ordering::Relaxed);
        before
    });
    let _set = Set(flag, before);
    f()
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
/// # Examples
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
    locked::lock();
    KernelThreadLock(PhantomData)
}

impl Drop for KernelThreadLock {
    fn drop(&mut self) {
        locked::unlock();
    }
}
