//! [`Builder`] and `spawn`.

use std::io;

use super::scope::ScopedJoinHandle;
use super::{JoinHandle, Scope};
use crate::engine::facade::{Backend, ThreadOptions};
use crate::policy::Priority;

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
    options: ThreadOptions,
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
    /// [`Thread::name`](super::Thread::name) returns it. [`std::thread::current`] does not know the name of a green
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
        self.options.name = Some(name.into_boxed_str());
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
        self.options.stack_size = Some(size);
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
        self.options.priority = priority;
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
        // SAFETY: the caller's closure and result outlive the thread.
        unsafe { self.options.spawn_unchecked(Backend::here()?, None, f) }
    }

    #[track_caller]
    pub(crate) fn spawn_on<F, T>(self, backend: Backend, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.options.spawn(backend, f)
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
        self.options
            .spawn_scoped(scope, f)
            .map(ScopedJoinHandle::new)
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
