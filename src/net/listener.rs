//! A listening socket.
//!
//! `accept4(2)` has no flag for one call that does not block. So a listener's open file description
//! is non-blocking, whatever the user asked for, which [`Socket`] only notes; it is set as asked
//! when the descriptor is given away. Clones share the description: once one of them was given
//! away, a call of another may block its kernel thread, as std's would.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::{SockAddr, SockAddrStorage, SockRef};

use super::socket::{AsStd, Socket};

#[derive(Debug)]
pub(crate) struct Listener(Socket);

impl Listener {
    pub(crate) fn adopt(fd: OwnedFd) -> Listener {
        let listener = Listener(Socket::adopt(fd));
        // It fails for what is no open descriptor, and then so will the calls.
        let _ = SockRef::from(&listener).set_nonblocking(true);
        listener
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        // As above.
        let _ = SockRef::from(&self).set_nonblocking(self.0.is_nonblocking());
        self.0.into_fd()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Listener> {
        self.0.try_clone().map(Listener)
    }

    pub(crate) fn as_std<T: FromRawFd>(&self) -> AsStd<'_, T> {
        self.0.as_std()
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.note_nonblocking(nonblocking);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// The next item of the connections: none once the listener is closed, instead of an error
    /// without end.
    pub(crate) fn unless_ended<T>(&self, answer: io::Result<T>) -> Option<io::Result<T>> {
        (answer.is_ok() || !self.0.is_closed()).then_some(answer)
    }

    /// The next connection, and the peer's address.
    pub(crate) fn accept(&self) -> io::Result<(Socket, SockAddr)> {
        let fd = self.as_fd().as_raw_fd();
        let accept = |address: *mut SockAddrStorage, length: *mut libc::socklen_t| {
            // SAFETY: `try_init` gives valid pointers, and room of that length.
            match unsafe { libc::accept4(fd, address.cast(), length, libc::SOCK_CLOEXEC) } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: a new descriptor, which nobody else knows.
                fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            }
        };
        // SAFETY: the kernel writes an address and the length that it has.
        let accept = || unsafe { SockAddr::try_init(accept) };
        let (fd, address) = self.0.read_with(accept)?;
        let socket = match address.as_socket() {
            Some(_) => Socket::fresh_tcp_stream(fd),
            None => Socket::fresh(fd),
        };
        Ok((socket, address))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
