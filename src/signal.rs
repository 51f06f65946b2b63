//! Signals as messages in channels, so that a program can stop cleanly.
//!
//! [`ctrl_c`] creates a receiver that gets a message when Ctrl-C is pressed. [`Signals`] receives
//! any signals that a program may catch. Both are receivers of a [`channel`](crate::channel), so a
//! thread can wait for them in [`select!`](crate::select) along with other work. Since a signal
//! arrives as a message, the code that reacts to it is ordinary code: it may lock, allocate and
//! print.
//!
//! A signal that is watched loses its default effect, which is usually to end the program. It does
//! not get that effect back when the receiver is dropped.
//!
//! # Examples
//!
//! A server that stops when it is told to:
//!
//! ```
//! use greenthread::channel::{bounded, select};
//! use greenthread::signal::{SIGINT, SIGTERM, Signals};
//!
//! let stop = Signals::new([SIGINT, SIGTERM]).unwrap();
//! let (clients, requests) = bounded(10);
//! # let kill = move || unsafe { libc::kill(libc::getpid(), SIGTERM) };
//! # greenthread::spawn(move || { clients.send("GET /").unwrap(); kill(); greenthread::park() });
//!
//! loop {
//!     select! {
//!         recv(requests) -> request => println!("{}", request.unwrap()),
//!         recv(stop) -> signal => {
//!             println!("stopping because of signal {}", signal.unwrap());
//!             break;
//!         }
//!     }
//! }
//! ```

#[cfg_attr(not(green), path = "elsewhere/signal.rs")]
mod watch;

use std::borrow::Borrow;
use std::io;
use std::ops::Deref;

#[cfg(green)]
#[doc(no_inline)]
pub use libc::{
    SIGABRT, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};

#[cfg(not(green))]
pub use self::watch::{SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use crate::channel::{IntoIter, Iter, Receiver};

/// Creates a receiver that gets a message when Ctrl-C is pressed (`SIGINT` arrives).
///
/// From this call on, Ctrl-C no longer ends the program, not even after the receiver has been
/// dropped. The channel holds one message at most: further presses are not counted until the
/// message has been received. The channel is never disconnected.
///
/// # Errors
///
/// Returns an error in the same cases as [`Signals::new`].
///
/// # Examples
///
/// ```
/// use greenthread::channel::{after, select};
/// use std::time::Duration;
///
/// let stop = greenthread::signal::ctrl_c().unwrap();
/// select! {
///     recv(stop) -> _ => println!("stopping"),
///     recv(after(Duration::from_millis(10))) -> _ => println!("nobody pressed Ctrl-C"),
/// }
/// ```
pub fn ctrl_c() -> io::Result<Receiver<()>> {
    watch::receiver_of([SIGINT], |_| ())
}

/// A receiver of the signals that it watches.
///
/// It dereferences to a [`Receiver<i32>`](Receiver), whose messages are the numbers of the signals.
/// So it has all methods of that type and can stand in [`select!`](crate::select). The channel
/// holds each signal once at most: if a signal arrives again before it has been received, it is not
/// counted. The channel is never disconnected.
///
/// Several receivers may watch the same signal; each of them gets it. If the program had installed
/// a handler for the signal, that handler is still called, on the alternate stack and with other
/// signals blocked.
///
/// A signal does not get its default effect back when the receiver is dropped.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{bounded, select};
/// use greenthread::signal::{SIGHUP, SIGTERM, SIGUSR1, Signals};
///
/// let signals = Signals::new([SIGTERM, SIGHUP, SIGUSR1]).unwrap();
/// let (_jobs, todo) = bounded::<u32>(1);
/// # unsafe { libc::kill(libc::getpid(), SIGUSR1) };
/// loop {
///     select! {
///         recv(todo) -> job => println!("{job:?}"),
///         recv(signals) -> signal => match signal.unwrap() {
///             SIGHUP => println!("reading the configuration again"),
///             _ => break, // stop cleanly
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<i32>,
}

impl Signals {
    /// Creates a receiver that watches `signals` from now on.
    ///
    /// # Errors
    ///
    /// - [`InvalidInput`](io::ErrorKind::InvalidInput) if `signals` is empty, or contains a number
    ///   that is not the number of a signal, or a signal that cannot be watched: `SIGKILL`,
    ///   `SIGSTOP`, the signals that faults raise, and the signals that the C library or this crate
    ///   uses itself.
    /// - [`Unsupported`](io::ErrorKind::Unsupported) in a process that was forked from a process
    ///   with green threads, and on a platform without green threads.
    /// - The error of the system if the first call cannot start a kernel thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::signal::{SIGTERM, Signals};
    /// use std::io::ErrorKind;
    ///
    /// assert!(Signals::new([SIGTERM]).is_ok());
    ///
    /// let sigkill = 9;
    /// assert_eq!(Signals::new([sigkill]).unwrap_err().kind(), ErrorKind::InvalidInput);
    /// ```
    pub fn new(signals: impl IntoIterator<Item: Borrow<i32>>) -> io::Result<Signals> {
        let receiver = watch::receiver_of(signals, |signal| signal)?;
        Ok(Signals { receiver })
    }
}

impl Deref for Signals {
    type Target = Receiver<i32>;

    fn deref(&self) -> &Receiver<i32> {
        &self.receiver
    }
}

impl<'a> IntoIterator for &'a Signals {
    type Item = i32;
    type IntoIter = Iter<'a, i32>;

    fn into_iter(self) -> Iter<'a, i32> {
        self.receiver.iter()
    }
}

impl IntoIterator for Signals {
    type Item = i32;
    type IntoIter = IntoIter<i32>;

    fn into_iter(self) -> IntoIter<i32> {
        self.receiver.into_iter()
    }
}
