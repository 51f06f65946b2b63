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

mod receive;
mod select;
mod send;

pub use self::receive::{RecvError, RecvTimeoutError, TryRecvError};
pub use self::select::{ReadyTimeoutError, SelectTimeoutError, TryReadyError, TrySelectError};
pub use self::send::{SendError, SendTimeoutError, TrySendError};

/// Implements `Display`, by a text for each value, and `Error`, for any type of messages.
macro_rules! display {
    ($($error:ident $(<$T:ident>)? { $($value:pat => $text:literal,)* })*) => {$(
        impl$(<$T>)? std::fmt::Display for $error$(<$T>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($value => $text,)*
                })
            }
        }

        impl$(<$T>)? std::error::Error for $error$(<$T>)? {}
    )*};
}
use display;

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
