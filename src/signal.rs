//! Signals as messages in channels, so that a program can stop cleanly.
//!
//! [`ctrl_c`] creates a receiver that gets a message when Ctrl-C is pressed. [`Signals`] receives
//! any signals that a program may catch. Both are receivers of a [`channel`](crate::channel), so a
//! thread can wait for them in [`select!`](crate::select) along with other work. Since a signal
//! arrives as a message, the code that reacts to it is ordinary code: it may lock, allocate and
//! print.
//!
//! A signal that is watched loses its default effect, which is usually to end the program. It does
//! not get that effect back when the receiver is dropped.
//!
//! # Examples
//!
//! A server that stops when it is told to:
//!
//! ```
//! use greenthread::channel::{bounded, select};
//! use greenthread::signal::{SIGINT, SIGTERM, Signals};
//!
//! let stop = Signals::new([SIGINT, SIGTERM]).unwrap();
//! let (clients, requests) = bounded(10);
//! # let kill = move || unsafe { libc::kill(libc::getpid(), SIGTERM) };
//! # greenthread::spawn(move || { clients.send("GET /").unwrap(); kill(); greenthread::park() });
//!
//! loop {
//!     select! {
//!         recv(requests) -> request => println!("{}", request.unwrap()),
//!         recv(stop) -> signal => {
//!             println!("stopping because of signal {}", signal.unwrap());
//!             break;
//!         }
//!     }
//! }
//! ```

// A handler may do next to nothing, so ours leaves a bit in a word and wakes a kernel thread, the
// *forwarder*, which is started at first use and puts the signal into the channels of those that
// watch it.
//
// ```text
//   handler (any thread)              forwarder
//   former handler, if any            s = SEQUENCE            (Acquire)
//   PENDING |= bit     (Release)      came = PENDING.swap(0)  (Acquire)
//   SEQUENCE += 1      (Release)      came == 0: futex wait while SEQUENCE == s
//   futex wake                        else: into the channels
// ```
//
// Invariants:
// 1. No signal is lost: if the swap misses the bit, the forwarder read `SEQUENCE` before it was
//    raised (its Acquire pairs with the raise's Release), so the futex does not block it.
// 2. A channel holds a signal once at most. The forwarder alone sends, so the messages in the
//    channel are the last part of those that it sent; it keeps that list and leaves out signals
//    that are still there. Hence a channel for n signals never holds more than n messages, and is
//    never full for a new one.
// 3. The forwarder blocks no signal that is watched, and every other. So a watched signal is seen
//    even if all threads of the program block it, and the forwarder catches no other signal for
//    which the program waits in its own way.
// 4. The handler runs on the alternate stack: little of a green thread's may be left. It runs with
//    the others blocked: an alternate stack of std's is too small for two. It touches no
//    thread-local, `errno` included. (The usual crate for this, `signal-hook-registry`, asks for no
//    alternate stack; with one fixed action its table of actions would be of no use here.)
// 5. A handler stays for good, and so does the stored action of the former one.
// 6. No receiver hears of a signal while the handler is still busy with it. The handler may be
//    running on the main thread's alternate stack, which std unmaps when any thread calls `exit`,
//    as a thread does that is told to stop. (The few instructions of the way out are left, and the
//    system's own.)

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::ops::Deref;

#[doc(no_inline)]
pub use libc::{
    SIGABRT, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};

use crate::channel::{IntoIter, Iter, Receiver, Sender, TrySendError, bounded};
use crate::engine::facade::atomic::{AtomicU64, Ordering};
use crate::engine::facade::signal::{self as kernel, Mask, bit};
use crate::engine::facade::{
    HELPER_STACK, handler, handlers, is_forked_child, libraries, spawn_helper,
};
use crate::sync::Mutex;

/// The numbers of signals; glibc keeps 32 and 33 to itself.
const NUMBERS: core::ops::RangeInclusive<i32> = 1..=64;
/// The signals that cannot be caught, and those that faults raise: a handler that returns from one
/// of these runs into the fault again.
const FORBIDDEN: &[(i32, &str)] = &[
    (libc::SIGKILL, "SIGKILL, which cannot be caught"),
    (libc::SIGSTOP, "SIGSTOP, which cannot be caught"),
    (libc::SIGSEGV, "SIGSEGV, which a fault raises"),
    (libc::SIGBUS, "SIGBUS, which a fault raises"),
    (libc::SIGILL, "SIGILL, which a fault raises"),
    (libc::SIGFPE, "SIGFPE, which a fault raises"),
    (32, "which the C library uses itself"),
    (33, "which the C library uses itself"),
];

