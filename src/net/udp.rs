//! [`UdpSocket`], like std's type, built on a [`Socket`].

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use std::{fmt, io};

use super::socket::{Socket, options, socket_type};
use super::{internet_address, invalid};
use crate::engine::facade::{blocking, unless_in_frame};

/// A UDP socket, like [`std::net::UdpSocket`]; it blocks only the calling thread.
///
/// # Examples
///
/// ```
/// use greenthread::net::UdpSocket;
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.send_to(b"ping", server.local_addr()?)?;
///
/// let mut buffer = [0; 64];
/// let (count, sender) = server.recv_from(&mut buffer)?;
/// assert_eq!((&buffer[..count], sender), (&b"ping"[..], client.local_addr()?));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Socket);

impl UdpSocket {
    /// Creates a socket bound to the first of the addresses that is available.
    ///
    /// With port 0 the system chooses a port.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address, or of resolving the name; returns
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let socket = unless_in_frame(blocking, || std::net::UdpSocket::bind(addr))?;
        Ok(UdpSocket(Socket::fresh(socket.into())))
    }

    /// Receives a datagram, and returns its length and the sender's address.
    ///
    /// If the datagram does not fit into the buffer, the rest of it is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of `recvfrom(2)`; some of them concern a datagram that was sent earlier.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let address = socket.local_addr()?;
    /// socket.send_to(b"to myself", address)?;
    /// assert_eq!(socket.recv_from(&mut [0; 64])?, (9, address));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (count, address) = self.0.recv_from(buf, 0)?;
        Ok((count, internet_address(&address)?))
    }

    /// Receives a datagram like [`recv_from`](UdpSocket::recv_from), but leaves it in the queue:
    /// the next call returns it again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`recv_from`](UdpSocket::recv_from).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.send_to(b"to myself", socket.local_addr()?)?;
    /// assert_eq!(socket.peek_from(&mut [0; 64])?, socket.recv_from(&mut [0; 64])?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (count, address) = self.0.recv_from(buf, libc::MSG_PEEK)?;
        Ok((count, internet_address(&address)?))
    }

    /// Sends a datagram to the first of the addresses.
    ///
    /// # Errors
    ///
    /// Returns the errors of `sendto(2)` and of resolving the name; returns
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.send_to(b"to myself", socket.local_addr()?)?, 9);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        match unless_in_frame(blocking, || addr.to_socket_addrs())?.next() {
            Some(address) => self.0.send_to(buf, &address.into()),
            None => Err(invalid("no addresses to send data to")),
        }
    }

    /// Connects the socket to its peer: the first of the addresses that works.
    ///
    /// [`send`](UdpSocket::send) then sends to the peer, and the socket receives from no other
    /// address.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address, or of resolving the name; returns
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    ///
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// one.send(b"ping")?;
    /// assert_eq!(other.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        unless_in_frame(blocking, || self.std().connect(addr))
    }

    /// Returns the address of the peer that [`connect`](UdpSocket::connect) has set.
    ///
    /// # Errors
    ///
    /// Returns [`NotConnected`](io::ErrorKind::NotConnected) if there is no peer.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::UdpSocket;
    /// use std::io::ErrorKind;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// Sends a datagram to the peer; see [`connect`](UdpSocket::connect).
    ///
    /// # Errors
    ///
    /// Returns the errors of `send(2)`; one of them says that an earlier datagram was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::net::UdpSocket;
    /// # let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// assert_eq!(one.send(b"ping")?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(buf)
    }

    /// Receives a datagram and returns its length; a connected socket receives only from its peer.
    ///
    /// If the datagram does not fit into the buffer, the rest of it is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of `recv(2)`; one of them says that an earlier datagram was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::net::UdpSocket;
    /// # let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// other.send_to(b"ping", one.local_addr()?)?;
    /// assert_eq!(one.recv(&mut [0; 64])?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, 0)
    }

    /// Receives a datagram like [`recv`](UdpSocket::recv), but leaves it in the queue: the next
    /// call returns it again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`recv`](UdpSocket::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// # use greenthread::net::UdpSocket;
    /// # let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// other.send_to(b"ping", one.local_addr()?)?;
    /// assert_eq!(one.peek(&mut [0; 64])?, one.recv(&mut [0; 64])?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buf, libc::MSG_PEEK)
    }

    /// Joins a multicast group on the interface with the address `interface`, or on an interface
    /// that the system chooses if the address is unspecified.
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::net::{Ipv4Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("0.0.0.0:7000")?;
    /// socket.join_multicast_v4(&Ipv4Addr::new(239, 0, 0, 1), &Ipv4Addr::UNSPECIFIED)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.std().join_multicast_v4(multiaddr, interface)
    }

    /// Joins a multicast group on the interface with the index `interface`, or on an interface that
    /// the system chooses if the index is 0.
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::net::{Ipv6Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("[::]:7000")?;
    /// socket.join_multicast_v6(&Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x123), 0)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.std().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a multicast group; see [`join_multicast_v4`](UdpSocket::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::net::{Ipv4Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("0.0.0.0:7000")?;
    /// let group = Ipv4Addr::new(239, 0, 0, 1);
    /// socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// socket.leave_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.std().leave_multicast_v4(multiaddr, interface)
    }

    /// Leaves a multicast group; see [`join_multicast_v6`](UdpSocket::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::net::{Ipv6Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("[::]:7000")?;
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x123);
    /// socket.join_multicast_v6(&group, 0)?;
    /// socket.leave_multicast_v6(&group, 0)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.std().leave_multicast_v6(multiaddr, interface)
    }
}

socket_type! {
    UdpSocket, like std::net::UdpSocket,
    example r#"let socket = greenthread::net::UdpSocket::bind("127.0.0.1:0")?;"#;
    timeouts
    options {
        /// Sets the time to live of packets from this socket (`IP_TTL`).
        ttl, set_ttl: u32 = 100;
        /// Sets whether the socket may send to broadcast addresses (`SO_BROADCAST`).
        broadcast, set_broadcast: bool = true;
        /// Sets whether members on this host receive the packets that the socket sends to a group
        /// (`IP_MULTICAST_LOOP`).
        multicast_loop_v4, set_multicast_loop_v4: bool = false;
        /// Sets the time to live of packets that are sent to a group (`IP_MULTICAST_TTL`).
        multicast_ttl_v4, set_multicast_ttl_v4: u32 = 2;
    }
}
options! {
    UdpSocket, example r#"let socket = greenthread::net::UdpSocket::bind("[::1]:0")?;"#;
    /// Sets whether members on this host receive the packets that the socket sends to a group
    /// (`IPV6_MULTICAST_LOOP`).
    multicast_loop_v6, set_multicast_loop_v6: bool = false;
}
