//! Channels with many senders and many receivers, and `select!`, as in [crossbeam-channel].
//!
//! The types, functions and macros have the names and the behaviour of crossbeam-channel's, but a
//! wait blocks only the green thread. A program changes its imports from `crossbeam_channel` to
//! `greenthread::channel` and nothing else. Green threads and kernel threads may share a channel.
//!
//! # Making a channel
//!
//! | function | the channel holds | use it |
//! |---|---|---|
//! | [`bounded`]`(n)` | at most `n` messages | to make senders wait while receivers are behind |
//! | [`bounded`]`(0)` | no message | to let sender and receiver meet |
//! | [`unbounded`] | any number of messages | when senders must never wait |
//! | [`after`], [`at`] | one message, at a certain time | for time-outs in [`select!`] |
//! | [`tick`] | one message in each period | for periodic work in [`select!`] |
//! | [`never()`](never()) | no message, ever | in place of an operation that [`select!`] should skip |
//!
//! # Order
//!
//! Messages from one sender arrive in the order in which they were sent. Waiting threads are served
//! in the order in which they began to wait: a message goes straight to the receiver that has
//! waited longest. Waiting allocates no memory.
//!
//! # Disconnection
//!
//! A channel is disconnected when all its senders or all its receivers have been dropped. After
//! that, receivers still get the messages that are left, and then an error; senders get their
//! message back in an error. The channels made by [`after`], [`at`], [`tick`] and
//! [`never()`](never()) are never disconnected.
//!
//! # Waiting for several operations
//!
//! [`select!`] waits for the first of several sends and receives that can go on. [`Select`] does
//! the same for a list of operations that is made while the program runs.
//!
//! A select first chooses an operation and then completes it. On a channel of capacity 0 it chooses
//! another thread along with the operation. That thread waits until the operation is completed or
//! dropped, even if that takes longer than its own time-out.
//!
//! [crossbeam-channel]: https://docs.rs/crossbeam-channel
//!
//! # Examples
//!
//! Four workers square numbers, and the results are summed up as they come:
//!
//! ```
//! use greenthread::channel::{after, bounded, select, unbounded};
//! use std::time::Duration;
//!
//! let (jobs, todo) = bounded(10);
//! let (done, results) = unbounded();
//! for _ in 0..4 {
//!     let (todo, done) = (todo.clone(), done.clone());
//!     greenthread::spawn(move || {
//!         for n in todo {
//!             done.send(n * n).unwrap();
//!         }
//!     });
//! }
//! drop(done);
//! (1..=3).for_each(|n| jobs.send(n).unwrap());
//! drop(jobs);
//!
//! let late = after(Duration::from_secs(60));
//! let mut sum = 0;
//! loop {
//!     select! {
//!         recv(results) -> square => match square {
//!             Ok(square) => sum += square,
//!             Err(_) => break, // all workers have ended
//!         },
//!         recv(late) -> _ => panic!("too late"),
//!     }
//! }
//! assert_eq!(sum, 1 + 4 + 9);
//! ```

// | file | idea |
// |---|---|
// | `shared` | the state, and the rules under its lock by which messages change hands; no wake-up is lost; waiting |
// | `cell` | the way of a message from one thread to another; the wait of a select; reference counts |
// | `buffer` | the store of messages; it and `cell` hold all of the channel's `unsafe` |
// | `sender`, `receiver` | the handles of users; iterators; channels that make their messages themselves |
// | `selecting` | the first of several operations, and the right to one that a select is given |
// | `select`, `select_macro` | the user's side of it |
// | `error` | how operations fail |

#[allow(unsafe_code, reason = "messages in slots")]
mod buffer;
#[allow(unsafe_code, reason = "messages on stacks")]
mod cell;
mod error;
pub(crate) mod receiver;
mod select;
#[cfg(not(greenthread_model))]
mod select_macro;
mod selecting;
mod sender;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::error::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
use self::receiver::{Flavor, Timer};
pub use self::receiver::{IntoIter, Iter, Receiver, TryIter};
pub use self::select::Select;
pub use self::selecting::SelectedOperation;
pub use self::sender::Sender;
#[cfg(not(greenthread_model))]
pub use crate::{select, select_biased};

use self::cell::halves;
use self::shared::Shared;

/// Implements `Debug` for types that show nothing of their contents, with crossbeam's texts.
macro_rules! opaque {
    ($([$($T:ident)?] $Type:ty, $text:literal;)*) => {$(
        impl<$($T)?> std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($text)
            }
        }
    )*};
}

opaque! {
    [T] Sender<T>, "Sender { .. }";
    [T] Receiver<T>, "Receiver { .. }";
    [T] Iter<'_, T>, "Iter { .. }";
    [T] TryIter<'_, T>, "TryIter { .. }";
    [T] IntoIter<T>, "IntoIter { .. }";
    [] Select<'_>, "Select { .. }";
    [] SelectedOperation<'_>, "SelectedOperation { .. }";
    [T] SendError<T>, "SendError(..)";
    [T] SendTimeoutError<T>, "SendTimeoutError(..)";
}

