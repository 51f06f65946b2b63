//! The receiving half: a reference to a channel, or to a timer that makes messages itself.
//!
//! | flavour | made by | messages |
//! |---|---|---|
//! | `Shared` | `bounded`, `unbounded` | from senders |
//! | `Timer` | `after`, `at`, `tick` | instants: there `T` is [`Instant`] |
//! | `Never` | `never` | none |
//!
//! Invariants: a [`Receiver`] of flavour `Shared` is one of those that its channel counts; of
//! flavour `Timer` it is a `Receiver<Instant>`.

use core::mem::{ManuallyDrop, transmute_copy};
use core::ptr::NonNull;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::Handle;
use super::iter::{Iter, TryIter};
use super::rights::{Attempt, Right};
use super::shared::{Failed, Shared, Until};
use super::state::State;
use super::timer::{Timer, sleep_until};
use super::{RecvError, RecvTimeoutError, TryRecvError};
use crate::engine::door::claim::Node;

/// The receiving half of a channel.
///
/// It can be cloned and shared; each message is received by one of them. When the last one is gone
/// the channel is disconnected, the messages that are left are dropped, and sending is an error.
///
/// # Examples
///
/// ```
/// use greenthread::channel::unbounded;
///
/// let (s, r) = unbounded();
/// greenthread::spawn(move || {
///     s.send("hello").unwrap();
///     s.send("world").unwrap();
/// });
/// assert_eq!(r.recv(), Ok("hello"));
/// assert_eq!(r.recv(), Ok("world"));
/// assert!(r.recv().is_err());
/// ```
pub struct Receiver<T> {
    flavor: Flavor<T>,
}

enum Flavor<T> {
    Shared(NonNull<Shared<T>>),
    Timer(Arc<Timer>),
    Never,
}

// SAFETY: messages go from thread to thread, which their type allows; the state is under a lock.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

// A panic leaves the channel as it was: no user code runs while it changes.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

/// The flavour, with the channel in reach.
enum View<'a, T> {
    Shared(&'a Shared<T>),
    Timer(&'a Timer),
    Never,
}

impl Receiver<Instant> {
    pub(super) fn of_timer(timer: Timer) -> Receiver<Instant> {
        Receiver {
            flavor: Flavor::Timer(Arc::new(timer)),
        }
    }
}

impl<T> Receiver<T> {
    /// # Safety
    /// The channel counts it.
    pub(super) unsafe fn new(shared: NonNull<Shared<T>>) -> Receiver<T> {
        Receiver {
            flavor: Flavor::Shared(shared),
        }
    }

    pub(super) const fn of_never() -> Receiver<T> {
        Receiver {
            flavor: Flavor::Never,
        }
    }

    #[inline(always)]
    fn view(&self) -> View<'_, T> {
        match &self.flavor {
            // SAFETY: it lives as long as a receiver is counted.
            Flavor::Shared(shared) => View::Shared(unsafe { shared.as_ref() }),
            Flavor::Timer(timer) => View::Timer(timer),
            Flavor::Never => View::Never,
        }
    }

    #[inline]
    fn receive(&self, until: Until) -> Result<T, Failed> {
        match self.view() {
            View::Shared(shared) => shared.receive(until),
            View::Timer(timer) => receive_from(timer, until).map(message_of_timer),
            View::Never => {
                if !matches!(until, Until::Now) {
                    sleep_until(until.instant());
                }
                Err(Failed::TimedOut)
            }
        }
    }

    /// Receives a message, blocking while the channel is empty.
    ///
    /// # Errors
    ///
    /// The channel is empty and all senders are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{RecvError, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// greenthread::spawn(move || s.send(5).unwrap());
    /// assert_eq!(r.recv(), Ok(5));
    /// assert_eq!(r.recv(), Err(RecvError));
    /// ```
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.receive(Until::Never).map_err(|_| RecvError)
    }

    /// Receives a message if there is one.
    ///
    /// With capacity 0 that takes a sender that waits. If that is a [`Select`](super::Select), this
    /// waits until the selected operation is completed.
    ///
    /// # Errors
    ///
    /// The channel is empty, and perhaps all senders are gone too.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{TryRecvError, unbounded};
    ///
    /// let (s, r) = unbounded();
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
    /// s.send(5).unwrap();
    /// drop(s);
    /// assert_eq!(r.try_recv(), Ok(5));
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.receive(Until::Now).map_err(|failed| match failed {
            Failed::TimedOut => TryRecvError::Empty,
            Failed::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Receives a message, blocking for at most `timeout` while the channel is empty.
    ///
    /// # Errors
    ///
    /// The time is up, or the channel is empty and all senders are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{RecvTimeoutError, unbounded};
    /// use std::time::Duration;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let received = r.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.receive(Until::After(timeout)).map_err(timeout_error)
    }

    /// Receives a message, blocking until `deadline` at most while the channel is empty.
    ///
    /// # Errors
    ///
    /// The time is up, or the channel is empty and all senders are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{RecvTimeoutError, unbounded};
    /// use std::time::{Duration, Instant};
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// let received = r.recv_deadline(Instant::now() + Duration::from_millis(1));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.receive(Until::At(deadline)).map_err(timeout_error)
    }

    /// Whether the channel is empty. With capacity 0 it always is.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = greenthread::channel::unbounded();
    /// assert!(r.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!r.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the channel is full. With capacity 0 it always is.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = greenthread::channel::bounded(1);
    /// assert!(!r.is_full());
    /// s.send(0).unwrap();
    /// assert!(r.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        match self.view() {
            View::Shared(shared) => shared.look(State::is_full),
            View::Timer(timer) => timer.is_due(),
            View::Never => true,
        }
    }

    /// The number of messages in the channel.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = greenthread::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        match self.view() {
            View::Shared(shared) => shared.look(State::len),
            View::Timer(timer) => timer.is_due().into(),
            View::Never => 0,
        }
    }

    /// The number of messages that the channel can hold; `None`: any.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{bounded, unbounded};
    ///
    /// assert_eq!(unbounded::<u8>().1.capacity(), None);
    /// assert_eq!(bounded::<u8>(5).1.capacity(), Some(5));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        match self.view() {
            View::Shared(shared) => shared.look(State::capacity),
            View::Timer(_) => Some(1),
            View::Never => Some(0),
        }
    }

    /// Iterates over messages, waiting for each, until the channel is empty and disconnected.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = greenthread::channel::unbounded();
    /// greenthread::spawn(move || (1..4).for_each(|i| s.send(i).unwrap()));
    /// assert_eq!(r.iter().sum::<i32>(), 6);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Iterates over the messages that are there, without waiting.
    ///
    /// # Examples
    ///
    /// ```
    /// let (s, r) = greenthread::channel::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Whether both are receivers of the same channel.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::unbounded;
    ///
    /// let (_s, r) = unbounded::<u8>();
    /// assert!(r.same_channel(&r.clone()));
    /// assert!(!r.same_channel(&unbounded().1));
    /// ```
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        match (&self.flavor, &other.flavor) {
            (Flavor::Shared(a), Flavor::Shared(b)) => a == b,
            (Flavor::Timer(a), Flavor::Timer(b)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }

    /// Completes a receive that a select has selected.
    pub(super) fn complete(&self, right: Right) -> Result<T, RecvError> {
        match (self.view(), right) {
            (View::Shared(shared), right) => shared.complete_receive(right).map_err(|_| RecvError),
            (_, Right::Made(when)) => Ok(message_of_timer(when)),
            _ => Err(RecvError),
        }
    }
}

