//! Unix domain sockets, with the API of [`std::os::unix::net`]; a call that waits blocks only the
//! calling thread.
//!
//! Beyond std, each socket has a method `close`, which ends the calls of all threads that wait for
//! it.
//!
//! # Examples
//!
//! ```
//! use greenthread::os::unix::net::UnixStream;
//! use std::io::{Read, Write};
//!
//! let (mut one, mut other) = UnixStream::pair()?;
//! let thread = greenthread::spawn(move || {
//!     let mut text = String::new();
//!     other.read_to_string(&mut text).map(|_| text)
//! });
//! one.write_all(b"from thread to thread")?;
//! drop(one);
//! assert_eq!(thread.join().unwrap()?, "from thread to thread");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::net::Shutdown;
use std::os::unix::net as unix;
use std::os::{fd::AsFd, linux::net::SocketAddrExt};
use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use socket2::{SockAddr, SockRef};

pub use std::os::unix::net::SocketAddr;

use crate::engine::facade::{Source, blocking, unless_in_frame};
use crate::io::macros::{reads, writes};
use crate::net::listener::incoming;
use crate::net::socket::{Socket, socket_type};
use crate::sys::calls;

/// Creates a pair of streams that are connected to each other, like [`UnixStream::pair`].
///
/// # Errors
///
/// Returns an error if the process has no more descriptors.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
///
/// let (mut one, mut other) = greenthread::os::unix::net::socketpair()?;
/// one.write_all(b"!")?;
/// let mut byte = [0];
/// other.read_exact(&mut byte)?;
/// assert_eq!(&byte, b"!");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn socketpair() -> io::Result<(UnixStream, UnixStream)> {
    UnixStream::pair()
}

/// Returns the address of a peer as std's type.
fn unix_address(address: &SockAddr) -> io::Result<SocketAddr> {
    if let Some(name) = address.as_abstract_namespace() {
        return SocketAddr::from_abstract_name(name);
    }
    // A peer that is not bound has no name, which std shows as an empty path.
    SocketAddr::from_pathname(address.as_pathname().unwrap_or("".as_ref()))
}

/// A Unix stream socket, like [`std::os::unix::net::UnixStream`]; it blocks only the calling
/// thread.
///
/// # Examples
///
/// ```
/// use greenthread::os::unix::net::UnixStream;
/// use std::io::{Read, Write};
///
/// let (mut one, mut other) = UnixStream::pair()?;
/// one.write_all(b"ping")?;
/// let mut word = [0; 4];
/// other.read_exact(&mut word)?;
/// assert_eq!(&word, b"ping");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(pub(super) Socket);

impl UnixStream {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    ///
    /// Returns the errors of `connect(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{UnixListener, UnixStream};
    ///
    /// let path = std::env::temp_dir().join(format!("connect-{}", std::process::id()));
    /// let _listener = UnixListener::bind(&path)?;
    /// let stream = UnixStream::connect(&path)?;
    /// assert_eq!(stream.peer_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        // The call waits only while the listener's queue is full, which no readiness of this socket tells.
        unless_in_frame(blocking, || unix::UnixStream::connect(path)).map(Self::fresh)
    }

    /// Connects to the socket at an address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `connect(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("connect_addr-{}", std::process::id());
    /// let address = SocketAddr::from_abstract_name(&name)?;
    /// let _listener = UnixListener::bind_addr(&address)?;
    /// let _stream = UnixStream::connect_addr(&address)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(socket_addr: &SocketAddr) -> io::Result<UnixStream> {
        unless_in_frame(blocking, || unix::UnixStream::connect_addr(socket_addr)).map(Self::fresh)
    }

    fn fresh(stream: unix::UnixStream) -> UnixStream {
        UnixStream(Socket::fresh(stream.into()))
    }

    /// Creates a pair of streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixStream;
    ///
    /// let (one, _other) = UnixStream::pair()?;
    /// assert!(one.local_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, other) = unix::UnixStream::pair()?;
        Ok((Self::fresh(one), Self::fresh(other)))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `getpeername(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixStream;
    ///
    /// let (one, _other) = UnixStream::pair()?;
    /// assert!(one.peer_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }
}

socket_type! {
    UnixStream, like unix::UnixStream,
    example "let (socket, _peer) = greenthread::os::unix::net::UnixStream::pair()?;";
    timeouts
    shutdown
}
reads!(UnixStream);
writes!(UnixStream);

/// A Unix socket that listens for connections, like [`std::os::unix::net::UnixListener`]; it blocks
/// only the calling thread.
///
/// # Examples
///
/// ```
/// use greenthread::os::unix::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// let path = std::env::temp_dir().join(format!("listener-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// let server = greenthread::spawn(move || {
///     let (mut stream, _peer) = listener.accept()?;
///     stream.write_all(b"good day")
/// });
///
/// let mut greeting = String::new();
/// UnixStream::connect(&path)?.read_to_string(&mut greeting)?;
/// assert_eq!(greeting, "good day");
/// server.join().unwrap()?;
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Socket);

