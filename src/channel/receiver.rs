//! The receiving half: a reference to a channel, or to a timer that makes messages itself.
//!
//! | flavour | made by | messages |
//! |---|---|---|
//! | `Shared` | `bounded`, `unbounded` | from senders |
//! | `Timer` | `after`, `at`, `tick` | instants: there `T` is [`Instant`], as the timer knows |
//! | `Never` | `never` | none |
//!
//! | iterator | waits | owns the receiver | ends |
//! |---|---|---|---|
//! | [`Iter`] | yes | no | when the channel is empty and disconnected |
//! | [`IntoIter`] | yes | yes | as `Iter` |
//! | [`TryIter`] | no | no | when the channel is empty; it may go on later |
//!
//! # Timers
//!
//! `after`, `at` and `tick` make their messages themselves.
//! There is no buffer and no helper thread. A timer knows when its next message is due; a receiver
//! waits until then by its own time-out, and a select waits no longer than that.
//!
//! | `next` (nanoseconds after `start`) | means |
//! |---|---|
//! | `NEVER` | no message will come any more |
//! | else | the next message is there from then on |
//!
//! Invariants of timers:
//! 1. A message belongs to the thread that moves `next` on: past the only message of `at`, or by
//!    one period. A thread that may wait long enough moves it before the message is due, and then
//!    waits alone.
//! 2. Messages that are not received do not pile up: the period counts from the time of receiving.
//!
//! Ordering: all Relaxed. Nothing is handed over but the number itself.
//!
//! # Receivers
//!
//! Invariant: a [`Receiver`] of flavour `Shared` is one of the receivers that its channel counts.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cell::{Entry, Half};
use super::selecting::{Attempt, Handle, Right, end};
use super::shared::{Failed, State, Until};
use super::{RecvError, RecvTimeoutError, TryRecvError};
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::clock::{self, NEVER};
use crate::wait::{WaitKind, WaitReason, queue::Wait, raise};

/// The receiving half of a channel.
///
/// It can be cloned, and shared between threads; each message goes to one of the receivers. When
/// the last receiver is dropped, the channel is disconnected: the messages that are left are
/// dropped, and sending is an error.
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
pub struct Receiver<T>(pub(super) Flavor<T>);

pub(super) enum Flavor<T> {
    Shared(Half<T, false>),
    Timer(Arc<Timer<T>>),
    Never,
}

// A panic leaves the channel as it was: no user code runs while it changes.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Receiver<T> {
    /// Makes the receiver that owns this reference.
    #[inline]
    fn receive(&self, until: Until) -> Result<T, Failed> {
        match &self.0 {
            Flavor::Shared(shared) => shared.receive(until),
            Flavor::Timer(timer) => {
                let due = timer.take(until.instant()).ok_or(Failed::TimedOut);
                due.map(timer.message)
            }
            Flavor::Never => {
                sleep_until(until.deadline());
                Err(Failed::TimedOut)
            }
        }
    }

    /// Receives a message, blocking the current thread while the channel is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel is empty and all senders have been dropped.
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
    /// On a channel of capacity 0 there is a message while a sender waits. If that sender is in a
    /// [`Select`](super::Select), the call waits until the selected operation is completed.
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError::Empty`] if there is no message, and [`TryRecvError::Disconnected`]
    /// if all senders have been dropped as well.
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

    /// Receives a message, blocking for no longer than `timeout` while the channel is empty.
    ///
    /// # Errors
    ///
    /// Returns [`RecvTimeoutError::Timeout`] if the time is up, and
    /// [`RecvTimeoutError::Disconnected`] if the channel is empty and all senders have been
    /// dropped.
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

    /// Receives a message, blocking until `deadline` at the latest while the channel is empty.
    ///
    /// # Errors
    ///
    /// Returns [`RecvTimeoutError::Timeout`] if the time is up, and
    /// [`RecvTimeoutError::Disconnected`] if the channel is empty and all senders have been
    /// dropped.
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

    /// Returns `true` if the channel holds no message.
    ///
    /// A channel of capacity 0 is always empty.
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

    /// Returns `true` if the channel has no room for another message.
    ///
    /// A channel of capacity 0 is always full.
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
        match &self.0 {
            Flavor::Shared(shared) => shared.look(|state| !state.has_place()),
            Flavor::Timer(timer) => timer.is_ready(),
            Flavor::Never => true,
        }
    }

    /// Returns the number of messages in the channel.
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
        match &self.0 {
            Flavor::Shared(shared) => shared.look(State::len),
            Flavor::Timer(timer) => timer.is_ready().into(),
            Flavor::Never => 0,
        }
    }

    /// Returns the number of messages that the channel can hold, or `None` if it has no bound.
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
        match &self.0 {
            Flavor::Shared(shared) => shared.look(State::capacity),
            Flavor::Timer(_) => Some(1),
            Flavor::Never => Some(0),
        }
    }

    /// Returns an iterator that blocks for each message and ends when the channel is empty and
    /// disconnected.
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

    /// Returns an iterator over the messages that are there already; it never blocks.
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

    /// Returns `true` if both receivers belong to the same channel.
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
        match (&self.0, &other.0) {
            (Flavor::Shared(a), Flavor::Shared(b)) => a.is_of_same(b),
            (Flavor::Timer(a), Flavor::Timer(b)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }

    /// Returns what a select sees of the receiver. It lies in the receiver, if operations on it can be selected.
    pub(super) fn handle(&self) -> &dyn Handle {
        match &self.0 {
            Flavor::Shared(shared) => shared,
            Flavor::Timer(timer) => timer,
            Flavor::Never => &Never,
        }
    }

    /// Completes a receive that a select has selected.
    pub(super) fn complete(&self, right: Right) -> Result<T, RecvError> {
        match (&self.0, right) {
            (Flavor::Shared(shared), right) => {
                shared.complete_receive(right).map_err(|_| RecvError)
            }
            (Flavor::Timer(timer), Right::Made(when)) => Ok((timer.message)(when)),
            _ => Err(RecvError),
        }
    }
}

/// A timer has no queue: it is ready or has a deadline.
impl<T> Handle for Arc<Timer<T>> {
    fn attempt(&self, entry: Option<&Entry<'_, '_>>) -> Attempt {
        let take = || self.take(Some(Instant::now())).map(Right::Made);
        match entry {
            Some(_) if !self.is_ready() => Attempt::Blocked,
            Some(entry) => end(entry, take),
            None => take().map_or(Attempt::Blocked, |right| Attempt::Selected(Some(right))),
        }
    }

    fn is_ready(&self) -> bool {
        self.deadline().is_some_and(|due| due <= Instant::now())
    }

    fn deadline(&self) -> Option<Instant> {
        self.due(self.next.load(Relaxed))
    }
}

/// The handle of a receiver that never gets a message.
struct Never;

impl Handle for Never {
    fn attempt(&self, _: Option<&Entry<'_, '_>>) -> Attempt {
        Attempt::Blocked
    }

    fn is_ready(&self) -> bool {
        false
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
        Receiver(match &self.0 {
            Flavor::Shared(shared) => Flavor::Shared(shared.clone()),
            Flavor::Timer(timer) => Flavor::Timer(timer.clone()),
            Flavor::Never => Flavor::Never,
        })
    }
}

// ==== the iterators ====

/// An iterator over messages that blocks for each of them, made by [`Receiver::iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// greenthread::spawn(move || (0..3).for_each(|i| s.send(i).unwrap()));
/// assert_eq!(r.iter().collect::<Vec<_>>(), [0, 1, 2]);
/// ```
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// An iterator over the messages that are there already, made by [`Receiver::try_iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// s.send(1).unwrap();
/// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// An iterator over messages that blocks for each of them and owns the receiver.
///
/// It is made by [`Receiver::into_iter`].
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// s.send("hello").unwrap();
/// drop(s);
/// for message in r {
///     assert_eq!(message, "hello");
/// }
/// ```
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