impl<T> Handle for Receiver<T> {
    unsafe fn attempt(&self, node: Option<&Node>) -> Attempt {
        match self.view() {
            // SAFETY: the caller's promise.
            View::Shared(shared) => unsafe { shared.attempt_receive(node) },
            View::Timer(timer) => attempt_timer(timer, node),
            View::Never => Attempt::Blocked,
        }
    }

    fn leave(&self, node: &Node) {
        if let View::Shared(shared) = self.view() {
            shared.leave_receivers(node);
        }
    }

    fn give_back(&self, right: Right) {
        if let View::Shared(shared) = self.view() {
            shared.give_back_receive(right);
        }
    }

    fn leaves_no_trace(&self, _: &Right) -> bool {
        false
    }

    fn is_ready(&self) -> bool {
        match self.view() {
            View::Shared(shared) => shared.look(|state| state.can_receive(core::ptr::null())),
            View::Timer(timer) => timer.is_due(),
            View::Never => false,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.view() {
            View::Timer(timer) => timer.next(),
            View::Shared(_) | View::Never => None,
        }
    }
}

/// The message of a timer's receiver.
fn message_of_timer<T>(when: Instant) -> T {
    let when = ManuallyDrop::new(when);
    debug_assert!(size_of::<T>() == size_of::<Instant>());
    // SAFETY: only a `Receiver<Instant>` has a timer, so `T` is `Instant`.
    unsafe { transmute_copy(&*when) }
}

fn receive_from(timer: &Timer, until: Until) -> Result<Instant, Failed> {
    match until {
        Until::Now => timer.take().ok_or(Failed::TimedOut),
        _ => timer.receive(until.instant()),
    }
}

/// A timer has no queue: it is ready or has a deadline.
fn attempt_timer(timer: &Timer, node: Option<&Node>) -> Attempt {
    match node {
        Some(_) if !timer.is_due() => Attempt::Blocked,
        Some(node) => super::rights::end(node, || timer.take().map(Right::Made)),
        None => match timer.take() {
            Some(when) => Attempt::Selected(Some(Right::Made(when))),
            None => Attempt::Blocked,
        },
    }
}

fn timeout_error(failed: Failed) -> RecvTimeoutError {
    match failed {
        Failed::TimedOut => RecvTimeoutError::Timeout,
        Failed::Disconnected => RecvTimeoutError::Disconnected,
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        if let View::Shared(shared) = self.view() {
            shared.add_receiver();
        }
        Receiver {
            flavor: match &self.flavor {
                Flavor::Shared(shared) => Flavor::Shared(*shared),
                Flavor::Timer(timer) => Flavor::Timer(timer.clone()),
                Flavor::Never => Flavor::Never,
            },
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Flavor::Shared(shared) = self.flavor {
            // SAFETY: this is it.
            unsafe { Shared::remove_receiver(shared) };
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Receiver { .. }")
    }
}
