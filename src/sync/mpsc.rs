//! Channels from many senders to one receiver, as in [`std::sync::mpsc`].
//!
//! [`channel()`] creates a channel without a bound, and [`sync_channel`] creates one with a bound.
//! The types have the names and the methods of `std::sync::mpsc`, but a wait blocks only the green
//! thread. The error types are std's own, so that `?` and `From` still work.
//!
//! A channel is *disconnected* when all its senders or its receiver have been dropped. Sending is
//! an error once the receiver is gone; receiving is an error once the senders are gone and no
//! message is left.
//!
//! [`greenthread::channel`](crate::channel) has channels with several receivers, `select!`, and
//! timers as channels.
//!
//! # Examples
//!
//! ```
//! use greenthread::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::channel();
//! for i in 0..100 {
//!     let sender = sender.clone();
//!     greenthread::spawn(move || sender.send(i).unwrap());
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<i32>(), 4950);
//! ```

// A view of `crate::channel` through std's types.

use core::cell::Cell;
use core::marker::PhantomData;
use core::panic::RefUnwindSafe;
use core::time::Duration;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Instant;

use crate::channel;

/// Creates a channel without a bound and returns its two halves.
///
/// Sending never blocks. Messages from one sender arrive in the order in which they were sent.
/// Clone the [`Sender`] to send from several threads.
///
/// # Examples
///
/// ```
/// let (sender, receiver) = greenthread::sync::mpsc::channel();
/// greenthread::spawn(move || sender.send(6 * 7).unwrap());
/// assert_eq!(receiver.recv(), Ok(42));
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::unbounded();
    (Sender(sender), Receiver(receiver, PhantomData))
}

/// Creates a channel that holds at most `bound` messages and returns its two halves.
///
/// Sending blocks while the channel is full. A channel with a bound of 0 holds no message: each
/// send blocks until the receiver takes the message.
///
/// # Panics
///
/// Panics if the memory for `bound` messages exceeds `isize::MAX` bytes.
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::sync_channel;
///
/// let (sender, receiver) = sync_channel(1);
/// sender.send(1).unwrap(); // does not block: there is room for one message
/// greenthread::spawn(move || sender.send(2).unwrap()); // blocks until there is room
/// assert_eq!(receiver.recv(), Ok(1));
/// assert_eq!(receiver.recv(), Ok(2));
///
/// let (sender, receiver) = sync_channel(0);
/// greenthread::spawn(move || sender.send("together").unwrap());
/// assert_eq!(receiver.recv(), Ok("together"));
/// ```
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = channel::bounded(bound);
    (SyncSender(sender), Receiver(receiver, PhantomData))
}

/// The sending half of a channel made by [`channel()`].
///
/// It can be cloned, and shared between threads.
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// let other = sender.clone();
/// greenthread::spawn(move || sender.send(1).unwrap());
/// greenthread::spawn(move || other.send(2).unwrap());
/// assert_eq!(receiver.recv().unwrap() + receiver.recv().unwrap(), 3);
/// ```
pub struct Sender<T>(channel::Sender<T>);

/// The sending half of a channel made by [`sync_channel`].
///
/// It can be cloned, and shared between threads.
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::sync_channel;
///
/// let (sender, receiver) = sync_channel(2);
/// let other = sender.clone();
/// greenthread::spawn(move || sender.send(1).unwrap());
/// greenthread::spawn(move || other.send(2).unwrap());
/// assert_eq!(receiver.recv().unwrap() + receiver.recv().unwrap(), 3);
/// ```
pub struct SyncSender<T>(channel::Sender<T>);

/// The receiving half of a channel made by [`channel()`] or [`sync_channel`].
///
/// One thread at a time can use it. It can be moved to another thread, but not shared.
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// let consumer = greenthread::spawn(move || receiver.recv().unwrap());
/// sender.send("hello").unwrap();
/// assert_eq!(consumer.join().unwrap(), "hello");
/// ```
pub struct Receiver<T>(channel::Receiver<T>, PhantomData<Cell<()>>);

impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a message on this channel, without ever blocking.
    ///
    /// A message that was sent is not necessarily received: the receiver may be dropped before it
    /// takes the message.
    ///
    /// # Errors
    ///
    /// Returns an error if the receiver has been dropped. The error contains the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{SendError, channel};
    ///
    /// let (sender, receiver) = channel();
    /// sender.send(1).unwrap();
    /// drop(receiver);
    /// assert_eq!(sender.send(2), Err(SendError(2)));
    /// ```
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message).map_err(|error| SendError(error.0))
    }
}