/// Implements `Iter`, `TryIter` and `IntoIter` for a `Receiver`: this file's, and that of
/// `sync::mpsc`.
macro_rules! iterate {
    ($($Iter:ty, $receive:ident;)+) => {
        $(impl<T> Iterator for $Iter {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.receiver.$receive().ok()
            }
        })+

        impl<T> core::iter::FusedIterator for Iter<'_, T> {}
        impl<T> core::iter::FusedIterator for IntoIter<T> {}

        impl<'a, T> IntoIterator for &'a Receiver<T> {
            type Item = T;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }

        impl<T> IntoIterator for Receiver<T> {
            type Item = T;
            type IntoIter = IntoIter<T>;

            fn into_iter(self) -> IntoIter<T> {
                IntoIter { receiver: self }
            }
        }
    };
    () => {
        $crate::channel::receiver::iterate!(Iter<'_, T>, recv; TryIter<'_, T>, try_recv; IntoIter<T>, recv;);
    };
}

iterate!();
pub(crate) use iterate;

// ==== timers ====

/// A timer. Its messages are instants: `T` is that type, as `message` knows.
pub(super) struct Timer<T> {
    message: fn(Instant) -> T,
    start: Instant,
    next: AtomicU64,
    /// The period, or `NEVER` if there is one message only.
    period: u64,
}

impl Timer<Instant> {
    /// A message at `first`, and one after each `period`.
    pub(super) fn new(first: Instant, period: Option<Duration>) -> Timer<Instant> {
        Timer {
            message: |when| when,
            start: first,
            next: AtomicU64::new(0),
            period: period.map_or(NEVER, nanos),
        }
    }
}

impl<T> Timer<T> {
    fn due(&self, next: u64) -> Option<Instant> {
        (next != NEVER).then(|| self.start.checked_add(Duration::from_nanos(next)))?
    }

    /// Takes the message, waiting for it until `deadline`. Of the threads that wait for one message the first takes it.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<Instant> {
        let in_time = |due: &Instant| deadline.is_none_or(|deadline| *due <= deadline);
        loop {
            let next = self.next.load(Relaxed);
            let Some(due) = self.due(next).filter(in_time) else {
                sleep_until(deadline.map_or(NEVER, clock::at));
                return None;
            };
            // The next one comes a period after this one, however late the thread wakes up.
            let elapsed = nanos(due.max(Instant::now()) - self.start);
            let after = elapsed.saturating_add(self.period);
            sleep_until(clock::at(due));
            if (self.next.compare_exchange(next, after, Relaxed, Relaxed)).is_ok() {
                return Some(due);
            }
        }
    }
}

/// For reports: such a channel's time, or a select's that has no other operation.
static TIMER: WaitKind = WaitKind::unwinding("time");

/// Blocks the thread until `when`, or for ever if that is `None`.
pub(super) fn sleep_until(when: u64) {
    if when > clock::now() {
        // No other thread knows this wait, so only the time-out and frames end it.
        let _timed_out = Wait::new(WaitReason::only(&TIMER)).wait(Some(when));
        raise(Some(when));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
