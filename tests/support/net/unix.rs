// What Unix sockets must do, of std and of greenthread alike: included twice, with `net` and
// `thread` of either. So std itself says whether the test is right.

use crate::common::{both, not_early, timed, wait_until, watchdog};
use net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// A name that nobody has, for a socket's file; the file is removed at the end.
struct Name(PathBuf);

impl Name {
    fn new() -> Name {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let module = module_path!().replace("::", "-");
        let name = format!("{module}-{}-{number}", std::process::id());
        Name(std::env::temp_dir().join(name))
    }

    fn abstractly(&self) -> SocketAddr {
        SocketAddr::from_abstract_name(self.0.as_os_str().as_encoded_bytes()).unwrap()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// Time in which a thread that can block will most likely have blocked. Nothing depends on it.
fn let_it_block() {
    thread::sleep(Duration::from_millis(5));
}

#[test]
fn by_path_and_by_name() {
    let _w = watchdog("by_path_and_by_name");
    both(|| {
        let name = Name::new();
        assert_eq!(kind(UnixStream::connect(&name.0)), ErrorKind::NotFound);
        let by_path = UnixListener::bind(&name.0).unwrap();
        assert_eq!(kind(UnixListener::bind(&name.0)), ErrorKind::AddrInUse);
        let by_name = UnixListener::bind_addr(&name.abstractly()).unwrap();
        for listener in [by_path, by_name] {
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                for stream in (&listener).into_iter().take(3) {
                    let mut stream = stream.unwrap();
                    let mut word = [0; 4];
                    stream.read_exact(&mut word).unwrap();
                    stream.write_all(&word).unwrap();
                }
                let (stream, peer) = listener.accept().unwrap();
                assert!(peer.is_unnamed() && stream.peer_addr().unwrap().is_unnamed());
                listener.incoming().size_hint().1
            });
            for _ in 0..3 {
                let mut client = UnixStream::connect_addr(&address).unwrap();
                assert_eq!(
                    format!("{:?}", client.peer_addr().unwrap()),
                    format!("{address:?}")
                );
                client.write_all(b"ping").unwrap();
                let mut text = String::new();
                client.read_to_string(&mut text).unwrap();
                assert_eq!(text, "ping");
            }
            let _client = UnixStream::connect_addr(&address).unwrap();
            server.join().unwrap();
        }
        let long = "x".repeat(200);
        assert_eq!(kind(UnixListener::bind(&long)), ErrorKind::InvalidInput);
        assert_eq!(kind(UnixStream::connect(&long)), ErrorKind::InvalidInput);
        assert_eq!(kind(UnixStream::connect("a\0b")), ErrorKind::InvalidInput);
    });
}

#[test]
fn each_connection_goes_to_one_acceptor() {
    let _w = watchdog("each_connection_goes_to_one_acceptor");
    both(|| {
        const CONNECTIONS: usize = 300;
        let name = Name::new();
        let listener = Arc::new(UnixListener::bind(&name.0).unwrap());
        let tickets = Arc::new(AtomicUsize::new(0));
        let acceptors: Vec<_> = (0..6)
            .map(|_| {
                let (listener, tickets) = (listener.clone(), tickets.clone());
                thread::spawn(move || {
                    while tickets.fetch_add(1, Relaxed) < CONNECTIONS {
                        let mut stream = listener.accept().unwrap().0;
                        let mut number = [0; 4];
                        stream.read_exact(&mut number).unwrap();
                        stream.write_all(&number).unwrap();
                    }
                })
            })
            .collect();
        for number in 0..CONNECTIONS as u32 {
            let mut client = UnixStream::connect(&name.0).unwrap();
            client.write_all(&number.to_le_bytes()).unwrap();
            let mut reply = [0; 4];
            client.read_exact(&mut reply).unwrap();
            assert_eq!(u32::from_le_bytes(reply), number);
        }
        acceptors
            .into_iter()
            .for_each(|acceptor| acceptor.join().unwrap());
    });
}

