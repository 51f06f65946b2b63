//! [`Builder`], [`JoinHandle`], and `spawn`.

use std::fmt;
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Result;
use super::scope::ScopedJoinHandle;
use crate::engine::door::handle::Thread;
use crate::engine::door::{
    self, Backend, Joiner, Priority, Scope, Wishes, check_stack_size, clock,
};

/// Configures a new thread, as [`std::thread::Builder`].
///
/// ```
/// let handle = greenthread::Builder::new()
///     .name("deep".into())
///     .stack_size(8 << 20)
///     .spawn(|| greenthread::current().name().unwrap().len())?;
/// assert_eq!(handle.join().unwrap(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "must eventually spawn the thread"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    priority: Priority,
}

impl Builder {
    /// A builder with no name and the runtime's stack size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the thread: in panic messages, in reports of an overflowed stack, and for
    /// [`Thread::name`]. [`std::thread::current`] knows no name of a green thread: who asks it, a
    /// logger perhaps, is told `None`.
    ///
    /// # Panics
    /// `spawn` panics if the name contains a NUL byte.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Sets the stack's size in bytes, at most 64 GiB; it is rounded up to a power of two, and to 16
    /// KiB at least. The default is the runtime's
    /// ([`runtime::Builder::stack_size`](crate::runtime::Builder::stack_size)). Memory is used only
    /// as far as the stack is.
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }

    /// How the thread is ranked against others, if the runtime's policy asks for that. Default:
    /// [`Priority::NORMAL`]. A running thread changes its own with
    /// [`policy::set_priority`](crate::policy::set_priority).
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = priority;
        self
    }

    /// Starts the thread, in the runtime of the thread that asks, or else in the default one.
    ///
    /// # Errors
    /// `InvalidInput` for a stack size that is not accepted; `OutOfMemory` if there is no memory
    /// for a stack now; what starting the runtime fails with, if this is its first use. Nothing else
    /// is affected.
    ///
    /// A thread gets its stack when it first runs, unless it asked for another size than its
    /// runtime's. If memory has run out by then, it waits until another thread has ended.
    ///
    /// # Panics
    /// If the name contains a NUL byte.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_on(Backend::here()?, f)
    }

    /// [`Builder::spawn`] of a thread that may borrow: nobody sees to it that it has ended in time.
    ///
    /// # Safety
    /// What `f` and its result borrow outlives the thread: it is joined, or what is borrowed is
    /// `'static`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    /// As [`Builder::spawn`].
    ///
    /// ```
    /// let word = String::from("borrowed");
    /// // SAFETY: the thread is joined while `word` is there.
    /// let thread = unsafe { greenthread::Builder::new().spawn_unchecked(|| word.len()) }?;
    /// assert_eq!(thread.join().unwrap(), 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[allow(unsafe_code, reason = "the promise of std's method, handed on")]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let wishes = self.checked()?;
        // SAFETY: the caller's promise.
        unsafe { door::spawn_unchecked(Backend::here()?, wishes, f) }.map(JoinHandle)
    }

    pub(crate) fn spawn_on<F, T>(self, backend: Backend, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let wishes = self.checked()?;
        door::spawn(backend, wishes, f).map(JoinHandle)
    }

    /// Starts a thread that may borrow what outlives `scope`; see [`scope`](crate::scope).
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    /// As [`Builder::spawn`].
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let wishes = self.checked()?;
        let backend = Backend::here()?;
        door::spawn_scoped(backend, wishes, scope, f).map(ScopedJoinHandle::new)
    }

    fn checked(self) -> io::Result<Wishes> {
        if let Some(name) = &self.name
            && let Some(at) = name.find('\0')
        {
            panic!("thread name may not contain NUL bytes, and {name:?} has one at byte {at}");
        }
        if let Some(size) = self.stack_size {
            check_stack_size(size)?;
        }
        Ok(Wishes {
            name: self.name.map(String::into_boxed_str),
            stack_size: self.stack_size,
            priority: self.priority,
        })
    }
}

/// Starts a thread, as [`std::thread::spawn`], but a green one.
///
/// One thing does not go along: `cargo test` captures what a test prints, also by way of std's
/// threads. What a green thread prints is not captured, for std lets nobody else hand the capture on.
/// To keep it, let the test's own thread print.
///
/// ```
/// use greenthread as thread;
/// let handle = thread::spawn(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
///
/// # Panics
/// If the thread cannot be started, with the reason; [`Builder::spawn`] returns it instead.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(f) {
        Ok(handle) => handle,
        Err(error) => panic!("failed to spawn thread: {error}"),
    }
}

/// The right to wait for a thread and to have its result, as [`std::thread::JoinHandle`]. Dropping
/// it detaches the thread.
pub struct JoinHandle<T>(Joiner<T>);

impl<T> JoinHandle<T> {
    /// The thread.
    pub fn thread(&self) -> &Thread {
        self.0.thread()
    }

    /// Waits until the thread has ended, its thread-local destructors included.
    ///
    /// # Errors
    /// The payload with which the thread panicked.
    pub fn join(self) -> Result<T> {
        self.0.join()
    }

    /// Waits until the thread has ended, for `timeout` at most. std has no such thing.
    ///
    /// # Errors
    /// The handle itself, if the time was up first: the thread goes on and can still be joined.
    /// What the thread panicked with is in the inner result.
    ///
    /// ```
    /// use std::time::Duration;
    /// let parked = greenthread::spawn(greenthread::park);
    /// let parked = parked.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// parked.thread().unpark();
    /// assert!(parked.join_timeout(Duration::MAX).unwrap().is_ok());
    /// ```
    ///
    /// # Panics
    /// If a thread waits for itself.
    pub fn join_timeout(self, timeout: Duration) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::after(timeout))
    }

    /// [`JoinHandle::join_timeout`] with a point in time.
    ///
    /// # Errors
    /// As [`JoinHandle::join_timeout`].
    ///
    /// # Panics
    /// If a thread waits for itself.
    pub fn join_deadline(self, deadline: Instant) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::at(deadline))
    }

    fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.0.join_by(deadline).map_err(JoinHandle)
    }

    /// For the future: see [`Joiner::poll`].
    pub(crate) fn poll_end(&self, waker: &Waker) -> bool {
        self.0.poll(waker)
    }

    /// For the future: what [`JoinHandle::join`] returns, after a yes of `poll_end`.
    pub(crate) fn after_end(self) -> Result<T> {
        self.0.after_end()
    }

    /// For the future: takes back the waker of a `poll_end`.
    pub(crate) fn forget_waker(&self) {
        self.0.forget_waker();
    }

    /// What libc calls the thread: see [`os::unix::thread`](crate::os::unix::thread).
    #[cfg(green)]
    pub(crate) fn pthread(&self) -> libc::pthread_t {
        self.0.pthread()
    }

    /// The same, and no longer ours to wait for.
    #[cfg(green)]
    pub(crate) fn into_pthread(self) -> libc::pthread_t {
        self.0.into_pthread()
    }

    /// Whether the thread's closure has returned; it may still be running thread-local destructors.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
