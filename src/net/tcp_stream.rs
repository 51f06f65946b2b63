//! [`TcpStream`]: std's, on a [`Socket`].

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::macros::{shutdown, socket_type, stream, timeouts};
use super::socket::Socket;
use crate::driver::Limit;
use crate::sys::clock;

/// A TCP connection: [`std::net::TcpStream`], which blocks only the calling thread.
///
/// One thread may read while another writes, through `&TcpStream` or [clones](Self::try_clone).
///
/// ```
/// use greenthread::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let (mut server, _) = listener.accept()?;
///
/// client.write_all(b"ping")?;
/// let mut word = [0; 4];
/// server.read_exact(&mut word)?;
/// assert_eq!(&word, b"ping");
///
/// drop(client); // the connection ends
/// assert_eq!(server.read(&mut word)?, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(pub(super) Socket);

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(("127.0.0.1", listener.local_addr()?.port()))?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of the last address, or of the resolution;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        let none = "could not resolve to any addresses";
        let mut answer = Err(io::Error::new(io::ErrorKind::InvalidInput, none));
        for address in crate::blocking(|| addr.to_socket_addrs())? {
            answer = Socket::connect(&address, Limit::Forever);
            if answer.is_ok() {
                break;
            }
        }
        answer.map(TcpStream)
    }

    /// Connects to that address, within that time.
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(5))?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) when the time is up,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is zero.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            let message = "cannot set a 0 duration timeout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        match Socket::connect(addr, Limit::Until(clock::after(timeout))) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let message = "connection timed out";
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
            answer => answer.map(TcpStream),
        }
    }

    /// The peer's address.
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`NotConnected`](io::ErrorKind::NotConnected) if the connection is over.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// Reads without taking what it reads: the next read returns it again.
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut client = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut server, _) = listener.accept()?;
    /// client.write_all(b"?")?;
    ///
    /// let mut byte = [0];
    /// assert_eq!((server.peek(&mut byte)?, &byte), (1, b"?"));
    /// assert_eq!((server.read(&mut byte)?, &byte), (1, b"?"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, libc::MSG_PEEK)
    }

    /// Whether small writes are sent at once, instead of being gathered while an earlier one is on
    /// its way (`TCP_NODELAY`).
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_nodelay(true)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.std().set_nodelay(nodelay)
    }

    /// Whether small writes are sent at once; see [`set_nodelay`](TcpStream::set_nodelay).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.std().nodelay()
    }

    /// Sets the time to live of packets from this socket (`IP_TTL`).
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_ttl(100)?;
    /// assert_eq!(stream.ttl()?, 100);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.std().set_ttl(ttl)
    }

    /// The time to live of packets from this socket; see [`set_ttl`](TcpStream::set_ttl).
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.std().ttl()
    }
}

socket_type! {
    TcpStream(Socket), like std::net::TcpStream,
    example r#"let listener = greenthread::net::TcpListener::bind("127.0.0.1:0")?;
let socket = greenthread::net::TcpStream::connect(listener.local_addr()?)?;"#
}
timeouts! {
    TcpStream,
    example r#"let listener = greenthread::net::TcpListener::bind("127.0.0.1:0")?;
let socket = greenthread::net::TcpStream::connect(listener.local_addr()?)?;"#
}
shutdown! {
    TcpStream,
    example r#"let listener = greenthread::net::TcpListener::bind("127.0.0.1:0")?;
let socket = greenthread::net::TcpStream::connect(listener.local_addr()?)?;"#
}
stream!(TcpStream);
