//! How signals come into channels.
//!
//! A handler may do next to nothing: it leaves a bit in a word (`sys/signal.rs`) and wakes a kernel thread, the *forwarder*. The
//! first call starts the forwarder, which puts each signal into the channels of those that watch it.
//!
//! # Invariants
//! 1. A channel holds a signal once at most. The forwarder alone sends, so the messages in the channel are the last part of
//!    those that it sent; it keeps that list and leaves out signals that are still there. Hence a channel for n signals
//!    never holds more than n messages, and is never full for a new one.
//! 2. The forwarder blocks no signal that is watched, and every other. So a watched signal is seen even if all threads of the
//!    program block it, and the forwarder catches no other signal for which the program waits in its own way.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;

use crate::atomic::{AtomicU64, Ordering};
use crate::channel::{Receiver, TrySendError, bounded};
use crate::engine::facade::{is_forked_child, preempts, spawn_helper};
use crate::sync::Mutex;
use crate::sys::libraries;
use crate::sys::signal::{self as kernel, Mask, bit};

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

/// Returns a receiver of what `message` makes of each of the `signals` that comes from now on.
pub(super) fn receiver_of<T: Send + 'static>(
    signals: impl IntoIterator<Item: Borrow<i32>>,
    message: fn(i32) -> T,
) -> io::Result<Receiver<T>> {
    let mut wanted = 0;
    for signal in signals {
        wanted |= checked(*signal.borrow())?;
    }
    if wanted == 0 {
        return Err(invalid("there is no signal to watch".into()));
    }
    let (sender, receiver) = bounded(wanted.count_ones() as usize);
    // The signals that were sent; the last of them are still in the channel.
    let mut sent = VecDeque::new();
    let watcher = move |signal: Option<i32>| {
        let received = sent.len().saturating_sub(sender.len());
        sent.drain(..received);
        match signal.filter(|&signal| wanted & bit(signal) != 0 && !sent.contains(&signal)) {
            None => !sender.is_disconnected(),
            Some(signal) => {
                sent.push_back(signal);
                let answer = sender.try_send(message(signal));
                !matches!(answer, Err(TrySendError::Disconnected(_)))
            }
        }
    };
    watch(wanted, Box::new(watcher))?;
    Ok(receiver)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Returns the mask bit of `signal`, if it can be watched.
fn checked(signal: i32) -> io::Result<Mask> {
    let why = match FORBIDDEN.iter().find(|(number, _)| *number == signal) {
        Some((_, why)) => why,
        None if !NUMBERS.contains(&signal) => "which is no signal",
        None if preempts(signal) => "which green threads are preempted with",
        None => return Ok(bit(signal)),
    };
    Err(invalid(format!(
        "cannot watch signal {signal}, {why}; accepted are 1 to 64 but for SIGKILL, SIGSTOP, \
         SIGSEGV, SIGBUS, SIGILL, SIGFPE, 32, 33 and the signal that preempts"
    )))
}

/// Sends a signal into one channel, if the channel is for that signal. False: all receivers of the channel are gone.
type Watcher = Box<dyn FnMut(Option<i32>) -> bool + Send>;

/// `None`: nobody forwards signals yet.
static WATCHERS: Mutex<Option<Vec<Watcher>>> = Mutex::new(None);
/// The signals that have our handler.
static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// Returns the signals in `mask`.
fn numbers(mask: Mask) -> impl Iterator<Item = i32> {
    NUMBERS.filter(move |signal| mask & bit(*signal) != 0)
}

fn watch(signals: Mask, watcher: Watcher) -> io::Result<()> {
    if is_forked_child() {
        let message = "signals cannot be watched in a process forked from one with green threads";
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let mut watchers = WATCHERS.lock_anyway();
    if watchers.is_none() {
        libraries::stay_loaded(); // this library's code runs in the forwarder and in the handlers from now on
        spawn_helper("greenthread-signals", forward)?;
    }
    let watchers = watchers.get_or_insert_default();
    watchers.retain_mut(|watcher| watcher(None));
    // The watcher is added before the handlers, so that it gets each signal that they catch.
    watchers.push(watcher);
    for signal in numbers(signals & !CAUGHT.load(Ordering::Relaxed)) {
        let unblocked = FORBIDDEN.iter().map(|(signal, _)| *signal);
        if let Err(error) = kernel::catch(signal, unblocked) {
            watchers.pop();
            return Err(error);
        }
        CAUGHT.fetch_or(bit(signal), Ordering::Relaxed);
    }
    kernel::wake_receiver(); // the receiver unblocks the signals
    Ok(())
}

/// Forwards the signals that come to their channels, for ever.
fn forward() {
    loop {
        let came = kernel::next_caught(|| {
            kernel::set_mask(kernel::ALL & !CAUGHT.load(Ordering::Relaxed));
        });
        numbers(came).for_each(forward_one);
    }
}

// Not in the loop, which the compiler makes 64 copies of.
#[inline(never)]
fn forward_one(signal: i32) {
    let mut watchers = WATCHERS.lock_anyway();
    let watchers = watchers.iter_mut();
    watchers.for_each(|all| all.retain_mut(|watcher| watcher(Some(signal))));
}
