//! [`UnixListener`], like std's type, built on a [`Listener`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net as unix;
use std::path::Path;

use super::{SocketAddr, UnixStream, unix_address};
use crate::net::listener::Listener;
use crate::net::macros::socket_type;

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
pub struct UnixListener(Listener);

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

/// The first lines of the examples.
macro_rules! setup {
    () => {
        r#"# use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
# let (process, thread) = (std::process::id(), std::thread::current().id());
# let address = SocketAddr::from_abstract_name(format!("example-{process}-{thread:?}"))?;
let socket = greenthread::os::unix::net::UnixListener::bind_addr(&address)?;"#
    };
}
socket_type!(UnixListener(Listener), like unix::UnixListener, example setup!());

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;

    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

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
#[derive(Debug)]
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        let answer = self.listener.accept().map(|(stream, _)| stream);
        self.listener.0.unless_ended(answer)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, None)
    }
}
