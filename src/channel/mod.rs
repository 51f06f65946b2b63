//! Channels, as [crossbeam-channel]'s, blocking only the green thread.
//!
//! Replace `crossbeam_channel` by `greenthread::channel` in the imports and nothing else. Kernel
//! threads and green threads mix freely on one channel.
//!
//! | made by | holds | |
//! |---|---|---|
//! | [`bounded`]`(n)` | at most `n` messages | senders wait while it is full |
//! | [`bounded`]`(0)` | none | sender and receiver meet |
//! | [`unbounded`] | any number | senders never wait |
//! | [`after`], [`at`], [`tick`] | one message, made when it is due | for time-outs in [`select!`] |
//! | [`never()`](never()) | none, ever | stands for an operation that is not there |
//!
//! A channel is disconnected when all its senders or all its receivers are gone. Receivers then get
//! what is left, and senders their message back in an error.
//!
//! Messages from one sender arrive in order. Who waits is served in order: a message goes straight
//! to the receiver that has waited longest. Waiting allocates nothing.
//!
//! At capacity 0 a [`Select`] that has chosen an operation has chosen a peer too. The peer waits
//! until the operation is completed or dropped, beyond its own time-out if need be.
//!
//! # Where things are
//!
//! | file | idea |
//! |---|---|
//! | `state` | what happens under the channel's lock: who hands what to whom; no wake-up is lost |
//! | `shared` | the lock, waiting |
//! | `rights` | what a select is given, and how it completes it |
//! | `cell` | how a message gets from one thread to another; all of the channel's `unsafe` |
//! | `cell/buffer` | where messages lie |
//! | `cell/half` | reference counts |
//! | `timer` | channels that make their messages themselves |
//! | `sender`, `receiver`, `iter` | what users hold |
//! | `selecting` | the first of several operations, through `handle` |
//! | `select`, `select_macro` | what users write for that |
//! | `error` | how operations fail |
//!
//! [crossbeam-channel]: https://docs.rs/crossbeam-channel
//!
//! # Examples
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

#[allow(unsafe_code, reason = "messages in slots and on stacks")]
mod cell;
mod error;
mod handle;
mod iter;
mod receiver;
mod rights;
mod select;
#[cfg(not(greenthread_model))]
mod select_macro;
mod selecting;
mod sender;
mod shared;
mod state;
mod timer;
mod turn;

use std::time::{Duration, Instant};

pub use self::error::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError,
    SendTimeoutError, TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use self::iter::{IntoIter, Iter, TryIter};
pub use self::receiver::Receiver;
pub use self::select::Select;
pub use self::selecting::SelectedOperation;
pub use self::sender::Sender;
#[cfg(not(greenthread_model))]
pub use crate::{select, select_biased};

use self::cell::half::halves;
use self::shared::Shared;
use self::timer::Timer;

/// What `select!` expands to.
#[doc(hidden)]
pub mod __private {
    pub use super::selecting::{Operation, select, select_timeout, try_select};
}

/// A channel that can hold any number of messages.
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

/// A channel that can hold `cap` messages.
///
/// With capacity 0 it holds none: a send and a receive meet, and each waits for the other.
///
/// Memory for `cap` messages is reserved at once, but not touched until it is used.
///
/// # Panics
///
/// So many messages cannot be addressed.
///
/// # Examples
///
/// ```
/// use greenthread::channel::bounded;
///
/// let (s, r) = bounded(1);
/// s.send(1).unwrap(); // there is room
/// greenthread::spawn(move || s.send(2).unwrap()); // waits for it
/// assert_eq!(r.recv(), Ok(1));
/// assert_eq!(r.recv(), Ok(2));
///
/// let (s, r) = bounded(0);
/// greenthread::spawn(move || s.send(1).unwrap()); // waits for the receiver
/// assert_eq!(r.recv(), Ok(1));
/// ```
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    // The largest number means that there is no bound.
    with_capacity(cap.min(usize::MAX - 1))
}

fn with_capacity<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (to_send, to_receive) = halves(Shared::new(capacity));
    (Sender::new(to_send), Receiver::new(to_receive))
}

/// A receiver of one message, which is there after `duration`.
///
/// The message is the instant when it was due. The channel is never disconnected.
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
    match Instant::now().checked_add(duration) {
        Some(when) => at(when),
        None => never(),
    }
}

/// A receiver of one message, which is there at `when`.
///
/// The message is `when`; if that is in the past it is there already. The channel is never
/// disconnected.
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
    Receiver::of_timer(Timer::once(when))
}

/// A receiver of a message every `duration`.
///
/// A message is the instant when it was due. There is at most one at a time: the next is due
/// `duration` after the one before was received, or was due if that is later. The channel is never
/// disconnected.
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
    match Instant::now().checked_add(duration) {
        Some(first) => Receiver::of_timer(Timer::periodic(first, duration)),
        None => never(),
    }
}

/// A receiver that never gets a message, and is never disconnected.
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
    Receiver::of_never()
}
