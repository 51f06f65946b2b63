//! [`std::sync::mpsc`], blocking only the green thread: a view of [`crate::channel`]
//! through std's types.
//!
//! The error types are std's own, so that `?` and `From` go on working.
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

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::RefUnwindSafe;
use core::time::Duration;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Instant;

use crate::channel;

/// A channel without a bound; [`std::sync::mpsc::channel`].
///
/// Sending never blocks. The receiver gets what a sender sends in order.
///
/// ```
/// let (sender, receiver) = greenthread::sync::mpsc::channel();
/// greenthread::spawn(move || sender.send(6 * 7).unwrap());
/// assert_eq!(receiver.recv(), Ok(42));
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = channel::unbounded();
    (Sender { inner: sender }, Receiver::new(receiver))
}

/// A channel that holds `bound` messages: sending blocks while it is full. With a bound of 0 it
/// blocks until a receiver takes the message. [`std::sync::mpsc::sync_channel`].
///
/// ```
/// let (sender, receiver) = greenthread::sync::mpsc::sync_channel(0);
/// greenthread::spawn(move || sender.send("together").unwrap());
/// assert_eq!(receiver.recv(), Ok("together"));
/// ```
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = channel::bounded(bound);
    (SyncSender { inner: sender }, Receiver::new(receiver))
}

/// The sending half of [`channel()`].
pub struct Sender<T> {
    inner: channel::Sender<T>,
}

/// The sending half of [`sync_channel`].
pub struct SyncSender<T> {
    inner: channel::Sender<T>,
}

/// The receiving half of [`channel()`] and [`sync_channel`]. One thread at a time uses it.
pub struct Receiver<T> {
    inner: channel::Receiver<T>,
    not_sync: PhantomData<Cell<()>>,
}

impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a message; never blocks. That it is sent does not mean that it will be received.
    ///
    /// # Errors
    /// The receiver is gone. The error contains the message.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        send(&self.inner, message)
    }
}

impl<T> SyncSender<T> {
    /// Sends a message, and blocks while the channel is full.
    ///
    /// # Errors
    /// The receiver is gone. The error contains the message.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        send(&self.inner, message)
    }

    /// Sends a message if there is room, or if a receiver waits where the bound is 0.
    ///
    /// # Errors
    /// `Full`, or `Disconnected` if the receiver is gone. The error contains the message.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.inner.try_send(message).map_err(|error| match error {
            channel::TrySendError::Full(message) => TrySendError::Full(message),
            channel::TrySendError::Disconnected(message) => TrySendError::Disconnected(message),
        })
    }
}

#[inline]
fn send<T>(sender: &channel::Sender<T>, message: T) -> Result<(), SendError<T>> {
    sender
        .send(message)
        .map_err(|error| SendError(error.into_inner()))
}

impl<T> Receiver<T> {
    fn new(inner: channel::Receiver<T>) -> Receiver<T> {
        Receiver {
            inner,
            not_sync: PhantomData,
        }
    }

    /// The next message; blocks until there is one.
    ///
    /// # Errors
    /// All senders are gone, and all they sent was received.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.inner.recv().map_err(|_| RecvError)
    }

    /// The next message if there is one.
    ///
    /// # Errors
    /// `Empty`, or `Disconnected` as for [`recv`](Receiver::recv).
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.inner.try_recv().map_err(|error| match error {
            channel::TryRecvError::Empty => TryRecvError::Empty,
            channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// The next message; blocks for `timeout` at most.
    ///
    /// # Errors
    /// `Timeout`, or `Disconnected` as for [`recv`](Receiver::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.inner.recv_timeout(timeout).map_err(of_channel)
    }

    /// The next message; blocks until `deadline` at most.
    ///
    /// # Errors
    /// `Timeout`, or `Disconnected` as for [`recv`](Receiver::recv).
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.inner.recv_deadline(deadline).map_err(of_channel)
    }

    /// All messages, as they come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The messages that are there; never blocks.
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

/// Messages as they come; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// Messages that are there; see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// Messages as they come, from a receiver of its own.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

crate::channel::iter::iterate!();

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender {
            inner: self.inner.clone(),
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        SyncSender {
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