impl UnixListener {
    /// Creates a listener bound to a path, and a socket file there.
    ///
    /// Dropping the listener does not remove the file.
    ///
    /// # Errors
    ///
    /// Returns the errors of `bind(2)`, for example if the path exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixListener;
    ///
    /// let path = std::env::temp_dir().join(format!("bind-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        unix::UnixListener::bind(path).map(UnixListener::from)
    }

    /// Creates a listener bound to an address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `bind(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{SocketAddr, UnixListener};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("abstract-{}", std::process::id());
    /// let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// assert_eq!(listener.local_addr()?.as_abstract_name(), Some(name.as_bytes()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixListener> {
        unix::UnixListener::bind_addr(socket_addr).map(UnixListener::from)
    }

    /// Accepts the next connection, and returns it with the peer's address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `accept(2)`. Some of them do not mean that the listener is broken: the
    /// process may have no more descriptors, for example.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    /// # use std::os::linux::net::SocketAddrExt;
    /// # let name = format!("accept-{}", std::process::id());
    /// # let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// let _client = UnixStream::connect_addr(&listener.local_addr()?)?;
    /// let (_stream, peer) = listener.accept()?;
    /// assert!(peer.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (socket, address) = self.0.accept()?;
        Ok((UnixStream(socket), unix_address(&address)?))
    }

    /// Returns an iterator over the connections, which waits for each of them.
    ///
    /// It ends only when the listener is [closed](UnixListener::close).
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    /// # use std::os::linux::net::SocketAddrExt;
    /// # let name = format!("incoming-{}", std::process::id());
    /// # let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// let _client = UnixStream::connect_addr(&listener.local_addr()?)?;
    /// for stream in listener.incoming() {
    ///     println!("{:?}", stream?);
    ///     break;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }
}

socket_type! {
    UnixListener, like unix::UnixListener,
    example r#"# use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
# let (process, thread) = (std::process::id(), std::thread::current().id());
# let address = SocketAddr::from_abstract_name(format!("example-{process}-{thread:?}"))?;
let socket = greenthread::os::unix::net::UnixListener::bind_addr(&address)?;"#;
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;

    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

incoming! {
    /// An iterator over the connections of a [`UnixListener`], like [`std::os::unix::net::Incoming`].
    ///
    /// It is created by [`UnixListener::incoming`], and ends only when the listener is
    /// [closed](UnixListener::close).
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::SocketAddr;
    /// use greenthread::os::unix::net::{Incoming, UnixListener, UnixStream};
    /// # use std::os::linux::net::SocketAddrExt;
    ///
    /// fn first(mut connections: Incoming<'_>) -> std::io::Result<UnixStream> {
    ///     connections.next().expect("the listener is open")
    /// }
    ///
    /// # let name = format!("incoming-type-{}", std::process::id());
    /// # let address = SocketAddr::from_abstract_name(&name)?;
    /// let listener = UnixListener::bind_addr(&address)?;
    /// let _client = UnixStream::connect_addr(&address)?;
    /// let _stream = first(listener.incoming())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    UnixListener, UnixStream
}

/// A Unix datagram socket, like [`std::os::unix::net::UnixDatagram`]; it blocks only the calling
/// thread.
///
/// # Examples
///
/// ```
/// use greenthread::os::unix::net::UnixDatagram;
///
/// let path = std::env::temp_dir().join(format!("datagram-{}", std::process::id()));
/// let server = UnixDatagram::bind(&path)?;
/// UnixDatagram::unbound()?.send_to(b"ping", &path)?;
///
/// let mut buffer = [0; 64];
/// let (count, sender) = server.recv_from(&mut buffer)?;
/// assert_eq!(&buffer[..count], b"ping");
/// assert!(sender.is_unnamed());
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Socket);

impl UnixDatagram {
    fn fresh(socket: unix::UnixDatagram) -> UnixDatagram {
        UnixDatagram(Socket::fresh(socket.into()))
    }

