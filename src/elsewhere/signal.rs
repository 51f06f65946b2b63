//! The stand-in for `signal::watch`: signals do not come as messages on this platform.
//!
//! The names are here so that a program compiles; the calls say that they are not supported. The
//! numbers are those that are the same on all systems.

use std::borrow::Borrow;
use std::io;

use crate::channel::Receiver;

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

pub(super) fn receiver_of<T>(
    _: impl IntoIterator<Item: Borrow<i32>>,
    _: fn(i32) -> T,
) -> io::Result<Receiver<T>> {
    let message = "greenthread::signal is for Linux on x86-64 or aarch64, with glibc";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
