//! [`TcpStream`], like std's type, built on a [`Socket`].

use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use std::{fmt, io};

use super::invalid;
use super::socket::{Socket, socket_type};
use crate::engine::facade::{Limit, blocking, unless_in_frame};
use crate::io::macros::{reads, writes};
use crate::sys::clock;

/// A TCP connection, like [`std::net::TcpStream`]; it blocks only the calling thread.
///
/// One thread may read while another writes, through `&TcpStream` or [clones](Self::try_clone).
///
/// # Examples
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
    /// Opens a connection to the first of the addresses that answers.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address, or of resolving the name; returns
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(("127.0.0.1", listener.local_addr()?.port()))?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        let mut answer = Err(invalid("could not resolve to any addresses"));
        for address in unless_in_frame(blocking, || addr.to_socket_addrs())? {
            answer = Socket::connect(&address, Limit::Forever);
            if answer.is_ok() {
                break;
            }
        }
        answer.map(TcpStream)
    }

    /// Opens a connection to an address, waiting for `timeout` at most.
    ///
    /// # Errors
    ///
    /// Returns [`TimedOut`](io::ErrorKind::TimedOut) if the time is up, and
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if `timeout` is zero.
    ///
    /// # Examples
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
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(invalid("cannot set a 0 duration timeout"));
        }
        match Socket::connect(addr, Limit::Until(clock::after(timeout))) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let message = "connection timed out";
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
            answer => answer.map(TcpStream),
        }
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Returns [`NotConnected`](io::ErrorKind::NotConnected) if the connection has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// Reads data without removing it: the next read returns the same data again.
    ///
    /// # Errors
    ///
    /// Returns the errors of reading.
    ///
    /// # Examples
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
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, libc::MSG_PEEK)
    }
}

socket_type! {
    TcpStream, like std::net::TcpStream,
    example r#"let listener = greenthread::net::TcpListener::bind("127.0.0.1:0")?;
let socket = greenthread::net::TcpStream::connect(listener.local_addr()?)?;"#;
    timeouts
    shutdown
    options {
        /// Sets whether small writes are sent at once, instead of being gathered while an earlier one
        /// is on its way (`TCP_NODELAY`).
        nodelay, set_nodelay: bool = true;
        /// Sets the time to live of packets from this socket (`IP_TTL`).
        ttl, set_ttl: u32 = 100;
    }
}
reads!(TcpStream);
writes!(TcpStream);
