//! Signals as messages: not on this platform.
//!
//! The names are here so that a program compiles; the calls say that they are not supported. The
//! numbers are those that are the same on all systems.

use std::borrow::Borrow;
use std::io;
use std::ops::Deref;

use crate::channel::{IntoIter, Iter, Receiver};

/// The signal of a process that aborts.
pub const SIGABRT: i32 = 6;
/// The signal of a timer set by `alarm`.
pub const SIGALRM: i32 = 14;
/// The signal that the terminal is gone.
pub const SIGHUP: i32 = 1;
/// The signal of Ctrl-C.
pub const SIGINT: i32 = 2;
/// The signal of a write to a pipe that nobody reads.
pub const SIGPIPE: i32 = 13;
/// The signal of Ctrl-\.
pub const SIGQUIT: i32 = 3;
/// The signal that the process is to end.
pub const SIGTERM: i32 = 15;

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "greenthread::signal is for Linux on x86-64 or aarch64, with glibc",
    ))
}

/// Returns a receiver that gets `()` whenever Ctrl-C is pressed.
///
/// # Errors
/// `Unsupported`, on this platform.
pub fn ctrl_c() -> io::Result<Receiver<()>> {
    unsupported()
}

/// A receiver of signals' numbers.
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<i32>,
}

impl Signals {
    /// Asks for `signals`.
    ///
    /// # Errors
    /// `Unsupported`, on this platform.
    pub fn new(signals: impl IntoIterator<Item: Borrow<i32>>) -> io::Result<Signals> {
        let _ = signals;
        unsupported()
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
