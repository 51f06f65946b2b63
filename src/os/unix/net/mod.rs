//! Unix domain sockets with [`std::os::unix::net`]'s types and methods, blocking only the calling
//! thread.
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
//!
//! Beyond std: each socket has a `close`, which ends the calls of all threads that wait for it.

mod datagram;
mod listener;
mod stream;

use std::io;
use std::os::linux::net::SocketAddrExt;

use socket2::SockAddr;

pub use std::os::unix::net::SocketAddr;

pub use self::datagram::UnixDatagram;
pub use self::listener::{Incoming, UnixListener};
pub use self::stream::UnixStream;

/// Two streams that are connected to each other, as `socketpair(2)` makes them;
/// [`UnixStream::pair`].
///
/// # Errors
/// There are no more descriptors.
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

/// The address of a peer, as std's.
fn unix_address(address: &SockAddr) -> io::Result<SocketAddr> {
    if let Some(name) = address.as_abstract_namespace() {
        return SocketAddr::from_abstract_name(name);
    }
    // Without a name, as an unbound peer is, the path is empty.
    SocketAddr::from_pathname(address.as_pathname().unwrap_or("".as_ref()))
}
