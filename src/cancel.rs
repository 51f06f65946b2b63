//! Ending blocking code from outside: limits, shields, and what the code itself can ask.
//!
//! [`time::timeout`](crate::time::timeout) calls a closure in a *frame*: for the time of the call, each wait of the
//! thread ends at the frame's limit. The closure runs in the caller's thread, so it may borrow. Frames nest, and the earliest
//! limit counts. `docs/cancel.md` has the table of all waits; three paragraphs of it are for everybody:
//!
//! - **A value that the closure returns counts**, whatever has ended meanwhile. Calls that can fail do so
//!   with an error ([`is_cause`]), and what the closure makes of it is its result: a time-out round a client of a
//!   server is mostly `Ok(Err(…))`. `Err` comes from a closure that has unwound, out of a call that cannot fail, such as
//!   [`recv`](crate::channel::Receiver::recv), [`sleep`](crate::sleep) or [`park`](crate::park).
//! - **Some waits go on**: for locks, in event loops (`epoll_wait`), of C's and other crates' own locks, in system calls that
//!   block in the kernel. And a loop that computes never waits: it calls [`check`].
//! - **A connection whose read or write was refused in a library is shut down**, since nobody knows how much of a
//!   message has passed. The crate's own sockets stay as they are, and a server can still answer.
//!
//! # Examples
//!
//! ```
//! use greenthread::time::{self, Duration, Elapsed};
//! use greenthread::{cancel, channel};
//!
//! let (_sender, receiver) = channel::unbounded::<u32>();
//! let result = time::timeout(Duration::from_millis(1), || {
//!     let _clean_up = cancel::shield(Duration::from_secs(1), || "runs to its end");
//!     receiver.recv()
//! });
//! assert_eq!(result, Err(Elapsed));
//! ```

use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sys::clock::{self, NEVER};
use crate::thread::{self, ScopedJoinHandle};
use crate::time::Elapsed;
use crate::wait::{self, Outcome, WaitKind, WaitReason, Waiter, What};

pub use crate::engine::public::{Cancelled, Group};

/// A means to cancel code from outside, in any number of threads.
///
/// The clones of a token are one token. Once it is cancelled it stays so.
///
/// # Examples
///
/// ```
/// use greenthread::cancel::Token;
/// use greenthread::thread;
///
/// let token = Token::new();
/// let threads = [0, 1].map(|_| {
///     let token = token.clone();
///     thread::spawn(move || token.run(thread::park).is_err())
/// });
/// token.cancel();
/// assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
/// ```
#[derive(Clone)]
pub struct Token(Arc<wait::Token>);

impl Token {
    /// Makes a token.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(!greenthread::cancel::Token::new().is_cancelled());
    /// ```
    #[must_use]
    pub fn new() -> Token {
        Token(Arc::default())
    }

    /// Ends the waits in all calls of [`run`](Token::run), those that go on and later ones.
    ///
    /// It does not wait until the calls have ended. A second call does nothing new.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::cancel::Token;
    ///
    /// let token = Token::new();
    /// let result = token.run(|| {
    ///     token.cancel();
    ///     greenthread::park();
    /// });
    /// assert!(result.unwrap_err().location().is_some());
    /// ```
    #[track_caller]
    pub fn cancel(&self) {
        self.0.cancel(Location::caller());
    }

    /// Returns whether the token was cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// let token = greenthread::cancel::Token::new();
    /// token.cancel();
    /// assert!(token.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.reason.get().is_some()
    }

    /// Calls `f`, and ends its waits when the token is cancelled. `f` runs in the calling thread.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled`] if `f` has unwound because the token was cancelled. A value that `f` returns counts.
    ///
    /// # Panics
    ///
    /// Panics with the payload of `f` if `f` panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::cancel::Token;
    ///
    /// let token = Token::new();
    /// assert_eq!(token.run(|| 6 * 7).unwrap(), 42);
    /// ```
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> Result<T, Cancelled> {
        wait::run(NEVER, What::token(&self.0), f)
    }
}

defaults! { Token }
without_details! { [] Token, "Token"; }

/// Calls `f`. If a frame round the call ends meanwhile, calls `stop`, once, in another thread: for calls that frames do not end.
///
/// `stop` closes the socket, kills the child or cancels the query that `f` waits for. No frame ends its waits. The call returns
/// when both have returned. In a coroutine it sees only frames that have begun there.
///
/// # Panics
///
/// Panics if `f` or `stop` panics.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration};
/// use greenthread::cancel;
/// use std::sync::Mutex;
/// use std::sync::mpsc;
///
/// // std's channel knows nothing of frames.
/// let (sender, receiver) = mpsc::channel::<u32>();
/// let sender = Mutex::new(Some(sender));
/// let result = time::timeout(Duration::from_millis(1), || {
///     cancel::on_cancel(|| drop(sender.lock().unwrap().take()), || receiver.recv())
/// });
/// assert!(result.unwrap().is_err());
/// ```
pub fn on_cancel<T>(stop: impl FnOnce() + Send, f: impl FnOnce() -> T) -> T {
    static ENDED: WaitKind = WaitKind::inside("cancellation").fails();
    struct Done<'a>(&'a Waiter);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.wake();
        }
    }
    let over = Waiter::new();
    thread::scope(|s| {
        let done = Done(&over);
        s.spawn(|| {
            if over.wait(WaitReason::only(&ENDED), None) == Outcome::Expired {
                wait::shielded(stop);
            }
        });
        let result = f();
        drop(done);
        result
    })
}

