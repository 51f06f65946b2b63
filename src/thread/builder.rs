//! [`Builder`], [`JoinHandle`], and `spawn`.

use core::panic::Location;
use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Result;
use super::scope::ScopedJoinHandle;
use crate::engine::facade::handle::Thread;
use crate::engine::facade::{
    self, Backend, Joiner, Priority, Scope, Wishes, check_stack_size, clock,
};

/// Configures a new thread, like [`std::thread::Builder`].
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handle = thread::Builder::new()
///     .name("deep".into())
///     .stack_size(8 << 20)
///     .spawn(|| thread::current().name().unwrap().len())?;
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
    /// Creates a builder for a thread without a name, with the runtime's stack size.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().spawn(|| 6 * 7)?;
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the thread's name.
    ///
    /// The name appears in panic messages and in reports of an overflowed stack, and
    /// [`Thread::name`] returns it. [`std::thread::current`] does not know the name of a green
    /// thread: a logger that asks std, for example, gets `None`.
    ///
    /// # Panics
    ///
    /// [`spawn`](Builder::spawn) panics if the name contains a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().name("worker".into()).spawn(|| {
    ///     assert_eq!(thread::current().name(), Some("worker"));
    /// })?;
    /// handle.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Sets the size of the thread's stack in bytes, at most 64 GiB.
    ///
    /// It is rounded up to a power of two, and to 16 KiB at least. The default is the runtime's
    /// ([`runtime::Builder::stack_size`](crate::runtime::Builder::stack_size)). A stack takes
    /// memory only as far as it is used.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().stack_size(32 << 10).spawn(|| 6 * 7)?; // 32 KiB
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = Some(size);
        self
    }

    /// Sets the thread's priority, which some policies take into account.
    ///
    /// Default: [`Priority::NORMAL`]. A running thread changes its own with
    /// [`policy::set_priority`](crate::policy::set_priority).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::policy::{Priorities, Priority};
    /// use greenthread::{runtime::Runtime, thread};
    ///
    /// let runtime = Runtime::builder().policy(Priorities::new()).build()?;
    /// let handle = runtime.spawn(|| {
    ///     let background = thread::Builder::new().priority(Priority::LOW);
    ///     background.spawn(|| 6 * 7).unwrap().join().unwrap()
    /// });
    /// assert_eq!(handle.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = priority;
        self
    }

    /// Spawns the thread on the runtime of the current thread, or on the default one if there is
    /// none.
    ///
    /// A thread gets its stack when it first runs, unless its size differs from the runtime's
    /// default. If there is no memory for the stack by then, the thread waits until another one has
    /// ended.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` if the stack size is not accepted.
    /// - `OutOfMemory` if there is no memory for a stack now.
    /// - The error of starting the default runtime, if this call is the first to use it.
    ///
    /// # Panics
    ///
    /// Panics if the name contains a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::Builder::new().spawn(|| "from a thread")?;
    /// assert_eq!(handle.join().unwrap(), "from a thread");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_on(Backend::here()?, f)
    }

    /// Spawns the thread without lifetime restrictions on the values that it borrows.
    ///
    /// Apart from that, this does the same as [`Builder::spawn`].
    ///
    /// # Safety
    ///
    /// All values that `f` and its result borrow must outlive the thread: either the thread is
    /// joined before they are dropped, or `f` and its result are `'static`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Builder::spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let word = String::from("borrowed");
    /// // SAFETY: the thread is joined before `word` is dropped.
    /// let handle = unsafe { thread::Builder::new().spawn_unchecked(|| word.len()) }?;
    /// assert_eq!(handle.join().unwrap(), 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[allow(unsafe_code, reason = "the promise of std's method, handed on")]
    #[track_caller]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let wishes = self.checked()?;
        // SAFETY: the caller's promise.
        unsafe { facade::spawn_unchecked(Backend::here()?, wishes, None, f) }.map(JoinHandle)
    }

    #[track_caller]
    pub(crate) fn spawn_on<F, T>(self, backend: Backend, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let wishes = self.checked()?;
        facade::spawn(backend, wishes, f).map(JoinHandle)
    }

    /// Spawns a scoped thread, which may borrow anything that outlives `scope`; see
    /// [`scope`](crate::scope).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`Builder::spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let numbers = vec![1, 2, 3];
    /// thread::scope(|s| {
    ///     let sum = thread::Builder::new().spawn_scoped(s, || numbers.iter().sum::<i32>())?;
    ///     assert_eq!(sum.join().unwrap(), 6);
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
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
        facade::spawn_scoped(backend, wishes, scope, f).map(ScopedJoinHandle::new)
    }

    // Inlined, a thread without wishes costs no look at them.
    #[inline(always)]
    #[track_caller]
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
            spawned_at: Location::caller(),
        })
    }
}

