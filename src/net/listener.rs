//! A listening socket: how it accepts, and the iterator over its connections.
//!
//! `accept4(2)` has no flag for a single call that does not block. The descriptor's mode belongs to
//! the open file description, which others may share: a child process that inherited it, or a
//! duplicate. So the mode is left to the user, and a thread asks whether there is a connection
//! (`poll(2)`) before it takes one.
//!
//! # Invariants
//! 1. Between the question and the call no other thread takes a connection through this listener or
//!    its clones, since `accepting` is held. So the call does not block.
//! 2. Another process, or the owner of a duplicate, may be faster. Then the call blocks its kernel
//!    thread until the next connection comes, as std's would, and says so. `close` ends it: it
//!    shuts the description down. In a forked child all calls are like this: a thread that does not
//!    exist there may hold `accepting`, and its threads are kernel threads, which may block.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{SockAddr, SockRef};

use super::socket::Socket;
use crate::engine::facade::{Source, is_forked_child};
use crate::sys::is_ready;

impl Socket {
    /// Waits for the next connection, and returns it with the peer's address.
    pub(crate) fn accept(&self) -> io::Result<(Socket, SockAddr)> {
        let accept = || SockRef::from(self).accept();
        let (fd, address) = self.read_with(|| {
            if self.is_nonblocking() || is_forked_child() {
                return accept();
            }
            let _no_other = self.settings.accepting.lock_anyway();
            // If a connection waits, or an error, the call returns at once.
            match is_ready(self.as_fd().as_raw_fd(), libc::POLLIN) {
                true => crate::thread::blocking(accept),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        })?;
        let source = match address.as_socket() {
            Some(_) => Source::of_tcp_stream(fd.into()),
            None => Source::new(fd.into()),
        };
        Ok((Socket::of_fresh(source), address))
    }
}

/// Declares `Incoming`, the iterator over the connections of a listener. It ends once the listener is closed: it returns `None`
/// then, instead of an error each time.
macro_rules! incoming {
    ($(#[$doc:meta])* $Listener:ident, $Stream:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "iterators are lazy and do nothing unless consumed"]
        pub struct Incoming<'a> {
            listener: &'a $Listener,
        }

        impl Iterator for Incoming<'_> {
            type Item = io::Result<$Stream>;

            fn next(&mut self) -> Option<io::Result<$Stream>> {
                let answer = self.listener.accept().map(|(stream, _)| stream);
                (answer.is_ok() || !self.listener.0.is_closed()).then_some(answer)
            }
        }
    };
}
pub(crate) use incoming;