/// Creates a receiver that gets a message when Ctrl-C is pressed (`SIGINT` arrives).
///
/// From this call on, Ctrl-C no longer ends the program, not even after the receiver has been
/// dropped. The channel holds one message at most: further presses are not counted until the
/// message has been received. The channel is never disconnected.
///
/// # Errors
///
/// Returns an error in the same cases as [`Signals::new`].
///
/// # Examples
///
/// ```
/// use greenthread::channel::{after, select};
/// use std::time::Duration;
///
/// let stop = greenthread::signal::ctrl_c().unwrap();
/// select! {
///     recv(stop) -> _ => println!("stopping"),
///     recv(after(Duration::from_millis(10))) -> _ => println!("nobody pressed Ctrl-C"),
/// }
/// ```
pub fn ctrl_c() -> io::Result<Receiver<()>> {
    let (sender, receiver) = bounded(1);
    watch(bit(SIGINT), Watcher::new(bit(SIGINT), sender, |_| ()))?;
    Ok(receiver)
}

/// A receiver of the signals that it watches.
///
/// It dereferences to a [`Receiver<i32>`](Receiver), whose messages are the numbers of the signals.
/// So it has all methods of that type and can stand in [`select!`](crate::select). The channel
/// holds each signal once at most: if a signal arrives again before it has been received, it is not
/// counted. The channel is never disconnected.
///
/// Several receivers may watch the same signal; each of them gets it. If the program had installed
/// a handler for the signal, that handler is still called, on the alternate stack and with other
/// signals blocked.
///
/// A signal does not get its default effect back when the receiver is dropped.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{bounded, select};
/// use greenthread::signal::{SIGHUP, SIGTERM, SIGUSR1, Signals};
///
/// let signals = Signals::new([SIGTERM, SIGHUP, SIGUSR1]).unwrap();
/// let (_jobs, todo) = bounded::<u32>(1);
/// # unsafe { libc::kill(libc::getpid(), SIGUSR1) };
/// loop {
///     select! {
///         recv(todo) -> job => println!("{job:?}"),
///         recv(signals) -> signal => match signal.unwrap() {
///             SIGHUP => println!("reading the configuration again"),
///             _ => break, // stop cleanly
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<i32>,
}

impl Signals {
    /// Creates a receiver that watches `signals` from now on.
    ///
    /// # Errors
    ///
    /// - [`InvalidInput`](io::ErrorKind::InvalidInput) if `signals` is empty, or contains a number
    ///   that is not the number of a signal, or a signal that cannot be watched: `SIGKILL`,
    ///   `SIGSTOP`, the signals that faults raise, and the signals that the C library or this crate
    ///   uses itself.
    /// - [`Unsupported`](io::ErrorKind::Unsupported) in a process that was forked from a process
    ///   with green threads.
    /// - The error of the system if the first call cannot start a kernel thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::signal::{SIGTERM, Signals};
    /// use std::io::ErrorKind;
    ///
    /// assert!(Signals::new([SIGTERM]).is_ok());
    ///
    /// let sigkill = 9;
    /// assert_eq!(Signals::new([sigkill]).unwrap_err().kind(), ErrorKind::InvalidInput);
    /// ```
    pub fn new(signals: impl IntoIterator<Item: Borrow<i32>>) -> io::Result<Signals> {
        let mut wanted = 0;
        for signal in signals {
            wanted |= checked(*signal.borrow())?;
        }
        if wanted == 0 {
            return Err(invalid("there is no signal to watch".into()));
        }
        let (sender, receiver) = bounded(wanted.count_ones() as usize);
        watch(wanted, Watcher::new(wanted, sender, |signal| signal))?;
        Ok(Signals { receiver })
    }
}

impl Deref for Signals {
    type Target = Receiver<i32>;

    fn deref(&self) -> &Receiver<i32> {
        &self.receiver
    }
}

impl<'a> IntoIterator for &'a Signals {
    type Item = i32;
    type IntoIter = Iter<'a, i32>;

    fn into_iter(self) -> Iter<'a, i32> {
        self.receiver.iter()
    }
}

impl IntoIterator for Signals {
    type Item = i32;
    type IntoIter = IntoIter<i32>;