    /// Creates a socket bound to a path, and a socket file there.
    ///
    /// Dropping the socket does not remove the file.
    ///
    /// # Errors
    ///
    /// Returns the errors of `bind(2)`, for example if the path exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("bound-{}", std::process::id()));
    /// let socket = UnixDatagram::bind(&path)?;
    /// assert_eq!(socket.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        unix::UnixDatagram::bind(path).map(Self::fresh)
    }

    /// Creates a socket bound to an address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `bind(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{SocketAddr, UnixDatagram};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("bind_addr-{}", std::process::id());
    /// let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// assert_eq!(socket.local_addr()?.as_abstract_name(), Some(name.as_bytes()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(socket_addr: &SocketAddr) -> io::Result<UnixDatagram> {
        unix::UnixDatagram::bind_addr(socket_addr).map(Self::fresh)
    }

    /// Creates a socket that is not bound to an address. It can send, and be connected.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// assert!(UnixDatagram::unbound()?.local_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unbound() -> io::Result<UnixDatagram> {
        unix::UnixDatagram::unbound().map(Self::fresh)
    }

    /// Creates a pair of sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// one.send(b"ping")?;
    /// assert_eq!(other.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = unix::UnixDatagram::pair()?;
        Ok((Self::fresh(one), Self::fresh(other)))
    }

    /// Connects the socket to its peer: the socket at a path.
    ///
    /// [`send`](UnixDatagram::send) then sends to the peer, and the socket receives from no other
    /// socket.
    ///
    /// # Errors
    ///
    /// Returns the errors of `connect(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("peer-{}", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.connect(&path)?;
    /// client.send(b"ping")?;
    /// assert_eq!(server.recv(&mut [0; 64])?, 4);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.std().connect(path)
    }

    /// Connects the socket to the socket at an address; see [`connect`](UnixDatagram::connect).
    ///
    /// # Errors
    ///
    /// Returns the errors of `connect(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{SocketAddr, UnixDatagram};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("connect_datagram-{}", std::process::id());
    /// let server = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// let client = UnixDatagram::unbound()?;
    /// client.connect_addr(&server.local_addr()?)?;
    /// client.send(b"ping")?;
    /// assert_eq!(server.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(&self, socket_addr: &SocketAddr) -> io::Result<()> {
        self.std().connect_addr(socket_addr)
    }

    /// Returns the peer's address; see [`connect`](UnixDatagram::connect).
    ///
    /// # Errors
    ///
    /// Returns [`NotConnected`](io::ErrorKind::NotConnected) if there is no peer.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// let (one, _other) = UnixDatagram::pair()?;
    /// assert!(one.peer_addr()?.is_unnamed());
    /// assert!(UnixDatagram::unbound()?.peer_addr().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// Receives a datagram, and returns its length and the sender's address.
    ///
    /// If the datagram does not fit into the buffer, the rest of it is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of `recvfrom(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// one.send(b"ping")?;
    /// let (count, sender) = other.recv_from(&mut [0; 64])?;
    /// assert!(count == 4 && sender.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (count, address) = self.receive(buf)?;
        Ok((count, unix_address(&address)?))
    }

    /// Receives a datagram, and returns its length.
    ///
    /// If the datagram does not fit into the buffer, the rest of it is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of `recv(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::UnixDatagram;
    /// # let (one, other) = UnixDatagram::pair()?;
    /// one.send(b"ping")?;
    /// assert_eq!(other.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf).map(|(count, _)| count)
    }

    /// Sends a datagram to the socket at a path.
    ///
    /// # Errors
    ///
    /// Returns the errors of `sendto(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::UnixDatagram;
    /// let path = std::env::temp_dir().join(format!("send_to-{}", std::process::id()));
    /// let _server = UnixDatagram::bind(&path)?;
    /// assert_eq!(UnixDatagram::unbound()?.send_to(b"ping", &path)?, 4);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        self.send_blocking(|| self.std().send_to(buf, path.as_ref()))
    }

    /// Sends a datagram to the socket at an address.
    ///
    /// # Errors
    ///
    /// Returns the errors of `sendto(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::net::{SocketAddr, UnixDatagram};
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// let name = format!("send_to_addr-{}", std::process::id());
    /// let server = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    /// UnixDatagram::unbound()?.send_to_addr(b"ping", &server.local_addr()?)?;
    /// assert_eq!(server.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to_addr(&self, buf: &[u8], socket_addr: &SocketAddr) -> io::Result<usize> {
        self.send_blocking(|| self.std().send_to_addr(buf, socket_addr))
    }

    /// Makes a call that may block its kernel thread. There is no other way to wait for room in the
    /// queue of a socket that is not the peer. The call obeys the time-out and the mode.
    fn send_blocking(&self, send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let send = || Source::uninterrupted(send);
        self.0.unless_closed(|| unless_in_frame(blocking, send))
    }

    /// Sends a datagram to the peer; see [`connect`](UnixDatagram::connect).
    ///
    /// # Errors
    ///
    /// Returns the errors of `send(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::os::unix::net::UnixDatagram;
    /// # let (one, _other) = UnixDatagram::pair()?;
    /// assert_eq!(one.send(b"ping")?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        self.0
            .write_with(|| SockRef::from(&self.0).send_with_flags(buf, flags))
    }

    /// Receives by a system call each time, because the ring cannot do two things that are needed.
    /// When all data of a socket that was shut down has been read, a call that does not block
    /// returns `WouldBlock` instead of the end. And Linux 6 sends an empty datagram if it had to
    /// wait for room in the peer's queue.
    fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, SockAddr)> {
        self.0.read_with(
            || match calls::recv_from(self.as_fd(), buf, libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.0.is_ended() => {
                    Ok((0, SockAddr::unix("")?))
                }
                answer => answer,
            },
        )
    }
}

socket_type! {
    UnixDatagram, like unix::UnixDatagram,
    example "let (socket, _peer) = greenthread::os::unix::net::UnixDatagram::pair()?;";
    timeouts
    shutdown
}
