//! [`TcpListener`], like std's type, built on a [`Socket`].

use std::iter::FusedIterator;
use std::net::{SocketAddr, ToSocketAddrs};
use std::{fmt, io};

use socket2::SockRef;

use super::listener::incoming;
use super::socket::{Socket, socket_type};
use super::{TcpStream, internet_address};
use crate::engine::facade::{blocking, unless_in_frame};

/// A overflow that the kernel reduces to its limit.
const AS_MANY_AS_ALLOWED: i32 = i32::MAX;

/// A TCP socket that listens for connections, like [`std::net::TcpListener`]; it blocks only the
/// calling thread.
///
/// Any number of threads may accept from one listener; each connection goes to one of them.
///
/// # Examples
///
/// ```
/// use greenthread::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = greenthread::spawn(move || {
///     let (mut stream, _peer) = listener.accept()?;
///     stream.write_all(b"good day")
/// });
///
/// let mut greeting = String::new();
/// TcpStream::connect(address)?.read_to_string(&mut greeting)?;
/// assert_eq!(greeting, "good day");
/// server.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(Socket);

impl TcpListener {
    /// Creates a listener bound to the first of the addresses that is available.
    ///
    /// With port 0 the system chooses a port.
    ///
    /// The limit of connections that wait to be accepted is the system's (`net.core.somaxconn`,
    /// usually 4096). With std's listener it is 128.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address, or of resolving the name; returns
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::TcpListener;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let listener = unless_in_frame(blocking, || std::net::TcpListener::bind(addr))?;
        SockRef::from(&listener).listen(AS_MANY_AS_ALLOWED)?;
        Ok(listener.into())
    }

    /// Accepts the next connection, and returns it with the peer's address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `accept(2)`. Some of them do not mean that the listener is broken: the
    /// process may have no more descriptors, for example, or the peer may have given up the
    /// connection meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let client = TcpStream::connect(listener.local_addr()?)?;
    /// let (_stream, peer) = listener.accept()?;
    /// assert_eq!(peer, client.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, address) = self.0.accept()?;
        Ok((TcpStream(socket), internet_address(&address)?))
    }

    /// Returns an iterator over the connections, which waits for each of them.
    ///
    /// It ends only when the listener is [closed](TcpListener::close).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let _client = TcpStream::connect(listener.local_addr()?)?;
    /// for stream in listener.incoming() {
    ///     println!("from {}", stream?.peer_addr()?);
    ///     break;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns an error, as in std: the option can only be set before the socket is bound.
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    #[deprecated(note = "this option can only be set before the socket is bound")]
    #[allow(deprecated)]
    pub fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        self.std().set_only_v6(only_v6)
    }

    /// Returns whether an IPv6 socket refuses IPv4 connections (`IPV6_V6ONLY`).
    ///
    /// # Errors
    ///
    /// Returns the errors of `getsockopt(2)`.
    #[deprecated(note = "this option can only be set before the socket is bound")]
    #[allow(deprecated)]
    pub fn only_v6(&self) -> io::Result<bool> {
        self.std().only_v6()
    }
}

socket_type! {
    TcpListener, like std::net::TcpListener,
    example r#"let socket = greenthread::net::TcpListener::bind("127.0.0.1:0")?;"#;
    options {
        /// Sets the time to live of packets from this socket (`IP_TTL`).
        ttl, set_ttl: u32 = 100;
    }
}

incoming! {
    /// An iterator over the connections of a [`TcpListener`], like [`std::net::Incoming`].
    ///
    /// It is created by [`TcpListener::incoming`], and ends only when the listener is
    /// [closed](TcpListener::close).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{Incoming, TcpListener, TcpStream};
    ///
    /// fn ports(connections: Incoming<'_>) -> Vec<u16> {
    ///     connections.take(2).map(|stream| stream.unwrap().peer_addr().unwrap().port()).collect()
    /// }
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let one = TcpStream::connect(listener.local_addr()?)?;
    /// let other = TcpStream::connect(listener.local_addr()?)?;
    /// let ports = ports(listener.incoming());
    /// for stream in [one, other] {
    ///     assert!(ports.contains(&stream.local_addr()?.port()));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    TcpListener, TcpStream
}

impl FusedIterator for Incoming<'_> {}
