//! The types have the traits of std's: this file compiles.

#![cfg(feature = "net")]

use greenthread::net::{self, TcpStream, UdpSocket};
use greenthread::os::unix::net::{self as unix, UnixDatagram, UnixListener, UnixStream};
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::iter::FusedIterator;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

trait Plain: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Debug {}
impl<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Debug> Plain for T {}

trait Handle<Std>:
    Plain
    + AsFd
    + AsRawFd
    + FromRawFd
    + IntoRawFd
    + From<OwnedFd>
    + From<Std>
    + From<socket2::Socket>
    + 'static
{
}
impl<T, Std> Handle<Std> for T where
    T: Plain
        + AsFd
        + AsRawFd
        + FromRawFd
        + IntoRawFd
        + From<OwnedFd>
        + From<Std>
        + From<socket2::Socket>
        + 'static
{
}

fn handle<T: Handle<Std>, Std: Handle<Std> + From<T>>()
where
    OwnedFd: From<T>,
    socket2::Socket: From<T> + From<Std>,
{
}

fn stream<T: Read + Write>()
where
    for<'a> &'a T: Read + Write,
{
}

fn plain<T: Plain>() {}
fn items<I: Iterator<Item = io::Result<T>>, T>() {}
fn fused<I: FusedIterator>() {}
fn refs<'a, T, S: 'a>()
where
    T: 'a,
    &'a T: IntoIterator<Item = io::Result<S>>,
{
}
fn same<T>(_: fn(T) -> T) {}

#[test]
fn they_have_the_traits_of_stds() {
    #[cfg(green)]
    handle::<net::TcpListener, std::net::TcpListener>();
    handle::<TcpStream, std::net::TcpStream>();
    handle::<UdpSocket, std::net::UdpSocket>();
    handle::<UnixListener, std::os::unix::net::UnixListener>();
    handle::<UnixStream, std::os::unix::net::UnixStream>();
    handle::<UnixDatagram, std::os::unix::net::UnixDatagram>();
    stream::<TcpStream>();
    stream::<UnixStream>();
    plain::<net::Incoming<'static>>();
    plain::<unix::Incoming<'static>>();
    items::<net::Incoming<'static>, TcpStream>();
    items::<unix::Incoming<'static>, UnixStream>();
    fused::<net::Incoming<'static>>();
    refs::<UnixListener, UnixStream>();
}

#[test]
fn plain_data_is_stds() {
    same::<std::net::SocketAddr>(|a: net::SocketAddr| a);
    same::<std::net::SocketAddrV4>(|a: net::SocketAddrV4| a);
    same::<std::net::SocketAddrV6>(|a: net::SocketAddrV6| a);
    same::<std::net::IpAddr>(|a: net::IpAddr| a);
    same::<std::net::Ipv4Addr>(|a: net::Ipv4Addr| a);
    same::<std::net::Ipv6Addr>(|a: net::Ipv6Addr| a);
    same::<std::net::Shutdown>(|a: net::Shutdown| a);
    same::<std::net::AddrParseError>(|a: net::AddrParseError| a);
    same::<std::os::unix::net::SocketAddr>(|a: unix::SocketAddr| a);
}