/// Calls `f` such that the frames round the call end none of its waits, for as long as `limit` lasts.
///
/// The limit holds instead of the others, and there is no clean-up without one. [`Duration::MAX`] stands for ever.
///
/// # Errors
///
/// Returns [`Elapsed`] if the limit has passed and `f` has unwound for that.
///
/// # Panics
///
/// Panics with the payload of `f` if `f` panics.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Instant};
/// use greenthread::cancel;
///
/// let past = Instant::now();
/// let result = time::timeout_at(past, || {
///     cancel::shield(Duration::MAX, || greenthread::sleep(Duration::from_millis(1)))
/// });
/// assert_eq!(result, Ok(Ok(())));
/// ```
pub fn shield<T>(limit: Duration, f: impl FnOnce() -> T) -> Result<T, Elapsed> {
    wait::run(clock::after(limit), What::Shield, f).map_err(|_| Elapsed)
}

/// Unwinds if a frame has ended: for loops that compute and never wait.
///
/// Like a wait, it does nothing while the thread panics.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Elapsed};
///
/// let endless = || loop {
///     greenthread::cancel::check();
/// };
/// assert_eq!(time::timeout::<()>(Duration::from_millis(1), endless), Err(Elapsed));
/// ```
pub fn check() {
    wait::raise(None);
}

/// Returns whether a frame has ended, so that a wait of the calling thread would not wait.
///
/// # Examples
///
/// ```
/// use greenthread::time::{self, Duration, Instant};
/// use greenthread::cancel;
///
/// assert!(!cancel::is_cancelled());
/// assert_eq!(time::timeout_at(Instant::now(), cancel::is_cancelled), Ok(true));
/// ```
pub fn is_cancelled() -> bool {
    wait::cancelled().is_some()
}

/// Returns the instant at which the first frame of the calling thread ends. `None`: none has a limit.
///
/// It is for waits that frames do not end:
///
/// ```
/// use greenthread::sync::Mutex;
/// use greenthread::time::{self, Duration, Instant};
/// use greenthread::cancel;
///
/// let locked = Mutex::new(());
/// let _guard = locked.lock();
/// time::timeout(Duration::from_millis(1), || {
///     let ends = cancel::deadline().unwrap();
///     assert!(locked.try_lock_until(ends).is_err());
/// });
/// assert_eq!(cancel::deadline(), None);
/// ```
pub fn deadline() -> Option<Instant> {
    let (at, now) = (wait::ends_at(), Instant::now());
    let left = Duration::from_nanos(at.saturating_sub(clock::now()));
    now.checked_add(left).filter(|_| at != NEVER)
}

/// Returns whether `error` may be that of a call that had to wait in a frame which has ended: a time-out, or ECANCELED.
///
/// # Examples
///
/// ```
/// use std::io::{Error, ErrorKind};
///
/// assert!(greenthread::cancel::is_cause(&Error::from(ErrorKind::TimedOut)));
/// assert!(!greenthread::cancel::is_cause(&Error::from(ErrorKind::NotFound)));
/// ```
pub fn is_cause(error: &io::Error) -> bool {
    #[cfg(green)]
    let is_cancelled = error.raw_os_error() == Some(libc::ECANCELED);
    #[cfg(not(green))]
    let is_cancelled = false;
    is_cancelled || error.kind() == io::ErrorKind::TimedOut
}

/// Calls `f` with a scope whose threads end together: if one of them panics, or `f` does, or the group is cancelled, the
/// waits of all the others end, and of `f`, as those of [`Token::run`].
///
/// It returns when all threads of the group have ended.
///
/// # Panics
///
/// Panics with the payload of the first panic among them. If `f` itself unwinds since the group was cancelled, so does this
/// call.
///
/// # Examples
///
/// The first answer wins:
///
/// ```
/// use greenthread::{cancel, channel, thread};
/// use std::time::Duration;
///
/// let (sender, receiver) = channel::bounded(0);
/// let first = cancel::group(|group| {
///     for server in 1..=3 {
///         let sender = &sender;
///         group.spawn(move || {
///             thread::sleep(Duration::from_secs(server * server * 60 - 60));
///             sender.send(server)
///         });
///     }
///     let first = receiver.recv();
///     group.cancel();
///     first
/// });
/// assert_eq!(first, Ok(1));
/// ```
#[track_caller]
pub fn group<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Group<'scope, 'env>) -> T,
{
    Group::run(f)
}

impl<'scope> Group<'scope, '_> {
    /// Spawns a thread in this group.
    ///
    /// # Panics
    ///
    /// Panics if the thread cannot be started.
    ///
    /// # Examples
    ///
    /// ```
    /// let six = greenthread::cancel::group(|group| group.spawn(|| 6).join().unwrap());
    /// assert_eq!(six, 6);
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (fate, at) = (self.fate(), Location::caller());
        self.0.spawn(move || fate.share(f, at))
    }

    /// Ends the waits of all threads of the group, and of the closure that [`group`] was called with.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::{cancel, thread};
    ///
    /// cancel::group(|group| {
    ///     group.spawn(thread::park);
    ///     group.cancel();
    /// });
    /// ```
    #[track_caller]
    pub fn cancel(&self) {
        self.cancel_at(Location::caller());
    }
}