/// Spawns a green thread and returns a handle to join it, like [`std::thread::spawn`].
///
/// There is one difference: `cargo test` captures the output of a test and of its std threads, but
/// not the output of green threads, because std does not let other crates pass the capture on.
///
/// # Panics
///
/// Panics if the thread cannot be started; the message says why. [`Builder::spawn`] returns an
/// error instead.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handle = thread::spawn(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
#[track_caller]
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

/// A handle to wait for a thread and to get its result, like [`std::thread::JoinHandle`].
///
/// Dropping the handle detaches the thread. The handle can also be awaited: it implements
/// [`IntoFuture`](core::future::IntoFuture).
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let handles: Vec<thread::JoinHandle<u32>> = (0..3).map(|i| thread::spawn(move || i * i)).collect();
/// let sum: u32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
/// assert_eq!(sum, 5);
/// ```
pub struct JoinHandle<T>(Joiner<T>);

impl<T> JoinHandle<T> {
    /// Returns a handle to the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let handle = thread::spawn(|| thread::current().id());
    /// let id = handle.thread().id();
    /// assert_eq!(handle.join().unwrap(), id);
    /// ```
    pub fn thread(&self) -> &Thread {
        self.0.thread()
    }

    /// Waits until the thread has ended, including the destructors of its thread-locals, and
    /// returns its result.
    ///
    /// # Errors
    ///
    /// Returns the payload of the panic, if the thread panicked.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// assert_eq!(thread::spawn(|| 6 * 7).join().unwrap(), 42);
    ///
    /// let payload = thread::spawn(|| panic!("on purpose")).join().unwrap_err();
    /// assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    /// ```
    pub fn join(self) -> Result<T> {
        self.0.join()
    }

    /// Waits like [`JoinHandle::join`], but for `timeout` at most.
    ///
    /// std has no such method. The inner result is that of `join`.
    ///
    /// # Errors
    ///
    /// Returns the handle, if the time is up first: the thread goes on and can still be joined.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::Duration;
    ///
    /// let parked = thread::spawn(thread::park);
    /// let parked = parked.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// parked.thread().unpark();
    /// assert!(parked.join_timeout(Duration::MAX).unwrap().is_ok());
    /// ```
    pub fn join_timeout(self, timeout: Duration) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::after(timeout))
    }

    /// Waits like [`JoinHandle::join`], but until `deadline` at most.
    ///
    /// std has no such method. The inner result is that of `join`.
    ///
    /// # Errors
    ///
    /// Returns the handle, if the deadline passes first: the thread goes on and can still be
    /// joined.
    ///
    /// # Panics
    ///
    /// Panics if a thread joins itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let parked = thread::spawn(thread::park);
    /// let parked = parked.join_deadline(Instant::now()).unwrap_err();
    /// parked.thread().unpark();
    /// parked.join().unwrap();
    /// ```
    pub fn join_deadline(self, deadline: Instant) -> core::result::Result<Result<T>, Self> {
        self.join_by(clock::at(deadline))
    }

    fn join_by(self, deadline: u64) -> core::result::Result<Result<T>, Self> {
        self.0.join_by(deadline).map_err(JoinHandle)
    }

    /// Polls the thread's end, for a future: see [`Joiner::poll`].
    pub(crate) fn poll_end(&self, waker: &Waker) -> bool {
        self.0.poll(waker)
    }

    /// Returns the result of [`JoinHandle::join`], for a future, after `poll_end` has returned
    /// true.
    pub(crate) fn after_end(self) -> Result<T> {
        self.0.after_end()
    }

    /// Takes back the waker that a future has left with `poll_end`.
    pub(crate) fn forget_waker(&self) {
        self.0.forget_waker();
    }

    /// Returns whether the thread's closure has returned.
    ///
    /// The thread may still be running destructors of thread-locals. This never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let parked = thread::spawn(thread::park);
    /// assert!(!parked.is_finished());
    /// parked.thread().unpark();
    /// parked.join().unwrap();
    /// ```
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// See [`os::unix::thread`](crate::os::unix::thread).
#[cfg(unix)]
impl<T> JoinHandleExt for JoinHandle<T> {
    fn as_pthread_t(&self) -> RawPthread {
        self.0.pthread()
    }

    fn into_pthread_t(self) -> RawPthread {
        self.0.into_pthread()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