    fn into_iter(self) -> IntoIter<i32> {
        self.receiver.into_iter()
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Returns the mask bit of `signal`, if it can be watched.
fn checked(signal: i32) -> io::Result<Mask> {
    let why = FORBIDDEN.iter().find(|(number, _)| *number == signal);
    let why = match why {
        Some((_, why)) => why,
        None if !NUMBERS.contains(&signal) => "which is no signal",
        None if handlers::is_reserved(signal) => "which green threads are preempted with",
        None => return Ok(bit(signal)),
    };
    Err(invalid(format!(
        "cannot watch signal {signal}, {why}; accepted are 1 to 64 but for SIGKILL, SIGSTOP, \
         SIGSEGV, SIGBUS, SIGILL, SIGFPE, 32, 33 and the signal that preempts"
    )))
}

/// One channel, and the signals that it is for.
trait Watch: Send {
    /// Sends `signal` if it is one of its own. Returns `false` if all receivers are gone.
    fn offer(&mut self, signal: i32) -> bool;
    /// Returns whether all receivers are gone.
    fn is_over(&self) -> bool;
}

struct Watcher<T> {
    signals: Mask,
    sender: Sender<T>,
    message: fn(i32) -> T,
    /// The signals that were sent; the last of them are still in the channel.
    sent: VecDeque<i32>,
}

impl<T> Watcher<T> {
    fn new(signals: Mask, sender: Sender<T>, message: fn(i32) -> T) -> Box<Watcher<T>> {
        Box::new(Watcher {
            signals,
            sender,
            message,
            sent: VecDeque::new(),
        })
    }
}

impl<T: Send> Watch for Watcher<T> {
    fn offer(&mut self, signal: i32) -> bool {
        if self.signals & bit(signal) == 0 {
            return true;
        }
        let received = self.sent.len().saturating_sub(self.sender.len());
        self.sent.drain(..received);
        if self.sent.contains(&signal) {
            return !self.is_over();
        }
        self.sent.push_back(signal);
        let sent = self.sender.try_send((self.message)(signal));
        !matches!(sent, Err(TrySendError::Disconnected(_)))
    }

    fn is_over(&self) -> bool {
        self.sender.is_disconnected()
    }
}

struct State {
    watchers: Vec<Box<dyn Watch>>,
    has_forwarder: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    watchers: Vec::new(),
    has_forwarder: false,
});
/// The signals that have our handler.
static CAUGHT: AtomicU64 = AtomicU64::new(0);
/// The time after which the forwarder looks again whether handlers are at work (invariant 4).
const NEARLY_DONE: std::time::Duration = std::time::Duration::from_micros(20);

/// Returns the signals in `mask`.
fn numbers(mask: Mask) -> impl Iterator<Item = i32> {
    NUMBERS.filter(move |signal| mask & bit(*signal) != 0)
}

fn watch(signals: Mask, watcher: Box<dyn Watch>) -> io::Result<()> {
    if is_forked_child() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "signals cannot be watched in a process forked from one with green threads",
        ));
    }
    let mut state = STATE.lock().unwrap_or_else(|poison| poison.into_inner());
    if !state.has_forwarder {
        libraries::stay_loaded(); // the forwarder does, and the handlers
        spawn_helper("greenthread-signals", HELPER_STACK, Box::new(forward))?;
        state.has_forwarder = true;
    }
    state.watchers.retain(|watcher| !watcher.is_over());
    // Before the handlers: no signal finds ours without this watcher.
    state.watchers.push(watcher);
    for signal in numbers(signals & !CAUGHT.load(Ordering::Relaxed)) {
        let unblocked = FORBIDDEN.iter().map(|(signal, _)| *signal);
        if let Err(error) = handler::catch(signal, unblocked) {
            state.watchers.pop();
            return Err(error);
        }
        CAUGHT.fetch_or(bit(signal), Ordering::Relaxed);
    }
    handler::wake(); // it unblocks them
    Ok(())
}

/// Forwards the signals that come to their channels, for ever.
fn forward() {
    loop {
        let sequence = handler::sequence();
        kernel::set_mask(kernel::ALL & !CAUGHT.load(Ordering::Relaxed));
        match handler::fetch() {
            0 => handler::wait(sequence),
            came => {
                while handler::is_busy() {
                    std::thread::sleep(NEARLY_DONE);
                }
                numbers(came).for_each(forward_one);
            }
        }
    }
}

fn forward_one(signal: i32) {
    let mut state = STATE.lock().unwrap_or_else(|poison| poison.into_inner());
    state.watchers.retain_mut(|watcher| watcher.offer(signal));
}
