// What UDP must do, of std and of greenthread alike: included twice, with `net` and `thread` of
// either. So std itself says whether the test is right.

use crate::common::{both, not_early, timed, wait_until, watchdog};
use net::UdpSocket;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Two sockets that are connected to each other.
fn pair() -> (UdpSocket, UdpSocket) {
    let (one, other) = (socket(), socket());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// Time in which a thread that can block will most likely have blocked. Nothing depends on it.
fn let_it_block() {
    thread::sleep(Duration::from_millis(5));
}

#[test]
fn datagrams_and_where_they_come_from() {
    let _w = watchdog("datagrams_and_where_they_come_from");
    both(|| {
        let (client, server) = (socket(), socket());
        let (from, to) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let receiver = thread::spawn(move || {
            let mut buffer = [0; 8];
            assert_eq!(server.peek_from(&mut buffer).unwrap(), (3, from));
            assert_eq!(server.peek_from(&mut buffer[..1]).unwrap(), (1, from));
            assert_eq!(server.recv_from(&mut buffer).unwrap(), (3, from));
            assert_eq!(&buffer[..3], b"one");
            assert_eq!(server.recv_from(&mut buffer).unwrap(), (0, from));
            // What does not fit is lost.
            assert_eq!(server.recv_from(&mut buffer[..4]).unwrap(), (4, from));
            assert_eq!(&buffer[..4], b"long");
            assert_eq!(server.recv(&mut buffer).unwrap(), 4);
            assert_eq!(&buffer[..4], b"last");
        });
        let_it_block();
        assert_eq!(client.send_to(b"one", to).unwrap(), 3);
        assert_eq!(client.send_to(b"", to).unwrap(), 0);
        assert_eq!(
            client
                .send_to(b"long one", ("localhost", to.port()))
                .unwrap(),
            8
        );
        assert_eq!(client.send_to(b"last", &[to, from][..]).unwrap(), 4);
        receiver.join().unwrap();
        let none: &[std::net::SocketAddr] = &[];
        assert_eq!(kind(client.send_to(b"", none)), ErrorKind::InvalidInput);
        assert_eq!(kind(UdpSocket::bind(none)), ErrorKind::InvalidInput);
        assert_eq!(kind(client.connect(none)), ErrorKind::InvalidInput);
        let huge = vec![0; 1 << 16];
        let error = client.send_to(&huge, to).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    });
}

#[test]
fn connected() {
    let _w = watchdog("connected");
    both(|| {
        let (one, other) = (socket(), socket());
        assert_eq!(kind(one.peer_addr()), ErrorKind::NotConnected);
        assert!(one.send(b"whereto").is_err());
        one.connect(other.local_addr().unwrap()).unwrap();
        assert_eq!(one.peer_addr().unwrap(), other.local_addr().unwrap());
        assert_eq!(one.send(b"ping").unwrap(), 4);
        let mut buffer = [0; 8];
        assert_eq!(other.peek(&mut buffer).unwrap(), 4);
        assert_eq!(other.recv(&mut buffer).unwrap(), 4);
        // Only the peer's datagrams arrive.
        socket()
            .send_to(b"stranger", one.local_addr().unwrap())
            .unwrap();
        other.send_to(b"pong!", one.local_addr().unwrap()).unwrap();
        assert_eq!(one.recv(&mut buffer).unwrap(), 5);
        // Nobody there: a later call says so, and takes the error.
        drop(other);
        let receiver = thread::spawn(move || {
            one.send(b"anybody").unwrap();
            kind(one.recv(&mut [0; 8]))
        });
        assert_eq!(receiver.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn six() {
    let _w = watchdog("six");
    both(|| {
        // Not everywhere.
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            return;
        };
        let address = socket.local_addr().unwrap();
        socket.send_to(b"myself", address).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 8]).unwrap(), (6, address));
        socket.set_multicast_loop_v6(false).unwrap();
        assert!(!socket.multicast_loop_v6().unwrap());
    });
}

#[test]
fn time_outs() {
    let _w = watchdog("time_outs");
    both(|| {
        let (one, other) = pair();
        assert_eq!(
            kind(one.set_read_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            kind(one.set_write_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        let time = Duration::from_millis(20);
        one.set_read_timeout(Some(time)).unwrap();
        one.set_write_timeout(Some(time)).unwrap();
        assert_eq!(one.read_timeout().unwrap(), Some(time));
        assert_eq!(one.write_timeout().unwrap(), Some(time));
        let calls: [fn(&UdpSocket) -> ErrorKind; 4] = [
            |socket| timed(|| socket.recv(&mut [0])),
            |socket| timed(|| socket.recv_from(&mut [0])),
            |socket| timed(|| socket.peek(&mut [0])),
            |socket| timed(|| socket.peek_from(&mut [0])),
        ];
        for call in calls {
            let before = Instant::now();
            assert_eq!(call(&one), ErrorKind::WouldBlock);
            not_early(before, time);
        }
        other.send(b"now").unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap(), 3);
        one.set_read_timeout(None).unwrap();
        assert_eq!(one.read_timeout().unwrap(), None);
        let receiver = thread::spawn(move || one.recv(&mut [0; 8]).unwrap());
        thread::sleep(2 * time);
        other.send(b"late").unwrap();
        assert_eq!(receiver.join().unwrap(), 4);
    });
}

#[test]
fn non_blocking_and_clones() {
    let _w = watchdog("non_blocking_and_clones");
    both(|| {
        let (one, other) = pair();
        let clone = one.try_clone().unwrap();
        clone.set_nonblocking(true).unwrap();
        assert_eq!(kind(one.recv(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(kind(clone.recv_from(&mut [0])), ErrorKind::WouldBlock);
        other.send(b"ab").unwrap();
        wait_until(|| one.peek(&mut [0; 8]).is_ok());
        assert_eq!(clone.recv(&mut [0; 8]).unwrap(), 2);
        one.set_nonblocking(false).unwrap();
        let receiver = thread::spawn(move || clone.recv(&mut [0; 8]).unwrap());
        let_it_block();
        other.send(b"abc").unwrap();
        assert_eq!(receiver.join().unwrap(), 3);
    });
}

#[test]
fn each_datagram_goes_to_one_receiver() {
    let _w = watchdog("each_datagram_goes_to_one_receiver");
    both(|| {
        let (one, other) = pair();
        let other = Arc::new(other);
        let receivers: Vec<_> = (0..6)
            .map(|_| {
                let other = other.clone();
                thread::spawn(move || {
                    let (mut seen, mut buffer) = (Vec::new(), [0; 8]);
                    loop {
                        let (count, _) = other.recv_from(&mut buffer).unwrap();
                        match buffer[..count].try_into().map(u32::from_le_bytes) {
                            Ok(number) => seen.push(number),
                            Err(_) => return seen,
                        }
                    }
                })
            })
            .collect();
        // Few enough to fit into the receiver's buffer: none is lost.
        for number in 0..100_u32 {
            one.send(&number.to_le_bytes()).unwrap();
        }
        for _ in &receivers {
            one.send(b"end").unwrap();
        }
        let mut seen: Vec<_> = receivers
            .into_iter()
            .flat_map(|receiver| receiver.join().unwrap())
            .collect();
        seen.sort();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn options() {
    let _w = watchdog("options");
    both(|| {
        let socket = socket();
        assert!(!socket.broadcast().unwrap());
        socket.set_broadcast(true).unwrap();
        socket.set_ttl(77).unwrap();
        socket.set_multicast_loop_v4(false).unwrap();
        socket.set_multicast_ttl_v4(3).unwrap();
        assert!(socket.broadcast().unwrap() && !socket.multicast_loop_v4().unwrap());
        assert_eq!(
            (socket.ttl().unwrap(), socket.multicast_ttl_v4().unwrap()),
            (77, 3)
        );
        assert!(socket.take_error().unwrap().is_none());
        let (group, here) = ("239.1.2.3".parse().unwrap(), "127.0.0.1".parse().unwrap());
        if socket.join_multicast_v4(&group, &here).is_ok() {
            socket.leave_multicast_v4(&group, &here).unwrap();
        }
        assert!(socket.leave_multicast_v4(&group, &here).is_err());
        let text = format!("{socket:?}");
        assert!(text.starts_with("UdpSocket { addr: 127.0.0.1:") && text.contains(", fd: "));
    });
}
