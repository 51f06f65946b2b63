//! Signals as messages in channels, so that a server can stop cleanly.
//!
//! A handler may do next to nothing, so ours (`engine/sys/handler`) leaves a bit in a word and wakes a
//! kernel thread, the *forwarder*, which is started at first use and puts the signal into the
//! channels of those that watch it.
//!
//! Invariants:
//! 1. No signal is lost: the forwarder asks for the handler's sequence before it looks.
//! 2. A channel holds a signal once at most. The forwarder alone sends, so what is in the channel is
//!    the last part of what it sent; it keeps that list and leaves out what is still there. Hence a
//!    channel for n signals never holds more than n messages, and is never full for a new one.
//! 3. The forwarder blocks no signal that is watched, and every other. So a watched signal is seen
//!    even if all threads of the program block it, and no other is caught that the program waits for
//!    in its own way.
//! 4. Nobody hears of a signal while the handler is still busy with it. It may be running on the main
//!    thread's alternate stack, which std unmaps when any thread calls `exit`: as one does who was
//!    told to stop. (The few instructions of the way out are left, and the system's own.)

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
use crate::engine::door::atomic::{AtomicU64, Ordering};
use crate::engine::door::handler;
use crate::engine::door::signal::{self as kernel, Mask, bit};
use crate::engine::door::{interpose, is_forked_child};
use crate::sync::Mutex;

/// The numbers of signals; glibc keeps 32 and 33 to itself.
const NUMBERS: core::ops::RangeInclusive<i32> = 1..=64;
/// Those that cannot be caught, and those that faults raise: to return from these is to run into
/// the fault again.
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

/// A receiver of `()` whenever Ctrl-C is pressed (`SIGINT` arrives).
///
/// From the call on Ctrl-C no longer ends the program, not even when the receiver has been dropped:
/// whoever stops a program often signals it twice. Presses that come before the last one was
/// received count once. The channel is never disconnected.
///
/// # Errors
/// As [`Signals::new`].
///
/// # Examples
///
/// ```
/// use greenthread::channel::{after, select};
/// use std::time::Duration;
///
/// let stop = greenthread::signal::ctrl_c()?;
/// select! {
///     recv(stop) -> _ => println!("stopping"),
///     recv(after(Duration::from_millis(10))) -> _ => println!("nobody pressed Ctrl-C"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ctrl_c() -> io::Result<Receiver<()>> {
    let (sender, receiver) = bounded(1);
    watch(bit(SIGINT), Watcher::new(bit(SIGINT), sender, |_| ()))?;
    Ok(receiver)
}

/// A receiver of the signals that it watches.
///
/// It dereferences to a [`Receiver<i32>`](Receiver), whose messages are the signals' numbers, so it
/// has all of that type's methods and can stand in [`select!`](crate::select). Each signal is in the
/// channel once at most: one that arrives again before it was received is not counted. The channel
/// is never disconnected.
///
/// Several may watch the same signal; each gets it. A handler that the program had installed before
/// goes on being called, too, on the alternate stack and with other signals blocked.
///
/// Dropping it restores nothing: a signal that was once watched never again does what it did of
/// itself (most end the program).
///
/// # Examples
///
/// ```
/// use greenthread::channel::{bounded, select};
/// use greenthread::signal::{SIGHUP, SIGTERM, SIGUSR1, Signals};
///
/// let signals = Signals::new([SIGTERM, SIGHUP, SIGUSR1])?;
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
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<i32>,
}

impl Signals {
    /// Watches `signals` from now on.
    ///
    /// # Errors
    /// `InvalidInput` if a number is not a signal's, or that of a signal that cannot be watched, or
    /// if there is none at all. `Unsupported` in a process forked from one with green threads.
    /// Whatever the system says when the first call cannot start a kernel thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::signal::{SIGTERM, Signals};
    ///
    /// assert!(Signals::new([SIGTERM]).is_ok());
    /// let error = Signals::new([libc::SIGKILL]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
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

/// The mask bit of `signal`, if it can be watched.
fn checked(signal: i32) -> io::Result<Mask> {
    let why = FORBIDDEN.iter().find(|(number, _)| *number == signal);
    let why = match why {
        Some((_, why)) => why,
        None if !NUMBERS.contains(&signal) => "which is no signal",
        None if interpose::is_reserved(signal) => "which green threads are preempted with",
        None => return Ok(bit(signal)),
    };
    Err(invalid(format!(
        "cannot watch signal {signal}, {why}; accepted are 1 to 64 but for SIGKILL, SIGSTOP, \
         SIGSEGV, SIGBUS, SIGILL, SIGFPE, 32, 33 and the signal that preempts"
    )))
}

/// One channel, and what it is for.
trait Watch: Send {
    /// Puts `signal` in, if it is one of its own; `false`: all receivers are gone.
    fn offer(&mut self, signal: i32) -> bool;
    /// Whether all receivers are gone.
    fn is_over(&self) -> bool;
}

struct Watcher<T> {
    signals: Mask,
    sender: Sender<T>,
    message: fn(i32) -> T,
    /// What was sent; its last part is still in the channel.
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
/// How soon to look again whether handlers are at work (invariant 4).
const NEARLY_DONE: std::time::Duration = std::time::Duration::from_micros(20);

/// The signals in `mask`.
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
        let forwarder = std::thread::Builder::new().name("greenthread-signals".into());
        forwarder.spawn(forward)?;
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

/// The forwarder.
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
