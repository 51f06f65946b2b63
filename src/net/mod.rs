//! TCP and UDP, with the API of [`std::net`]; a call that waits blocks only the calling thread.
//!
//! A program that uses `std::net` needs to change only its imports. It can have a green thread for
//! each connection, however many connections there are.
//!
//! Addresses, [`Shutdown`] and [`ToSocketAddrs`] are std's own. The C library resolves names, in a
//! call of [`blocking`](crate::blocking), so that other threads run meanwhile.
//!
//! Beyond std, each socket has a method `close`, which ends the calls of all threads that wait for
//! it. (On platforms without green threads, only [`TcpListener`] has it.)
//!
//! # Examples
//!
//! ```
//! use greenthread::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write, copy};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! greenthread::spawn(move || {
//!     for stream in listener.incoming() {
//!         greenthread::spawn(move || {
//!             let stream = stream.expect("a connection");
//!             copy(&mut &stream, &mut &stream) // an echo
//!         });
//!     }
//! });
//!
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"hello")?;
//! let mut reply = [0; 5];
//! client.read_exact(&mut reply)?;
//! assert_eq!(&reply, b"hello");
//! # Ok::<(), std::io::Error>(())
//! ```

pub(crate) mod listener;
pub(crate) mod socket;
mod tcp_listener;
mod tcp_stream;
mod udp;

use std::io;

pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};

pub use self::tcp_listener::{Incoming, TcpListener};
pub use self::tcp_stream::TcpStream;
pub use self::udp::UdpSocket;

/// Returns the address of a peer as std's type.
fn internet_address(address: &socket2::SockAddr) -> io::Result<SocketAddr> {
    let wrong = || invalid("not an internet address");
    address.as_socket().ok_or_else(wrong)
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