#[test]
fn a_full_queue_makes_connecting_wait() {
    let _w = watchdog("a_full_queue_makes_connecting_wait");
    both(|| {
        let name = Name::new();
        let listener = UnixListener::bind(&name.0).unwrap();
        socket2::SockRef::from(&listener).listen(1).unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let path = name.0.clone();
                thread::spawn(move || UnixStream::connect(path).map(drop))
            })
            .collect();
        let_it_block();
        for _ in 0..8 {
            listener.accept().unwrap();
        }
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap().unwrap());
    });
}

#[test]
fn streams() {
    let _w = watchdog("streams");
    both(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let parts = [IoSlice::new(b"one"), IoSlice::new(b"three")];
        assert_eq!(one.write_vectored(&parts).unwrap(), 8);
        let (mut a, mut b) = ([0; 2], [0; 6]);
        let mut buffers = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(other.read_vectored(&mut buffers).unwrap(), 8);
        assert_eq!((&a, &b), (b"on", b"ethree"));
        // More than any buffer, both ways.
        let halves = [one, other].map(|stream| {
            let stream = Arc::new(stream);
            let theirs = stream.clone();
            let writer = thread::spawn(move || {
                (&*theirs).write_all(&vec![7; 4 << 20]).unwrap();
                theirs.shutdown(Shutdown::Write).unwrap();
                assert_eq!(kind((&*theirs).write(&[0])), ErrorKind::BrokenPipe);
            });
            let mut data = Vec::new();
            let reader = thread::spawn(move || (&*stream).read_to_end(&mut data).unwrap());
            (writer, reader)
        });
        for (writer, reader) in halves {
            writer.join().unwrap();
            assert_eq!(reader.join().unwrap(), 4 << 20);
        }
    });
}

#[test]
fn shutdown_wakes_those_who_wait() {
    let _w = watchdog("shutdown_wakes_those_who_wait");
    both(|| {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = Arc::new(one);
        let theirs = one.clone();
        let reader = thread::spawn(move || (&*theirs).read(&mut [0]).unwrap());
        let theirs = one.clone();
        let writer = thread::spawn(move || kind((&*theirs).write_all(&vec![0; 64 << 20])));
        let_it_block();
        one.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);

        let (one, _other) = UnixDatagram::pair().unwrap();
        let one = Arc::new(one);
        let theirs = one.clone();
        let reader = thread::spawn(move || theirs.recv(&mut [0]).unwrap());
        let_it_block();
        one.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
    });
}

#[test]
fn datagrams_and_where_they_come_from() {
    let _w = watchdog("datagrams_and_where_they_come_from");
    both(|| {
        let (server_name, client_name) = (Name::new(), Name::new());
        let server = UnixDatagram::bind(&server_name.0).unwrap();
        let bound = UnixDatagram::bind(&client_name.0).unwrap();
        let named = UnixDatagram::bind_addr(&client_name.abstractly()).unwrap();
        let unbound = UnixDatagram::unbound().unwrap();
        let to = server.local_addr().unwrap();
        let expected: Vec<_> = [&bound, &named, &unbound]
            .map(|socket| format!("{:?}", socket.local_addr().unwrap()))
            .into();
        let receiver = thread::spawn(move || {
            let mut buffer = [0; 8];
            for expected in expected {
                let (count, from) = server.recv_from(&mut buffer).unwrap();
                assert_eq!(
                    (&buffer[..count], format!("{from:?}")),
                    (&b"ping"[..], expected)
                );
            }
            assert_eq!(server.recv(&mut buffer[..2]).unwrap(), 2);
            assert_eq!(server.recv(&mut buffer).unwrap(), 0);
        });
        let_it_block();
        assert_eq!(bound.send_to(b"ping", &server_name.0).unwrap(), 4);
        assert_eq!(named.send_to_addr(b"ping", &to).unwrap(), 4);
        assert_eq!(unbound.send_to(b"ping", &server_name.0).unwrap(), 4);
        assert_eq!(kind(unbound.send(b"whereto")), ErrorKind::NotConnected);
        unbound.connect(&server_name.0).unwrap();
        assert_eq!(
            unbound.peer_addr().unwrap().as_pathname(),
            Some(&*server_name.0)
        );
        assert_eq!(unbound.send(b"four").unwrap(), 4);
        bound.connect_addr(&to).unwrap();
        assert_eq!(bound.send(b"").unwrap(), 0);
        receiver.join().unwrap();
        assert_eq!(kind(unbound.send(b"gone")), ErrorKind::ConnectionRefused);
        assert_eq!(kind(unbound.send_to(b"", "/no/such")), ErrorKind::NotFound);
    });
}

