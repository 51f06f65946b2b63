//! Linux extensions of [`net`](crate::net), like [`std::os::linux::net`].

use std::io;

use socket2::SockRef;

use crate::net::TcpStream;

pub use std::os::linux::net::SocketAddrExt;

/// Options of TCP connections on Linux, like the trait of this name in [`std::os::linux::net`].
///
/// # Examples
///
/// ```
/// use greenthread::net::{TcpListener, TcpStream};
/// use greenthread::os::linux::net::TcpStreamExt;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// stream.set_quickack(false)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait TcpStreamExt: crate::os::sealed::Sealed {
    /// Sets whether acknowledgements are sent at once, instead of together with the next data
    /// (`TCP_QUICKACK`).
    ///
    /// The kernel itself also changes the option while the connection is in use.
    ///
    /// # Errors
    ///
    /// Returns the errors of `setsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    /// use greenthread::os::linux::net::TcpStreamExt;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_quickack(true)?;
    /// assert!(stream.quickack()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn set_quickack(&self, quickack: bool) -> io::Result<()>;

    /// Returns whether acknowledgements are sent at once; see
    /// [`set_quickack`](TcpStreamExt::set_quickack).
    ///
    /// # Errors
    ///
    /// Returns the errors of `getsockopt(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::net::{TcpListener, TcpStream};
    /// use greenthread::os::linux::net::TcpStreamExt;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// println!("{}", stream.quickack()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn quickack(&self) -> io::Result<bool>;
}

impl TcpStreamExt for TcpStream {
    fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_quickack(quickack)
    }

    fn quickack(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_quickack()
    }
}
