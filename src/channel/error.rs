//! The errors of channels and of [`Select`](super::Select).
//!
//! The idea: an operation fails for at most three reasons: it would block ("full", "empty"), its
//! time is up, or the channel is disconnected: all receivers are gone, or all senders and messages.
//! Each error has a variant for each reason for which its operation can fail; the error of a send
//! gives the message back. A method with a deadline has the error of the method with a timeout.
//!
//! | operation | would block | time is up | disconnected |
//! |---|---|---|---|
//! | `send` | | | [`SendError`] |
//! | `try_send` | [`TrySendError::Full`] | | [`TrySendError::Disconnected`] |
//! | `send_timeout` | | [`SendTimeoutError::Timeout`] | [`SendTimeoutError::Disconnected`] |
//! | `recv` | | | [`RecvError`] |
//! | `try_recv` | [`TryRecvError::Empty`] | | [`TryRecvError::Disconnected`] |
//! | `recv_timeout` | | [`RecvTimeoutError::Timeout`] | [`RecvTimeoutError::Disconnected`] |
//! | `try_select`, `try_ready` | [`TrySelectError`], [`TryReadyError`] | | |
//! | `select_timeout`, `ready_timeout` | | [`SelectTimeoutError`], [`ReadyTimeoutError`] | |
//!
//! Invariants:
//! 1. No error asks anything of the message type: `Debug` and `Display` never show the message.
//! 2. The texts are those of crossbeam-channel, since they end up in programs' logs.

use std::fmt;

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
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

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

/// The error returned by [`Select::try_select`](crate::channel::Select::try_select): every
/// operation would block.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, TrySelectError, unbounded};
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// The error returned by [`Select::select_timeout`](crate::channel::Select::select_timeout) and
/// [`Select::select_deadline`](crate::channel::Select::select_deadline): no operation could go on
/// in time.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, SelectTimeoutError, unbounded};
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// let error = select.select_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(error, SelectTimeoutError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// The error returned by [`Select::try_ready`](crate::channel::Select::try_ready): no operation is
/// ready.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, TryReadyError, unbounded};
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.try_ready(), Err(TryReadyError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// The error returned by [`Select::ready_timeout`](crate::channel::Select::ready_timeout) and
/// [`Select::ready_deadline`](crate::channel::Select::ready_deadline): no operation became ready in
/// time.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{ReadyTimeoutError, Select, unbounded};
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u8>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.ready_timeout(Duration::from_millis(1)), Err(ReadyTimeoutError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

/// Converts an error that is always a disconnection to errors that may be one.
macro_rules! disconnections {
    ($([$($T:ident)?] $Error:ty, $it:pat => $Other:ty, $same:expr;)*) => {$(
        impl<$($T)?> From<$Error> for $Other {
            fn from($it: $Error) -> $Other {
                $same
            }
        }
    )*};
}

disconnections! {
    [T] SendError<T>, SendError(msg) => TrySendError<T>, TrySendError::Disconnected(msg);
    [T] SendError<T>, SendError(msg) => SendTimeoutError<T>, SendTimeoutError::Disconnected(msg);
    [] RecvError, RecvError => TryRecvError, TryRecvError::Disconnected;
    [] RecvError, RecvError => RecvTimeoutError, RecvTimeoutError::Disconnected;
}

/// Implements `Display`, by a text for each value, and `Error`, for any type of messages; and for some values the method that
/// asks whether the error is that value.
macro_rules! errors {
    ($($error:ident $(<$T:ident>)? {
        $($($(#[$doc:meta])* fn $is:ident:)? $value:pat => $text:literal,)*
    })*) => {$(
        impl$(<$T>)? fmt::Display for $error$(<$T>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $($value => $text,)*
                })
            }
        }

        impl$(<$T>)? std::error::Error for $error$(<$T>)? {}

        impl$(<$T>)? $error$(<$T>)? {
            $($(
                $(#[$doc])*
                pub fn $is(&self) -> bool {
                    matches!(self, $value)
                }
            )?)*
        }
    )*};
}

errors! {
    SendError<T> {
        SendError(_) => "sending on a disconnected channel",
    }
    TrySendError<T> {
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
        fn is_full: TrySendError::Full(_) => "sending on a full channel",
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
        fn is_disconnected: TrySendError::Disconnected(_) => "sending on a disconnected channel",
    }
    SendTimeoutError<T> {
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
        fn is_timeout: SendTimeoutError::Timeout(_) => "timed out waiting on send operation",
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
        fn is_disconnected: SendTimeoutError::Disconnected(_) => "sending on a disconnected channel",
    }
    RecvError {
        RecvError => "receiving on an empty and disconnected channel",
    }
    TryRecvError {
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
        fn is_empty: TryRecvError::Empty => "receiving on an empty channel",
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
        fn is_disconnected: TryRecvError::Disconnected => "receiving on an empty and disconnected channel",
    }
    RecvTimeoutError {
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
        fn is_timeout: RecvTimeoutError::Timeout => "timed out waiting on receive operation",
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
        fn is_disconnected: RecvTimeoutError::Disconnected => "channel is empty and disconnected",
    }
    TrySelectError {
        TrySelectError => "all operations in select would block",
    }
    SelectTimeoutError {
        SelectTimeoutError => "timed out waiting on select",
    }
    TryReadyError {
        TryReadyError => "no operation in select is ready",
    }
    ReadyTimeoutError {
        ReadyTimeoutError => "timed out waiting for an operation to be ready",
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use std::error::Error;

    use super::*;

    struct Mute; // neither Debug nor PartialEq

    #[test]
    fn ask_nothing_of_the_message() {
        assert_eq!(format!("{:?}", SendError(Mute)), "SendError(..)");
        assert_eq!(format!("{:?}", TrySendError::Full(Mute)), "Full(..)");
        assert_eq!(
            format!("{:?}", SendTimeoutError::Timeout(Mute)),
            "SendTimeoutError(..)"
        );
        let error: Box<dyn Error> = Box::new(TrySendError::Disconnected(Mute));
        assert_eq!(error.to_string(), "sending on a disconnected channel");
    }

    #[test]
    fn questions_and_conversions() {
        let full = TrySendError::Full(1);
        assert!(full.is_full() && !full.is_disconnected() && full.into_inner() == 1);
        let gone = TrySendError::from(SendError(2));
        assert!(gone.is_disconnected() && !gone.is_full() && gone.into_inner() == 2);
        let late = SendTimeoutError::Timeout(3);
        assert!(late.is_timeout() && !late.is_disconnected() && late.into_inner() == 3);
        let gone = SendTimeoutError::from(SendError(4));
        assert!(gone.is_disconnected() && !gone.is_timeout() && gone.into_inner() == 4);
        assert!(TryRecvError::Empty.is_empty() && !TryRecvError::Empty.is_disconnected());
        assert!(TryRecvError::from(RecvError).is_disconnected());
        assert!(RecvTimeoutError::Timeout.is_timeout());
        assert!(RecvTimeoutError::from(RecvError).is_disconnected());
    }

    #[test]
    fn pass_through_a_question_mark() {
        fn any() -> Result<(), Box<dyn Error + Send + Sync>> {
            Err(SendError("lost"))?
        }
        let padded = format!("{:>40}", any().unwrap_err());
        assert_eq!(padded, "       sending on a disconnected channel");
    }
}