/// What `select!` expands to.
#[doc(hidden)]
pub mod __private {
    pub use super::selecting::{Operation, select};
    pub use super::shared::Until;
}

/// Creates a channel that can hold any number of messages.
///
/// Sending never blocks.
///
/// # Examples
///
/// ```
/// let (s, r) = greenthread::channel::unbounded();
/// greenthread::spawn(move || s.send("hello").unwrap());
/// assert_eq!(r.recv(), Ok("hello"));
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    with_capacity(usize::MAX)
}

/// Creates a channel that holds at most `cap` messages.
///
/// Sending blocks while the channel is full. A channel of capacity 0 holds no message: a send and a
/// receive wait for each other, and the message goes from one to the other directly.
///
/// Address space for `cap` messages is reserved at once. The system provides the memory as it is
/// used.
///
/// # Panics
///
/// Panics if the memory for `cap` messages exceeds `isize::MAX` bytes.
///
/// # Examples
///
/// ```
/// use greenthread::channel::bounded;
///
/// let (s, r) = bounded(1);
/// s.send(1).unwrap(); // does not block: there is room for one message
/// greenthread::spawn(move || s.send(2).unwrap()); // blocks until there is room
/// assert_eq!(r.recv(), Ok(1));
/// assert_eq!(r.recv(), Ok(2));
///
/// let (s, r) = bounded(0);
/// greenthread::spawn(move || s.send(1).unwrap()); // blocks until the message is received
/// assert_eq!(r.recv(), Ok(1));
/// ```
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    // The largest number means that there is no bound.
    with_capacity(cap.min(usize::MAX - 1))
}

fn with_capacity<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (to_send, to_receive) = halves(Shared::new(capacity));
    (Sender(to_send), Receiver(Flavor::Shared(to_receive)))
}

/// Creates a receiver that gets one message, after `duration`.
///
/// The message is the instant at which it was due. The channel is never disconnected. After the
/// message has been received, receiving blocks for ever.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{after, select, unbounded};
/// use std::time::Duration;
///
/// let (_s, r) = unbounded::<u8>();
/// let timed_out = select! {
///     recv(r) -> _ => false,
///     recv(after(Duration::from_millis(1))) -> _ => true,
/// };
/// assert!(timed_out);
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    let when = Instant::now().checked_add(duration);
    when.map_or_else(never, at)
}

/// Creates a receiver that gets one message, at the instant `when`.
///
/// The message is `when`. If `when` is in the past, the message is there at once. The channel is
/// never disconnected. After the message has been received, receiving blocks for ever.
///
/// # Examples
///
/// ```
/// use greenthread::channel::at;
/// use std::time::{Duration, Instant};
///
/// let when = Instant::now() + Duration::from_millis(1);
/// assert_eq!(at(when).recv(), Ok(when));
/// assert!(Instant::now() >= when);
/// ```
pub fn at(when: Instant) -> Receiver<Instant> {
    Receiver(Flavor::Timer(Arc::new(Timer::new(when, None))))
}

/// Creates a receiver that gets a message in every period of `duration`.
///
/// A message is the instant at which it was due. The first one is due after one period. Messages do
/// not pile up: the channel holds one at most. A message that was received in time is followed by
/// the next one period after it was due, and a message that was received late one period after it
/// was received. The channel is never disconnected.
///
/// # Examples
///
/// ```
/// use greenthread::channel::tick;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let ticker = tick(Duration::from_millis(2));
/// ticker.recv().unwrap();
/// ticker.recv().unwrap();
/// assert!(start.elapsed() >= Duration::from_millis(4));
/// ```
pub fn tick(duration: Duration) -> Receiver<Instant> {
    let ticker = |first| Receiver(Flavor::Timer(Arc::new(Timer::new(first, Some(duration)))));
    let first = Instant::now().checked_add(duration);
    first.map_or_else(never, ticker)
}

/// Creates a receiver that never gets a message and is never disconnected.
///
/// It stands in for a receiver that is not there, mostly in [`select!`].
///
/// # Examples
///
/// ```
/// use greenthread::channel::{after, never, select, unbounded};
/// use std::time::Duration;
///
/// let (s, r) = unbounded();
/// s.send(1).unwrap();
/// let limit: Option<Duration> = None;
/// select! {
///     recv(r) -> message => assert_eq!(message, Ok(1)),
///     recv(limit.map_or(never(), after)) -> _ => unreachable!(),
/// }
/// ```
pub const fn never<T>() -> Receiver<T> {
    Receiver(Flavor::Never)
}
