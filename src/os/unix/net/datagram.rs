//! [`UnixDatagram`], like std's type, built on a [`Socket`].

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net as unix;
use std::path::Path;
use std::time::Duration;

use socket2::{SockAddr, SockRef};

use super::{SocketAddr, unix_address};
use crate::engine::facade::uninterrupted;
use crate::net::macros::{shutdown, socket_type, timeouts};
use crate::net::socket::Socket;
use crate::sys::calls;

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
        let send = || uninterrupted(send);
        self.0.unless_closed(|| crate::thread::blocking(send))
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

/// The first line of the examples.
macro_rules! setup {
    () => {
        "let (socket, _peer) = greenthread::os::unix::net::UnixDatagram::pair()?;"
    };
}
socket_type!(UnixDatagram(Socket), like unix::UnixDatagram, example setup!());
timeouts!(UnixDatagram, example setup!());
shutdown!(UnixDatagram, example setup!());
