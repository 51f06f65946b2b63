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
    // An unbound peer has no name: an empty path.
    SocketAddr::from_pathname(address.as_pathname().unwrap_or("".as_ref()))
}
