//! A listening socket.
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
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use socket2::{SockAddr, SockRef};

use super::socket::Socket;
use crate::engine::facade::calls;
use crate::engine::facade::is_forked_child;
use crate::engine::facade::uninterrupted;
use crate::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    accepting: Arc<Mutex<()>>,
}

impl Listener {
    pub(crate) fn adopt(fd: OwnedFd) -> Listener {
        Listener {
            socket: Socket::adopt(fd),
            accepting: Arc::default(),
        }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.socket.into_fd()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Listener> {
        Ok(Listener {
            socket: self.socket.try_clone()?,
            accepting: self.accepting.clone(),
        })
    }

    /// Returns the next item of the iterator over connections: `None` once the listener is closed,
    /// instead of an error each time.
    pub(crate) fn unless_ended<T>(&self, answer: io::Result<T>) -> Option<io::Result<T>> {
        (answer.is_ok() || !self.socket.is_closed()).then_some(answer)
    }

    /// Waits for the next connection, and returns it with the peer's address.
    pub(crate) fn accept(&self) -> io::Result<(Socket, SockAddr)> {
        let accept = || SockRef::from(self).accept();
        let (fd, address) = self.socket.read_with(|| {
            if self.socket.is_nonblocking() || is_forked_child() {
                return accept();
            }
            let _no_other = self
                .accepting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match self.has_connection() {
                true => crate::thread::blocking(accept),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        })?;
        let socket = match address.as_socket() {
            Some(_) => Socket::fresh_tcp_stream(fd.into()),
            None => Socket::fresh(fd.into()),
        };
        Ok((socket, address))
    }

    /// Returns whether a call of accept would return at once, with a connection or an error.
    fn has_connection(&self) -> bool {
        let question = || calls::poll(self.as_fd(), libc::POLLIN);
        !matches!(uninterrupted(question), Ok(false))
    }
}

impl Deref for Listener {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