impl<T> SyncSender<T> {
    /// Sends a message on this channel, blocking while the channel is full.
    ///
    /// On a channel with a bound of 0 the call blocks until the receiver takes the message.
    ///
    /// # Errors
    ///
    /// Returns an error if the receiver has been dropped, or is dropped while the call blocks. The
    /// error contains the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::sync_channel;
    ///
    /// let (sender, receiver) = sync_channel(0);
    /// let thread = greenthread::spawn(move || sender.send(53));
    /// assert_eq!(receiver.recv(), Ok(53));
    /// assert_eq!(thread.join().unwrap(), Ok(()));
    /// ```
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message).map_err(|error| SendError(error.0))
    }

    /// Sends a message on this channel if that is possible without blocking.
    ///
    /// On a channel with a bound of 0 that is possible while the receiver waits for a message.
    ///
    /// # Errors
    ///
    /// Returns [`TrySendError::Full`] if there is no room, and [`TrySendError::Disconnected`] if
    /// the receiver has been dropped. Both contain the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{TrySendError, sync_channel};
    ///
    /// let (sender, receiver) = sync_channel(1);
    /// assert_eq!(sender.try_send(1), Ok(()));
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    /// drop(receiver);
    /// assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(message).map_err(|error| match error {
            channel::TrySendError::Full(message) => TrySendError::Full(message),
            channel::TrySendError::Disconnected(message) => TrySendError::Disconnected(message),
        })
    }
}

impl<T> Receiver<T> {
    /// Receives the next message, blocking the current thread until there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if all senders have been dropped and no message is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{RecvError, channel};
    ///
    /// let (sender, receiver) = channel();
    /// greenthread::spawn(move || sender.send(1).unwrap());
    /// assert_eq!(receiver.recv(), Ok(1));
    /// assert_eq!(receiver.recv(), Err(RecvError)); // the sender is gone with its thread
    /// ```
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv().map_err(|_| RecvError)
    }

    /// Receives the next message if there is one, without ever blocking.
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError::Empty`] if there is no message, and [`TryRecvError::Disconnected`]
    /// if all senders have been dropped as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{TryRecvError, channel};
    ///
    /// let (sender, receiver) = channel();
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(1).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|error| match error {
            channel::TryRecvError::Empty => TryRecvError::Empty,
            channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Receives the next message, blocking the current thread for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Returns [`RecvTimeoutError::Timeout`] if no message came in time, and
    /// [`RecvTimeoutError::Disconnected`] if all senders have been dropped and no message is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{RecvTimeoutError, channel};
    /// use std::time::Duration;
    ///
    /// let (sender, receiver) = channel();
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(1));
    /// let received = receiver.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(timeout).map_err(of_channel)
    }

    /// Receives the next message, blocking the current thread until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// Returns [`RecvTimeoutError::Timeout`] if no message came in time, and
    /// [`RecvTimeoutError::Disconnected`] if all senders have been dropped and no message is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::{RecvTimeoutError, channel};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_sender, receiver) = channel::<u8>();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(receiver.recv_deadline(deadline), Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.0.recv_deadline(deadline).map_err(of_channel)
    }

    /// Returns an iterator that blocks for each message and ends when all senders are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::channel;
    ///
    /// let (sender, receiver) = channel();
    /// greenthread::spawn(move || (1..=3).for_each(|i| sender.send(i).unwrap()));
    /// assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Returns an iterator over the messages that are there already; it never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::sync::mpsc::channel;
    ///
    /// let (sender, receiver) = channel();
    /// assert_eq!(receiver.try_iter().next(), None);
    /// sender.send(1).unwrap();
    /// sender.send(2).unwrap();
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }
}

fn of_channel(error: channel::RecvTimeoutError) -> RecvTimeoutError {
    match error {
        channel::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
        channel::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
    }
}

/// An iterator over messages that blocks for each of them, made by [`Receiver::iter`].
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// greenthread::spawn(move || {
///     sender.send(1).unwrap();
///     sender.send(2).unwrap();
/// });
/// for (position, message) in receiver.iter().enumerate() {
///     assert_eq!(message, position + 1);
/// }
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// An iterator over the messages that are there already, made by [`Receiver::try_iter`].
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// sender.send("one").unwrap();
/// let mut messages = receiver.try_iter();
/// assert_eq!(messages.next(), Some("one"));
/// assert_eq!(messages.next(), None);
/// sender.send("two").unwrap();
/// assert_eq!(messages.next(), Some("two"));
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// An iterator over messages that owns the receiver, made by [`Receiver::into_iter`].
///
/// # Examples
///
/// ```
/// use greenthread::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// let consumer = greenthread::spawn(move || receiver.into_iter().sum::<i32>());
/// for i in 0..10 {
///     sender.send(i).unwrap();
/// }
/// drop(sender);
/// assert_eq!(consumer.join().unwrap(), 45);
/// ```
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

crate::channel::receiver::iterate!();

clones!(Sender SyncSender);