#[test]
fn a_full_receiver_makes_senders_wait() {
    let _w = watchdog("a_full_receiver_makes_senders_wait");
    both(|| {
        let name = Name::new();
        let server = UnixDatagram::bind(&name.0).unwrap();
        let time = Duration::from_millis(20);
        let (unconnected, connected) = (
            UnixDatagram::unbound().unwrap(),
            UnixDatagram::unbound().unwrap(),
        );
        connected.connect(&name.0).unwrap();
        unconnected.set_write_timeout(Some(time)).unwrap();
        connected.set_write_timeout(Some(time)).unwrap();
        let mut queued = 0;
        let mut full = false;
        while !full {
            match connected.send(b"x") {
                Ok(_) => queued += 1,
                Err(error) => full = error.kind() != ErrorKind::Interrupted,
            }
        }
        for send in [
            &mut || connected.send(b"x") as io::Result<usize>,
            &mut || unconnected.send_to(b"x", &name.0),
        ] as [&mut dyn FnMut() -> io::Result<usize>; 2]
        {
            let before = Instant::now();
            assert_eq!(timed(send), ErrorKind::WouldBlock);
            not_early(before, time);
        }
        unconnected.set_nonblocking(true).unwrap();
        assert_eq!(
            kind(unconnected.send_to(b"x", &name.0)),
            ErrorKind::WouldBlock
        );
        unconnected.set_nonblocking(false).unwrap();
        unconnected.set_write_timeout(None).unwrap();
        connected.set_write_timeout(None).unwrap();
        let path = name.0.clone();
        let senders = [
            thread::spawn(move || {
                (0..50).for_each(|_| assert_eq!(connected.send(b"x").unwrap(), 1))
            }),
            thread::spawn(move || {
                (0..50).for_each(|_| assert_eq!(unconnected.send_to(b"x", &path).unwrap(), 1))
            }),
        ];
        let_it_block();
        for _ in 0..queued + 100 {
            assert_eq!(server.recv(&mut [0; 8]).unwrap(), 1);
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn time_outs_modes_and_clones() {
    let _w = watchdog("time_outs_modes_and_clones");
    both(|| {
        let time = Duration::from_millis(20);
        let (mut one, _other) = UnixStream::pair().unwrap();
        assert_eq!(
            kind(one.set_read_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        one.try_clone()
            .unwrap()
            .set_read_timeout(Some(time))
            .unwrap();
        assert_eq!(one.read_timeout().unwrap(), Some(time));
        let before = Instant::now();
        assert_eq!(timed(|| one.read(&mut [0])), ErrorKind::WouldBlock);
        not_early(before, time);
        one.set_write_timeout(Some(time)).unwrap();
        let block = vec![0; 1 << 20];
        wait_until(|| match one.write(&block) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        let clone = one.try_clone().unwrap();
        clone.set_read_timeout(None).unwrap();
        clone.set_nonblocking(true).unwrap();
        assert_eq!(timed(|| one.read(&mut [0])), ErrorKind::WouldBlock);

        let (one, other) = UnixDatagram::pair().unwrap();
        one.set_read_timeout(Some(time)).unwrap();
        let before = Instant::now();
        assert_eq!(timed(|| one.recv(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(timed(|| one.recv_from(&mut [0])), ErrorKind::WouldBlock);
        not_early(before, 2 * time);
        other.send(b"now").unwrap();
        assert_eq!(one.try_clone().unwrap().recv(&mut [0; 8]).unwrap(), 3);

        let listener = UnixListener::bind_addr(&Name::new().abstractly()).unwrap();
        listener.try_clone().unwrap().set_nonblocking(true).unwrap();
        assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
        assert!(listener.take_error().unwrap().is_none());
        assert!(one.take_error().unwrap().is_none() && clone.take_error().unwrap().is_none());
        assert!(format!("{clone:?}").starts_with("UnixStream { fd: "));
        assert!(format!("{one:?}").starts_with("UnixDatagram"));
        assert!(format!("{listener:?}").starts_with("UnixListener { fd: "));
    });
}
