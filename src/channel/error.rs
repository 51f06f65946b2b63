//! The errors of channels and of [`Select`](super::Select).
//!
//! The idea: an operation fails for at most three reasons: it would block ("full", "empty"), its
//! time is up, or the channel is disconnected: all receivers are gone, or all senders and messages.
//! An error says which of those that its operation can meet; the error of a send gives the message
//! back. What is said of a timeout holds for a deadline.
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

use std::error::Error;
use std::fmt;

/// From [`Sender::send`](super::Sender::send): all receivers are gone. The message is inside.
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

/// From [`Sender::try_send`](super::Sender::try_send). The message is inside.
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
    /// The channel is full; one of capacity zero has no receiver waiting.
    Full(T),

    /// All receivers are gone.
    Disconnected(T),
}

/// From [`Sender::send_timeout`](super::Sender::send_timeout) and
/// [`Sender::send_deadline`](super::Sender::send_deadline). The message is inside.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{SendTimeoutError, bounded};
/// use std::time::Duration;
///
/// let (s, r) = bounded(0);
/// let res = s.send_timeout(1, Duration::from_millis(1));
/// assert_eq!(res, Err(SendTimeoutError::Timeout(1)));
/// # drop(r);
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The channel was full all the time; to one of capacity zero no receiver came.
    Timeout(T),

    /// All receivers are gone.
    Disconnected(T),
}

/// From [`Receiver::recv`](super::Receiver::recv): the channel is empty and all senders are gone.
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

/// From [`Receiver::try_recv`](super::Receiver::try_recv).
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
    /// The channel is empty; one of capacity zero has no sender waiting.
    Empty,

    /// The channel is empty and all senders are gone.
    Disconnected,
}

/// From [`Receiver::recv_timeout`](super::Receiver::recv_timeout) and
/// [`Receiver::recv_deadline`](super::Receiver::recv_deadline).
///
/// # Examples
///
/// ```
/// use greenthread::channel::{RecvTimeoutError, unbounded};
/// use std::time::Duration;
///
/// let (s, r) = unbounded::<u8>();
/// assert_eq!(r.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// # drop(s);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The channel was empty all the time; to one of capacity zero no sender came.
    Timeout,

    /// The channel is empty and all senders are gone.
    Disconnected,
}

/// From [`Select::try_select`](super::Select::try_select): every operation would block.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// From [`Select::select_timeout`](super::Select::select_timeout) and
/// [`Select::select_deadline`](super::Select::select_deadline): every operation would have blocked
/// all the time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// From [`Select::try_ready`](super::Select::try_ready): no operation is ready.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// From [`Select::ready_timeout`](super::Select::ready_timeout) and
/// [`Select::ready_deadline`](super::Select::ready_deadline): no operation became ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

impl<T> SendError<T> {
    /// The message that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The message that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(msg) | TrySendError::Disconnected(msg) => msg,
        }
    }

    /// Whether the channel was full.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether all receivers are gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The message that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(msg) | SendTimeoutError::Disconnected(msg) => msg,
        }
    }

    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Whether all receivers are gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Whether the channel was empty, with a sender left.
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Whether the channel was empty and all senders are gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Whether the channel was empty and all senders are gone.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, RecvTimeoutError::Disconnected)
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

/// `Display` by a text for each value, and `Error`, which asks no more of a message type either.
macro_rules! display {
    ($($error:ident $(<$T:ident>)? { $($value:pat => $text:literal,)* })*) => {$(
        impl$(<$T>)? fmt::Display for $error$(<$T>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $($value => $text,)*
                })
            }
        }

        impl$(<$T>)? Error for $error$(<$T>)? {}
    )*};
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