/// Every stable method, with std's signature: the same text compiles with either import.
macro_rules! stds_methods {
    ($name:ident: $($net:ident)::+, $($unix:ident)::+) => {
        #[allow(dead_code, deprecated, unused_results)]
        fn $name() -> io::Result<()> {
            use $($net)::+::*;
            use $($unix)::+::*;
            use std::time::Duration;
            let none = None::<Duration>;

            let listener = TcpListener::bind("localhost:0")?;
            let _: SocketAddrOf = listener.local_addr()?;
            let _: TcpListener = listener.try_clone()?;
            let (stream, _): (TcpStream, SocketAddrOf) = listener.accept()?;
            let _: Option<io::Result<TcpStream>> = listener.incoming().next();
            let () = listener.set_ttl(1_u32)?;
            let _: u32 = listener.ttl()?;
            let () = listener.set_only_v6(true)?;
            let _: bool = listener.only_v6()?;
            let _: Option<io::Error> = listener.take_error()?;
            let () = listener.set_nonblocking(true)?;

            let _: TcpStream = TcpStream::connect(("localhost", 0))?;
            let _: TcpStream = TcpStream::connect(&[listener.local_addr()?][..])?;
            let _ = TcpStream::connect_timeout(&listener.local_addr()?, Duration::ZERO)?;
            let _: (SocketAddrOf, SocketAddrOf) = (stream.peer_addr()?, stream.local_addr()?);
            let () = stream.shutdown(Shutdown::Both)?;
            let _: TcpStream = stream.try_clone()?;
            let () = stream.set_read_timeout(none)?;
            let () = stream.set_write_timeout(none)?;
            let _ = (stream.read_timeout()? == none, stream.write_timeout()? == none);
            let _: usize = stream.peek(&mut [0_u8])?;
            let () = stream.set_nodelay(true)?;
            let _: bool = stream.nodelay()?;
            let () = stream.set_ttl(1_u32)?;
            let _: u32 = stream.ttl()?;
            let _: Option<io::Error> = stream.take_error()?;
            let () = stream.set_nonblocking(true)?;

            let socket = UdpSocket::bind("localhost:0")?;
            let _: (usize, SocketAddrOf) = socket.recv_from(&mut [0])?;
            let _: (usize, SocketAddrOf) = socket.peek_from(&mut [0])?;
            let _: usize = socket.send_to(&[0], "localhost:0")?;
            let _: (SocketAddrOf, SocketAddrOf) = (socket.peer_addr()?, socket.local_addr()?);
            let _: UdpSocket = socket.try_clone()?;
            let () = socket.set_read_timeout(none)?;
            let () = socket.set_write_timeout(none)?;
            let _ = (socket.read_timeout()? == none, socket.write_timeout()? == none);
            let () = socket.set_broadcast(socket.broadcast()?)?;
            let () = socket.set_multicast_loop_v4(socket.multicast_loop_v4()?)?;
            let () = socket.set_multicast_ttl_v4(socket.multicast_ttl_v4()?)?;
            let () = socket.set_multicast_loop_v6(socket.multicast_loop_v6()?)?;
            let () = socket.set_ttl(socket.ttl()?)?;
            let (four, six) = (&Ipv4Addr::LOCALHOST, &Ipv6Addr::LOCALHOST);
            let () = socket.join_multicast_v4(four, four)?;
            let () = socket.join_multicast_v6(six, 0_u32)?;
            let () = socket.leave_multicast_v4(four, four)?;
            let () = socket.leave_multicast_v6(six, 0_u32)?;
            let _: Option<io::Error> = socket.take_error()?;
            let () = socket.connect("localhost:0")?;
            let _: (usize, usize) = (socket.send(&[0])?, socket.recv(&mut [0])?);
            let _: usize = socket.peek(&mut [0])?;
            let () = socket.set_nonblocking(true)?;

            let listener = UnixListener::bind("path")?;
            let address: UnixAddrOf = listener.local_addr()?;
            let _: UnixListener = UnixListener::bind_addr(&address)?;
            let (stream, _): (UnixStream, UnixAddrOf) = listener.accept()?;
            let _: UnixListener = listener.try_clone()?;
            let () = listener.set_nonblocking(true)?;
            let _: Option<io::Error> = listener.take_error()?;
            let _: Option<io::Result<UnixStream>> = listener.incoming().next();
            let _: Option<io::Result<UnixStream>> = (&listener).into_iter().next();

            let _: UnixStream = UnixStream::connect("path")?;
            let _: UnixStream = UnixStream::connect_addr(&address)?;
            let _: (UnixStream, UnixStream) = UnixStream::pair()?;
            let _: UnixStream = stream.try_clone()?;
            let _: (UnixAddrOf, UnixAddrOf) = (stream.local_addr()?, stream.peer_addr()?);
            let () = stream.set_read_timeout(none)?;
            let () = stream.set_write_timeout(none)?;
            let _ = (stream.read_timeout()? == none, stream.write_timeout()? == none);
            let () = stream.set_nonblocking(true)?;
            let _: Option<io::Error> = stream.take_error()?;
            let () = stream.shutdown(Shutdown::Both)?;

            let socket = UnixDatagram::bind("path")?;
            let _: UnixDatagram = UnixDatagram::bind_addr(&address)?;
            let _: UnixDatagram = UnixDatagram::unbound()?;
            let _: (UnixDatagram, UnixDatagram) = UnixDatagram::pair()?;
            let () = socket.connect("path")?;
            let () = socket.connect_addr(&address)?;
            let _: UnixDatagram = socket.try_clone()?;
            let _: (UnixAddrOf, UnixAddrOf) = (socket.local_addr()?, socket.peer_addr()?);
            let _: (usize, UnixAddrOf) = socket.recv_from(&mut [0])?;
            let _: usize = socket.recv(&mut [0])?;
            let _: usize = socket.send_to(&[0], "path")?;
            let _: usize = socket.send_to_addr(&[0], &address)?;
            let _: usize = socket.send(&[0])?;
            let () = socket.set_read_timeout(none)?;
            let () = socket.set_write_timeout(none)?;
            let _ = (socket.read_timeout()? == none, socket.write_timeout()? == none);
            let () = socket.set_nonblocking(true)?;
            let _: Option<io::Error> = socket.take_error()?;
            let () = socket.shutdown(Shutdown::Both)?;
            Ok(())
        }
    };
}

type SocketAddrOf = std::net::SocketAddr;
type UnixAddrOf = std::os::unix::net::SocketAddr;
mod std_net {
    pub use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
}
mod std_unix {
    pub use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
}
mod green_net {
    pub use greenthread::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
}
mod green_unix {
    pub use greenthread::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
}
stds_methods!(in_std: self::std_net, self::std_unix);
stds_methods!(in_greenthread: self::green_net, self::green_unix);
