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

// A spawned closure takes the road `engine/runtime/spawn` → `sched::ready_from` → the run
// loop.

mod scope;

use core::marker::PhantomData;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

pub use std::thread::{AccessError, LocalKey};

pub use self::scope::{ScopedJoinHandle, scope};
pub use crate::engine::public::{Builder, JoinHandle, Scope, Thread, ThreadId, spawn};

use crate::engine::facade::{self, Backend};
use crate::sys::clock;

/// The result of a thread: the value that its closure returned, or the payload of its panic.
pub type Result<T> = std::thread::Result<T>;

/// Returns a handle to the current thread.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let worker = thread::Builder::new().name("worker".into());
/// let name = worker.spawn(|| thread::current().name().map(str::to_owned))?;
/// assert_eq!(name.join().unwrap().as_deref(), Some("worker"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn current() -> Thread {
    Thread::current()
}

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
    Thread::yield_now();
}

/// Calls `f`, in which all threads that are started are green threads: those of [`std::thread`] and of C, in crates that
/// nobody has changed, and the threads that these start.
///
/// Such a thread is std's in every way: [`std::thread::current`], its name, its thread-locals and their destructors, its
/// handles, panics and captured output are those that std's documentation describes. What it waits for parks it, as
/// `docs/unmodified.md` says, and it is preempted as other green threads are. It runs on the runtime of the thread that starts
/// it, or else on the default one.
///
/// Threads stay kernel threads that ask the system for what a green thread has not: a stack of their own memory, CPUs, a
/// scheduling policy. So do those that a forked child starts; and all of them in
/// [`Mode::Kernel`](crate::runtime::Mode::Kernel) and on platforms without green threads.
///
/// `GREENTHREAD_PTHREADS=on` in the environment does this for all threads of the process.
///
/// # Errors
///
/// - `Unsupported` if threads cannot be green here; the message says why. `f` was not called then.
/// - The error of starting the default runtime, if this call is the first to use it.
///
/// # Examples
///
/// ```
/// use std::thread; // not greenthread's
///
/// let total: u32 = greenthread::thread::adopt(|| {
///     let threads: Vec<_> = (0..1000).map(|i| thread::spawn(move || i)).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).sum()
/// })?;
/// assert_eq!(total, 499_500);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(feature = "unmodified")]
pub fn adopt<T>(f: impl FnOnce() -> T) -> io::Result<T> {
    #[cfg(hooks)]
    return facade::adopting(f);
    #[cfg(all(green, not(hooks)))]
    return Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "green threads in the place of pthreads cannot be had in a static program, nor under ThreadSanitizer",
    ));
    #[cfg(not(green))]
    Ok(f())
}

/// For a library that is preloaded (`examples/preload`): prepares the process for green threads in the place of its pthreads, if
/// `GREENTHREAD_PTHREADS` asks for them. Returns whether it does, or why it cannot.
#[cfg(hooks)]
#[doc(hidden)]
pub fn prepare_pthreads() -> io::Result<bool> {
    facade::IS_OURS.store(true, core::sync::atomic::Ordering::Relaxed); // by way of the library's
    facade::prepare_pthreads()
}

/// Blocks the current thread until its token is available, and takes the token.
///
/// [`Thread::unpark`] makes the token available. As in std, this may also return spuriously, so
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
    Thread::park(None);
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
    Thread::park(Some(clock::after(duration)));
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
    Thread::park(Some(clock::at(deadline)));
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
    Thread::sleep_until(clock::after(duration));
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
    Thread::sleep_until(clock::at(deadline));
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
/// Unless another number was set, this is the number of CPUs that the process may use, by affinity
/// and cgroup quota.
///
/// # Errors
///
/// Returns an error if the value of `GREENTHREAD_PROCS` is not a number of processors.
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
    let count = Backend::parallelism_here()?;
    Ok(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN))
}

/// Runs `f`, which blocks the kernel thread, and gives the processor to other threads meanwhile.
///
/// Programs are correct without it: a thread that blocks its kernel thread without this call loses
/// its processor too, only later.
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
    facade::blocking(f)
}

/// Runs `f` with libc hooks disabled on this thread.
///
/// With the feature `unmodified` a blocking call of libc parks the green thread that makes it. In `f` such a
/// call blocks the kernel thread, as all such calls do without the feature. Few programs need this function: it
/// is for code that must see what the kernel does, such as the EINTR that a signal causes.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
/// use std::time::Duration;
///
/// thread::spawn(|| {
///     // A sleep of the kernel thread.
///     thread::unhooked(|| std::thread::sleep(Duration::from_millis(1)));
/// })
/// .join()
/// .unwrap();
/// ```
pub fn unhooked<F: FnOnce() -> T, T>(f: F) -> T {
    facade::unhooked(f)
}

/// Keeps a green thread on its kernel thread until it is dropped, created by [`lock_kernel_thread`].
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

/// Locks the current green thread to its kernel thread (OS thread), and the kernel thread to it,
/// until all its locks are dropped; Go calls this `LockOSThread`.
///
/// It is for state that belongs to a kernel thread and cannot be moved: CPU affinity, namespaces,
/// GUI toolkits. A switch to or from a locked thread costs a switch of kernel threads. On a kernel
/// thread this does nothing.
///
/// A thread that makes such a change by libc's functions (`sched_setaffinity`, `unshare`, `prctl` …) is locked for good
/// by that, and need not lock itself. It hands the change on to no thread that it spawns.
///
/// After a thread has unlocked its kernel thread, other threads run there and see the other changes that
/// it has made. A thread that cannot undo its changes should stay locked: if it ends while it is
/// locked (because it has [forgotten](core::mem::forget) the lock), its kernel thread ends with it.
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
    facade::lock_kernel_thread();
    KernelThreadLock(PhantomData)
}

impl Drop for KernelThreadLock {
    fn drop(&mut self) {
        facade::unlock_kernel_thread();
    }
}
