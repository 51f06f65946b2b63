// Descriptors that others share, and writes that block: of std and of greenthread alike; included
// twice, as `tcp.rs` is.

use crate::common::{both, wait_until, watchdog};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Whether the open file description is in non-blocking mode: what all who share it see.
fn is_nonblocking(socket: &impl AsFd) -> bool {
    // SAFETY: a system call on an open descriptor.
    unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

fn duplicate(socket: &impl AsFd) -> OwnedFd {
    socket.as_fd().try_clone_to_owned().unwrap()
}

fn abstract_name() -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let (file, number) = (module_path!(), NEXT.fetch_add(1, Relaxed));
    let name = format!("{file}-{}-{number}", std::process::id());
    std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

#[test]
fn whoever_shares_a_socket_finds_it_blocking() {
    let _w = watchdog("whoever_shares_a_socket_finds_it_blocking");
    both(|| {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let clone = listener.try_clone().unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = thread::spawn(move || clone.accept().unwrap().0);
        thread::sleep(Duration::from_millis(5)); // it has most likely come to wait
        assert!(!is_nonblocking(&listener));
        let client = net::TcpStream::connect(address).unwrap();
        let server = acceptor.join().unwrap();
        let within = net::TcpStream::connect_timeout(&address, Duration::from_secs(9)).unwrap();
        let _peer = listener.accept().unwrap();
        for stream in [&client, &server, &within, &server.try_clone().unwrap()] {
            assert!(!is_nonblocking(stream));
        }

        let unix_listener = unix::UnixListener::bind_addr(&abstract_name()).unwrap();
        let address = unix_listener.local_addr().unwrap();
        let clone = unix_listener.try_clone().unwrap();
        let acceptor = thread::spawn(move || clone.accept().unwrap().0);
        thread::sleep(Duration::from_millis(5));
        assert!(!is_nonblocking(&unix_listener));
        let unix_client = unix::UnixStream::connect_addr(&address).unwrap();
        let unix_server = acceptor.join().unwrap();
        let (one, mut other) = unix::UnixStream::pair().unwrap();
        let reader = thread::spawn(move || (&one).read(&mut [0]).map(|_| one).unwrap());
        thread::sleep(Duration::from_millis(5));
        other.write_all(b"!").unwrap();
        for stream in [unix_client, unix_server, other, reader.join().unwrap()] {
            assert!(!is_nonblocking(&stream) && !is_nonblocking(&OwnedFd::from(stream)));
        }

        let udp = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (datagram, _peer) = unix::UnixDatagram::pair().unwrap();
        let at_once = Some(Duration::from_millis(1));
        udp.set_read_timeout(at_once).unwrap();
        datagram.set_read_timeout(at_once).unwrap();
        assert_eq!(udp.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(
            datagram.recv(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert!(!is_nonblocking(&udp) && !is_nonblocking(&datagram));

        // Asked for, all who share it see it.
        let shared = duplicate(&listener);
        listener.set_nonblocking(true).unwrap();
        assert!(is_nonblocking(&shared));
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        listener.set_nonblocking(false).unwrap();
        assert!(!is_nonblocking(&shared));
    });
}

/// Half of the acceptors have the listener or a clone, half a duplicate that only the kernel knows
/// of, and each connection goes to one of them. A third of the connections come while all wait.
#[test]
fn a_duplicated_listener_accepts() {
    let _w = watchdog("a_duplicated_listener_accepts");
    both(|| {
        const ACCEPTORS: usize = 6;
        const CONNECTIONS: usize = 300;
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptors: Vec<_> = (0..ACCEPTORS)
            .map(|i| {
                let clone = listener.try_clone().unwrap();
                let foreign = std::net::TcpListener::from(duplicate(&listener));
                thread::spawn(move || {
                    let mut count = 0;
                    loop {
                        let mut byte = [0];
                        match i % 2 {
                            0 => clone.accept().unwrap().0.read_exact(&mut byte).unwrap(),
                            _ => foreign.accept().unwrap().0.read_exact(&mut byte).unwrap(),
                        }
                        match byte {
                            [b'!'] => count += 1,
                            _ => return count,
                        }
                    }
                })
            })
            .collect();
        let connect = |byte: u8| {
            let mut client = net::TcpStream::connect(address).unwrap();
            client.write_all(&[byte]).unwrap();
            client
        };
        for i in 0..CONNECTIONS {
            let mut client = connect(b'!');
            if i % 3 == 0 {
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
        }
        // Each ends one.
        let _clients: Vec<_> = (0..ACCEPTORS).map(|_| connect(b'.')).collect();
        let counts = acceptors.into_iter().map(|acceptor| acceptor.join().unwrap());
        assert_eq!(counts.sum::<usize>(), CONNECTIONS);
    });
}

/// A stream whose writer has filled it, and its peer.
macro_rules! full {
    ($pair:expr) => {{
        let (mut writer, peer) = $pair;
        writer.set_nonblocking(true).unwrap();
        // What is on its way to the peer still makes room when it arrives.
        while (0..10).any(|_| {
            thread::sleep(Duration::from_millis(1));
            writer.write(&[0; 4096]).is_ok()
        }) {}
        writer.set_nonblocking(false).unwrap();
        (writer, peer)
    }};
}

/// What the calls of a writer say that finds the stream full, and is reset: `bytes` are written, and
/// then one byte, twice; then it reads.
macro_rules! answers_to_a_reset {
    ($pair:expr, $bytes:expr) => {{
        let (mut writer, peer) = $pair;
        let clone = writer.try_clone().unwrap();
        let thread = thread::spawn(move || {
            let first = writer.write(&vec![0; $bytes]).map_err(|e| e.kind());
            let mut kinds = vec![first.map(|count| count.min(1))];
            for _ in 0..2 {
                kinds.push(writer.write(b"!").map_err(|e| e.kind()));
            }
            kinds.push(writer.read(&mut [0]).map_err(|e| e.kind()));
            kinds
        });
        // Until it waits, with as much written as there is room for: more does not get in.
        let mut before = 0;
        wait_until(|| {
            thread::sleep(Duration::from_millis(10));
            let now = unsent(&clone);
            now > 0 && std::mem::replace(&mut before, now) == now
        });
        drop(peer); // with unread bytes: a reset
        thread.join().unwrap()
    }};
}

/// Bytes written that the peer has not taken.
fn unsent(socket: &impl AsFd) -> i32 {
    let mut count = 0;
    // SAFETY: writes an integer.
    unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut count) };
    count
}

fn tcp_pair() -> (net::TcpStream, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_blocked_writer_hears_of_a_reset() {
    let _w = watchdog("a_blocked_writer_hears_of_a_reset");
    both(|| {
        use ErrorKind::{BrokenPipe, ConnectionReset};
        // A writer that is not there yet when the reset comes is no proof: another one then.
        macro_rules! says {
            ($pair:expr, $bytes:expr, $expected:expr) => {
                let answers = (0..20).map(|_| answers_to_a_reset!($pair, $bytes));
                let others: Vec<_> = answers.take_while(|a| *a != $expected).collect();
                assert!(others.len() < 20, "{others:?}");
            };
        }
        // Nothing got in.
        let reset = [Err(ConnectionReset), Err(BrokenPipe), Err(BrokenPipe), Ok(0)];
        says!(full!(tcp_pair()), 100, reset);
        says!(full!(unix::UnixStream::pair().unwrap()), 100, reset);
        // A part got in: that first, and then the error.
        let partly = [Ok(1), Err(ConnectionReset), Err(BrokenPipe), Ok(0)];
        says!(tcp_pair(), 64 << 20, partly);
        let partly = [Ok(1), Err(BrokenPipe), Err(BrokenPipe), Ok(0)];
        says!(unix::UnixStream::pair().unwrap(), 64 << 20, partly);
    });
}

/// Writes pieces of uneven lengths by one call.
macro_rules! writes_all_pieces {
    ($pair:expr) => {{
        let (mut writer, mut reader) = $pair;
        let pieces: Vec<Vec<u8>> = (0..900)
            .map(|i| (0..i * 37 % 20_000).map(|j| (i + j) as u8).collect())
            .collect();
        let whole = pieces.concat();
        let length = whole.len();
        let thread = thread::spawn(move || {
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let first = writer.write_vectored(&slices).unwrap();
            (first, writer.write(&whole).unwrap(), whole)
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        let (first, second, whole) = thread.join().unwrap();
        assert_eq!((first, second), (length, length));
        assert!(read == [&whole[..], &whole[..]].concat());
    }};
}

#[test]
fn a_blocking_write_takes_all() {
    let _w = watchdog("a_blocking_write_takes_all");
    both(|| {
        writes_all_pieces!(tcp_pair());
        writes_all_pieces!(unix::UnixStream::pair().unwrap());
    });
}
