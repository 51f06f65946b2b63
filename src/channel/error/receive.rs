//! The errors of receiving. The messages that were sent before a disconnection are received first.

use super::display;

/// The error returned by [`Receiver::recv`](crate::channel::Receiver::recv): the channel is empty
/// and disconnected.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{RecvError, unbounded};
///
/// let (s, r) = unbounded();
/// s.send(1).unwrap();
/// drop(s);
/// assert_eq!(r.recv(), Ok(1));
/// assert_eq!(r.recv(), Err(RecvError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// The error returned by [`Receiver::try_recv`](crate::channel::Receiver::try_recv).
///
/// # Examples
///
/// ```
/// use greenthread::channel::{TryRecvError, unbounded};
///
/// let (s, r) = unbounded::<u8>();
/// assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
/// drop(s);
/// assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// The channel is empty or, if its capacity is 0, no sender waits.
    Empty,

    /// The channel is empty and all senders have been dropped.
    Disconnected,
}

/// The error returned by [`Receiver::recv_timeout`](crate::channel::Receiver::recv_timeout) and
/// [`Receiver::recv_deadline`](crate::channel::Receiver::recv_deadline).
///
/// # Examples
///
/// ```
/// use greenthread::channel::{RecvTimeoutError, unbounded};
/// use std::time::Duration;
///
/// let (s, r) = unbounded::<u8>();
/// assert_eq!(r.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// drop(s);
/// assert_eq!(r.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The channel was empty all the time or, if its capacity is 0, no sender came.
    Timeout,

    /// The channel is empty and all senders have been dropped.
    Disconnected,
}

impl TryRecvError {
    /// Returns `true` if the channel was empty and a sender was left.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// assert!(r.try_recv().unwrap_err().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Returns `true` if the channel was empty and all senders had been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    ///
    /// let (s, r) = unbounded::<u8>();
    /// drop(s);
    /// assert!(r.try_recv().unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Returns `true` if the time was up.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    /// use std::time::Duration;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let error = r.recv_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert!(error.is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Returns `true` if the channel was empty and all senders had been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    /// use std::time::Duration;
    ///
    /// let (s, r) = unbounded::<u8>();
    /// drop(s);
    /// let error = r.recv_timeout(Duration::from_secs(60)).unwrap_err();
    /// assert!(error.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, RecvTimeoutError::Disconnected)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(RecvError: RecvError) -> TryRecvError {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(RecvError: RecvError) -> RecvTimeoutError {
        RecvTimeoutError::Disconnected
    }
}

display! {
    RecvError {
        RecvError => "receiving on an empty and disconnected channel",
    }
    TryRecvError {
        TryRecvError::Empty => "receiving on an empty channel",
        TryRecvError::Disconnected => "receiving on an empty and disconnected channel",
    }
    RecvTimeoutError {
        RecvTimeoutError::Timeout => "timed out waiting on receive operation",
        RecvTimeoutError::Disconnected => "channel is empty and disconnected",
    }
}
