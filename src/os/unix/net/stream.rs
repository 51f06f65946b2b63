//! [`UnixStream`], like std's type, built on a [`Socket`].

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net as unix;
use std::path::Path;
use std::time::Duration;

use super::SocketAddr;
use crate::net::macros::{shutdown, socket_type, stream, timeouts};
use crate::net::socket::Socket;

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
        Self::connect_with(|| unix::UnixStream::connect(path))
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
        Self::connect_with(|| unix::UnixStream::connect_addr(socket_addr))
    }

    /// Connects with a call that may block its kernel thread. It seldom has to wait, but does when
    /// the listener's queue is full; then there is no readiness to wait for.
    fn connect_with(
        connect: impl FnOnce() -> io::Result<unix::UnixStream>,
    ) -> io::Result<UnixStream> {
        let stream = crate::thread::blocking(connect)?;
        Ok(UnixStream(Socket::fresh(stream.into())))
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
        let fresh = |stream: unix::UnixStream| UnixStream(Socket::fresh(stream.into()));
        Ok((fresh(one), fresh(other)))
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

/// The first line of the examples.
macro_rules! setup {
    () => {
        "let (socket, _peer) = greenthread::os::unix::net::UnixStream::pair()?;"
    };
}
socket_type!(UnixStream(Socket), like unix::UnixStream, example setup!());
timeouts!(UnixStream, example setup!());
shutdown!(UnixStream, example setup!());
stream!(UnixStream);
