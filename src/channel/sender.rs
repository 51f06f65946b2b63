//! The sending half: a reference to the channel.
//!
//! Invariant: a [`Sender`] is one of the senders that its channel counts.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use super::cell::Half;
use super::shared::{Failed, State, Until};
use super::{SendError, SendTimeoutError, TrySendError};

/// The sending half of a channel.
///
/// It can be cloned, and shared between threads. When the last sender is dropped, the channel is
/// disconnected: receivers get the messages that are left, and then an error.
///
/// # Examples
///
/// ```
/// use greenthread::channel::unbounded;
///
/// let (s1, r) = unbounded();
/// let s2 = s1.clone();
/// greenthread::spawn(move || s1.send(1).unwrap());
/// greenthread::spawn(move || s2.send(2).unwrap());
/// assert_eq!(r.recv().unwrap() + r.recv().unwrap(), 3);
/// ```
pub struct Sender<T>(pub(super) Half<T, true>);

// A panic leaves the channel as it was: no user code runs while it changes.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Makes the sender that owns this reference.
    /// Sends a message, blocking while the channel is full.
    ///
    /// On a channel of capacity 0 the call blocks until a receiver takes the message.
    ///
    /// # Errors
    ///
    /// Returns an error if all receivers have been dropped. The error contains the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{SendError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// assert_eq!(s.send(1), Ok(()));
    /// greenthread::spawn(move || drop(r));
    /// assert_eq!(s.send(2), Err(SendError(2))); // returns when `r` is dropped
    /// ```
    #[inline]
    pub fn send(&self, msg: T) -> Result<(), SendError<T>> {
        let sent = self.0.send(msg, Until::Never);
        sent.map_err(|(msg, _)| SendError(msg))
    }

    /// Sends a message if that is possible without blocking.
    ///
    /// On a channel of capacity 0 that is possible while a receiver waits.
    ///
    /// # Errors
    ///
    /// Returns [`TrySendError::Full`] if there is no room, and [`TrySendError::Disconnected`] if
    /// all receivers have been dropped. Both contain the message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{TrySendError, bounded};
    ///
    /// let (s, r) = bounded(1);
    /// assert_eq!(s.try_send(1), Ok(()));
    /// assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
    /// drop(r);
    /// assert_eq!(s.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    #[inline]
    pub fn try_send(&self, msg: T) -> Result<(), TrySendError<T>> {
        let sent = self.0.send(msg, Until::Now);
        sent.map_err(|(msg, failed)| match failed {
            Failed::TimedOut => TrySendError::Full(msg),
            Failed::Disconnected => TrySendError::Disconnected(msg),
        })
    }

    /// Sends a message, blocking for no longer than `timeout` while the channel is full.
    ///
    /// # Errors
    ///
    /// Returns [`SendTimeoutError::Timeout`] if the time is up, and
    /// [`SendTimeoutError::Disconnected`] if all receivers have been dropped. Both contain the
    /// message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{SendTimeoutError, bounded};
    /// use std::time::Duration;
    ///
    /// let (s, _r) = bounded(0);
    /// let sent = s.send_timeout(1, Duration::from_millis(1));
    /// assert_eq!(sent, Err(SendTimeoutError::Timeout(1)));
    /// ```
    pub fn send_timeout(&self, msg: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until(msg, Until::After(timeout))
    }

    /// Sends a message, blocking until `deadline` at the latest while the channel is full.
    ///
    /// # Errors
    ///
    /// Returns [`SendTimeoutError::Timeout`] if the time is up, and
    /// [`SendTimeoutError::Disconnected`] if all receivers have been dropped. Both contain the
    /// message.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{SendTimeoutError, bounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (s, _r) = bounded(0);
    /// let sent = s.send_deadline(1, Instant::now() + Duration::from_millis(1));
    /// assert_eq!(sent, Err(SendTimeoutError::Timeout(1)));
    /// ```
    pub fn send_deadline(&self, msg: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_until(msg, Until::At(deadline))
    }

    fn send_until(&self, msg: T, until: Until) -> Result<(), SendTimeoutError<T>> {
        let sent = self.0.send(msg, until);
        sent.map_err(|(msg, failed)| match failed {
            Failed::TimedOut => SendTimeoutError::Timeout(msg),
            Failed::Disconnected => SendTimeoutError::Disconnected(msg),
        })
    }

    /// Returns `true` if the channel holds no message.
    ///
    /// A channel of capacity 0 is always empty.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, _r) = greenthread::channel::unbounded();
    /// assert!(s.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!s.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the channel has no room for another message.
    ///
    /// A channel of capacity 0 is always full.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, _r) = greenthread::channel::bounded(1);
    /// assert!(!s.is_full());
    /// s.send(0).unwrap();
    /// assert!(s.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        self.0.look(|state| !state.has_place())
    }

    /// Returns the number of messages in the channel.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, _r) = greenthread::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(s.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.look(State::len)
    }

    /// Returns the number of messages that the channel can hold, or `None` if it has no bound.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{bounded, unbounded};
    ///
    /// assert_eq!(unbounded::<u8>().0.capacity(), None);
    /// assert_eq!(bounded::<u8>(5).0.capacity(), Some(5));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.0.look(State::capacity)
    }

    /// Returns `true` if both senders belong to the same channel.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    ///
    /// let (s, _r) = unbounded::<u8>();
    /// assert!(s.same_channel(&s.clone()));
    /// assert!(!s.same_channel(&unbounded().0));
    /// ```
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.0.is_of_same(&other.0)
    }

    /// Returns whether all receivers are gone.
    #[cfg(not(greenthread_model))]
    pub(crate) fn is_disconnected(&self) -> bool {
        self.0.look(|state| state.receivers_gone)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender(self.0.clone())
    }
}
