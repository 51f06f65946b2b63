//! The errors of sending. Each gives the message back, and works with any type of messages.

use std::fmt;

use super::display;

/// The error returned by [`Sender::send`](crate::channel::Sender::send): all receivers have been
/// dropped.
///
/// It contains the message that was not sent.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{SendError, unbounded};
///
/// let (s, r) = unbounded();
/// drop(r);
/// assert_eq!(s.send("hello"), Err(SendError("hello")));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// The error returned by [`Sender::try_send`](crate::channel::Sender::try_send).
///
/// It contains the message that was not sent.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{TrySendError, bounded};
///
/// let (s, r) = bounded(1);
/// s.send(1).unwrap();
/// assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
/// drop(r);
/// assert_eq!(s.try_send(3), Err(TrySendError::Disconnected(3)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// The channel is full or, if its capacity is 0, no receiver waits.
    Full(T),

    /// All receivers have been dropped.
    Disconnected(T),
}

/// The error returned by [`Sender::send_timeout`](crate::channel::Sender::send_timeout) and
/// [`Sender::send_deadline`](crate::channel::Sender::send_deadline).
///
/// It contains the message that was not sent.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{SendTimeoutError, bounded};
/// use std::time::Duration;
///
/// let (s, r) = bounded(0);
/// let sent = s.send_timeout(1, Duration::from_millis(1));
/// assert_eq!(sent, Err(SendTimeoutError::Timeout(1)));
/// drop(r);
/// let sent = s.send_timeout(2, Duration::from_secs(60));
/// assert_eq!(sent, Err(SendTimeoutError::Disconnected(2)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The channel was full all the time or, if its capacity is 0, no receiver came.
    Timeout(T),

    /// All receivers have been dropped.
    Disconnected(T),
}

impl<T> SendError<T> {
    /// Returns the message that was not sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    ///
    /// let (s, r) = unbounded();
    /// drop(r);
    /// let error = s.send("hello").unwrap_err();
    /// assert_eq!(error.into_inner(), "hello");
    /// ```
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the message that was not sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    ///
    /// let (s, _r) = bounded(0);
    /// let error = s.try_send("hello").unwrap_err();
    /// assert_eq!(error.into_inner(), "hello");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(msg) | TrySendError::Disconnected(msg) => msg,
        }
    }

    /// Returns `true` if the send failed because the channel was full.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    ///
    /// let (s, _r) = bounded(1);
    /// s.send(1).unwrap();
    /// assert!(s.try_send(2).unwrap_err().is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Returns `true` if the send failed because all receivers had been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    ///
    /// let (s, r) = bounded(1);
    /// drop(r);
    /// assert!(s.try_send(1).unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message that was not sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    /// use std::time::Duration;
    ///
    /// let (s, _r) = bounded(0);
    /// let error = s.send_timeout("hello", Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.into_inner(), "hello");
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(msg) | SendTimeoutError::Disconnected(msg) => msg,
        }
    }

    /// Returns `true` if the send failed because the time was up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    /// use std::time::Duration;
    ///
    /// let (s, _r) = bounded(0);
    /// let error = s.send_timeout(1, Duration::from_millis(1)).unwrap_err();
    /// assert!(error.is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Returns `true` if the send failed because all receivers had been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::bounded;
    /// use std::time::Duration;
    ///
    /// let (s, r) = bounded(0);
    /// drop(r);
    /// let error = s.send_timeout(1, Duration::from_secs(60)).unwrap_err();
    /// assert!(error.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(SendError(msg): SendError<T>) -> TrySendError<T> {
        TrySendError::Disconnected(msg)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(SendError(msg): SendError<T>) -> SendTimeoutError<T> {
        SendTimeoutError::Disconnected(msg)
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SendTimeoutError(..)")
    }
}

display! {
    SendError<T> {
        SendError(_) => "sending on a disconnected channel",
    }
    TrySendError<T> {
        TrySendError::Full(_) => "sending on a full channel",
        TrySendError::Disconnected(_) => "sending on a disconnected channel",
    }
    SendTimeoutError<T> {
        SendTimeoutError::Timeout(_) => "timed out waiting on send operation",
        SendTimeoutError::Disconnected(_) => "sending on a disconnected channel",
    }
}
