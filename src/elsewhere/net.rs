//! `net` on std alone: std's own module, but for [`TcpListener`], which another thread can close. (A
//! server ends that way; connections have std's `shutdown`.)
//!
//! std cannot call a thread back from `accept`, so who closes a listener connects to it:
//!
//! | acceptor | closer |
//! |---|---|
//! | counts itself in `waiting` | sets `is_closed` |
//! | looks at `is_closed`: set? leaves | looks at `waiting`: nobody? leaves |
//! | accepts; if `is_closed` is set now, drops the connection | connects, and looks again |
//!
//! Invariant: no acceptor is forgotten. Each side writes before it looks, all sequentially
//! consistent: so the acceptor sees that the listener is closed, or is seen and gets a connection.

use core::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net as system;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    TcpStream, ToSocketAddrs, UdpSocket,
};

/// How long the closer waits for its connection, and then for the acceptor to notice.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// What the handles of one listener share.
#[derive(Default)]
struct Shared {
    is_closed: AtomicBool,
    waiting: AtomicUsize,
}

/// std's listener, which another thread can close.
pub struct TcpListener {
    listener: system::TcpListener,
    shared: Arc<Shared>,
}

impl TcpListener {
    /// Opens a socket that listens at `addr`, like [`std::net::TcpListener::bind`].
    ///
    /// # Errors
    ///
    /// Returns std's errors.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        system::TcpListener::bind(addr).map(TcpListener::from)
    }

    /// Waits for a connection, and returns it and the peer's address.
    ///
    /// # Errors
    ///
    /// Returns std's errors, and [`NotConnected`](io::ErrorKind::NotConnected) when the listener was
    /// closed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.shared.waiting.fetch_add(1, SeqCst);
        let connection = self.unless_closed().and_then(|()| self.listener.accept());
        self.shared.waiting.fetch_sub(1, SeqCst);
        self.unless_closed()?;
        connection
    }

    fn unless_closed(&self) -> io::Result<()> {
        let message = "the socket was closed by another thread";
        match self.shared.is_closed.load(SeqCst) {
            false => Ok(()),
            true => Err(io::Error::new(io::ErrorKind::NotConnected, message)),
        }
    }

    /// Returns an iterator over connections, which ends when the listener is closed.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns another handle to the same socket.
    ///
    /// # Errors
    ///
    /// Returns std's errors.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener {
            listener: self.listener.try_clone()?,
            shared: self.shared.clone(),
        })
    }

    /// Ends the calls of [`accept`](TcpListener::accept) of all threads, on all handles, and all
    /// later ones.
    ///
    /// The socket is closed when the last handle is dropped. A host that cannot connect to its own
    /// address (a filter of packets forbids it) ends the calls that wait with the next connection.
    pub fn close(&self) {
        self.shared.is_closed.store(true, SeqCst);
        let Ok(mut address) = self.local_addr() else {
            return;
        };
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        while self.shared.waiting.load(SeqCst) > 0
            && TcpStream::connect_timeout(&address, PATIENCE).is_ok()
        {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The calls that wait for nothing are std's own.
impl Deref for TcpListener {
    type Target = system::TcpListener;

    fn deref(&self) -> &system::TcpListener {
        &self.listener
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listener.fmt(f)
    }
}

impl From<system::TcpListener> for TcpListener {
    fn from(listener: system::TcpListener) -> TcpListener {
        TcpListener {
            listener,
            shared: Arc::default(),
        }
    }
}

impl From<TcpListener> for system::TcpListener {
    fn from(listener: TcpListener) -> system::TcpListener {
        listener.listener
    }
}

/// The connections of a [`TcpListener`].
#[derive(Debug)]
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        let answer = self.listener.accept().map(|(stream, _)| stream);
        (answer.is_ok() || self.listener.unless_closed().is_ok()).then_some(answer)
    }
}

impl FusedIterator for Incoming<'_> {}

#[cfg(unix)]
mod descriptors {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

    use super::{TcpListener, system};

    impl AsFd for TcpListener {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.listener.as_fd()
        }
    }

    impl AsRawFd for TcpListener {
        fn as_raw_fd(&self) -> RawFd {
            self.listener.as_raw_fd()
        }
    }

    impl IntoRawFd for TcpListener {
        fn into_raw_fd(self) -> RawFd {
            self.listener.into_raw_fd()
        }
    }

    impl FromRawFd for TcpListener {
        unsafe fn from_raw_fd(fd: RawFd) -> TcpListener {
            // SAFETY: the caller owns the descriptor, which is a listener's.
            unsafe { system::TcpListener::from_raw_fd(fd) }.into()
        }
    }

    impl From<OwnedFd> for TcpListener {
        fn from(fd: OwnedFd) -> TcpListener {
            system::TcpListener::from(fd).into()
        }
    }

    impl From<TcpListener> for OwnedFd {
        fn from(listener: TcpListener) -> OwnedFd {
            listener.listener.into()
        }
    }
}
