// What TCP must do, of std and of greenthread alike: included twice, with `net` and `thread` of
// either. So std itself says whether the test is right.

use crate::common::{both, not_early, timed, wait_until, watchdog};
use net::{Shutdown, TcpListener, TcpStream};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// The two ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = listener();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// Time in which a thread that can block will most likely have blocked. Nothing depends on it.
fn let_it_block() {
    thread::sleep(Duration::from_millis(5));
}

#[test]
fn echo_one_thread_a_connection() {
    let _w = watchdog("echo_one_thread_a_connection");
    both(|| {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for stream in listener.incoming().take(500) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 64];
                    loop {
                        match stream.read(&mut buffer).unwrap() {
                            0 => break,
                            count => stream.write_all(&buffer[..count]).unwrap(),
                        }
                    }
                });
            }
        });
        let client = move |i: u32| {
            let mut stream = TcpStream::connect(address).unwrap();
            for round in 0..10 {
                let word = (i << 8 | round).to_le_bytes();
                stream.write_all(&word).unwrap();
                let mut reply = [0; 4];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(reply, word);
            }
        };
        let clients: Vec<_> = (0..500).map(|i| thread::spawn(move || client(i))).collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        server.join().unwrap();
    });
}

#[test]
fn each_connection_goes_to_one_acceptor() {
    let _w = watchdog("each_connection_goes_to_one_acceptor");
    both(|| {
        const CONNECTIONS: usize = 200;
        let listener = Arc::new(listener());
        let address = listener.local_addr().unwrap();
        let tickets = Arc::new(AtomicUsize::new(0));
        let acceptors: Vec<_> = (0..8)
            .map(|_| {
                let (listener, tickets) = (listener.clone(), tickets.clone());
                thread::spawn(move || {
                    let mut peers = Vec::new();
                    while tickets.fetch_add(1, Relaxed) < CONNECTIONS {
                        peers.push(listener.accept().unwrap().1);
                    }
                    peers
                })
            })
            .collect();
        let_it_block();
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut accepted: Vec<_> = acceptors
            .into_iter()
            .flat_map(|acceptor| acceptor.join().unwrap())
            .collect();
        let mut connected: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
        accepted.sort();
        connected.sort();
        assert_eq!(accepted, connected);
    });
}

#[test]
fn each_byte_goes_to_one_reader() {
    let _w = watchdog("each_byte_goes_to_one_reader");
    both(|| {
        let (mut client, server) = pair();
        let server = Arc::new(server);
        let readers: Vec<_> = (0..6)
            .map(|_| {
                let server = server.clone();
                thread::spawn(move || {
                    let (mut sum, mut buffer) = (0, [0; 7]);
                    loop {
                        match (&*server).read(&mut buffer).unwrap() {
                            0 => return sum,
                            count => sum += buffer[..count].iter().map(|b| *b as u64).sum::<u64>(),
                        }
                    }
                })
            })
            .collect();
        let mut sent = 0;
        for i in 0..2000_u32 {
            let bytes = [i as u8; 5];
            client.write_all(&bytes[..1 + i as usize % 5]).unwrap();
            sent += (1 + i as u64 % 5) * (i as u8) as u64;
        }
        drop(client);
        let sums: u64 = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum();
        assert_eq!(sums, sent);
    });
}

#[test]
fn reading_and_writing_at_once() {
    let _w = watchdog("reading_and_writing_at_once");
    both(|| {
        // More than any buffer: each side blocks in both directions.
        const SIZE: usize = 8 << 20;
        let (client, server) = pair();
        let ends: Vec<_> = [client, server]
            .into_iter()
            .map(|stream| {
                let stream = Arc::new(stream);
                let theirs = stream.clone();
                let writer = thread::spawn(move || {
                    let data: Vec<u8> = (0..SIZE).map(|i| (i / 251) as u8).collect();
                    // A blocking write takes all.
                    assert_eq!((&*theirs).write(&data).unwrap(), SIZE);
                    theirs.shutdown(Shutdown::Write).unwrap();
                });
                let reader = thread::spawn(move || {
                    let mut data = Vec::new();
                    (&*stream).read_to_end(&mut data).unwrap();
                    assert_eq!(data.len(), SIZE);
                    assert!(data.iter().enumerate().all(|(i, b)| *b == (i / 251) as u8));
                });
                [writer, reader]
            })
            .collect();
        ends.into_iter()
            .flatten()
            .for_each(|end| end.join().unwrap());
    });
}

#[test]
fn peeking_takes_nothing() {
    let _w = watchdog("peeking_takes_nothing");
    both(|| {
        let (mut client, mut server) = pair();
        let peeker = thread::spawn(move || {
            let mut buffer = [0; 8];
            for _ in 0..2 {
                assert_eq!(server.peek(&mut buffer).unwrap(), 3);
                assert_eq!(&buffer[..3], b"abc");
            }
            assert_eq!(server.read(&mut buffer).unwrap(), 3);
            assert_eq!(server.peek(&mut buffer).unwrap(), 0);
            server.set_nonblocking(true).unwrap();
            assert_eq!(server.peek(&mut buffer).unwrap(), 0);
        });
        let_it_block();
        client.write_all(b"abc").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        peeker.join().unwrap();
    });
}

#[test]
fn time_outs() {
    let _w = watchdog("time_outs");
    both(|| {
        let (mut client, mut server) = pair();
        assert_eq!(server.read_timeout().unwrap(), None);
        assert_eq!(server.write_timeout().unwrap(), None);
        assert_eq!(
            kind(server.set_read_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            kind(server.set_write_timeout(Some(Duration::ZERO))),
            ErrorKind::InvalidInput
        );
        let time = Duration::from_millis(20);
        server.set_read_timeout(Some(time)).unwrap();
        assert_eq!(server.read_timeout().unwrap(), Some(time));
        let mut buffer = [0; 16];
        for _ in 0..3 {
            let before = Instant::now();
            assert_eq!(timed(|| server.read(&mut buffer)), ErrorKind::WouldBlock);
            not_early(before, time);
            assert_eq!(timed(|| server.peek(&mut buffer)), ErrorKind::WouldBlock);
        }
        // Not when there is something in time, and no longer when taken back.
        client.write_all(b"now").unwrap();
        assert_eq!(server.read(&mut buffer).unwrap(), 3);
        server.set_read_timeout(None).unwrap();
        assert_eq!(server.read_timeout().unwrap(), None);
        let reader = thread::spawn(move || (server.read(&mut buffer).unwrap(), server));
        thread::sleep(2 * time);
        client.write_all(b"late").unwrap();
        let (count, server) = reader.join().unwrap();
        assert_eq!(count, 4);
        // Writing, until nothing fits.
        client.set_write_timeout(Some(time)).unwrap();
        assert_eq!(client.write_timeout().unwrap(), Some(time));
        let block = vec![0; 1 << 20];
        loop {
            let before = Instant::now();
            match client.write(&block) {
                // It may have taken a part until the time was up.
                Ok(count) if count == block.len() => {}
                Ok(_) => not_early(before, time),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    not_early(before, time);
                    break;
                }
            }
        }
        drop(server);
    });
}

#[test]
fn vectored() {
    let _w = watchdog("vectored");
    both(|| {
        let (mut client, mut server) = pair();
        let parts = [
            IoSlice::new(b"one"),
            IoSlice::new(b""),
            IoSlice::new(b"three"),
        ];
        assert_eq!(client.write_vectored(&parts).unwrap(), 8);
        let (mut a, mut b, mut c) = ([0; 2], [0; 0], [0; 6]);
        let mut buffers = [
            IoSliceMut::new(&mut a),
            IoSliceMut::new(&mut b),
            IoSliceMut::new(&mut c),
        ];
        assert_eq!(server.read_vectored(&mut buffers).unwrap(), 8);
        assert_eq!((&a, &c), (b"on", b"ethree"));
        // More buffers than the kernel takes at once.
        let many: Vec<_> = (0..3000).map(|_| IoSlice::new(b"x")).collect();
        assert_eq!(client.write_vectored(&many).unwrap(), 1024);
        let mut storage = [0; 3000];
        let mut many: Vec<_> = storage.chunks_mut(1).map(IoSliceMut::new).collect();
        assert_eq!(server.read_vectored(&mut many).unwrap(), 1024);
        // Blocked ones.
        let reader = thread::spawn(move || {
            let mut word = [0; 4];
            let count = server
                .read_vectored(&mut [IoSliceMut::new(&mut word)])
                .unwrap();
            (count, word)
        });
        let_it_block();
        client.write_all(b"late").unwrap();
        assert_eq!(reader.join().unwrap(), (4, *b"late"));
        assert_eq!(client.write_vectored(&[]).unwrap_or(0), 0);
    });
}

#[test]
fn clones_share_the_socket_and_its_state() {
    let _w = watchdog("clones_share_the_socket_and_its_state");
    both(|| {
        let (mut client, mut server) = pair();
        let mut other = server.try_clone().unwrap();
        other.set_nonblocking(true).unwrap();
        assert_eq!(timed(|| server.read(&mut [0])), ErrorKind::WouldBlock);
        server.set_nonblocking(false).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        assert_eq!(timed(|| other.read(&mut [0])), ErrorKind::WouldBlock);
        assert!(other.read_timeout().unwrap().is_some());
        client.write_all(b"ab").unwrap();
        let (mut a, mut b) = ([0], [0]);
        other.set_read_timeout(None).unwrap();
        other.read_exact(&mut a).unwrap();
        server.read_exact(&mut b).unwrap();
        assert_eq!((a, b), ([b'a'], [b'b']));
        // The connection lasts until the last is gone.
        drop(server);
        other.write_all(b"c").unwrap();
        client.read_exact(&mut a).unwrap();
        drop(other);
        assert_eq!(client.read(&mut a).unwrap(), 0);

        let listener = listener();
        let other = listener.try_clone().unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = thread::spawn(move || other.accept().map(drop));
        let_it_block();
        let _client = TcpStream::connect(address).unwrap();
        acceptor.join().unwrap().unwrap();
    });
}

#[test]
fn half_closed() {
    let _w = watchdog("half_closed");
    both(|| {
        let (mut client, mut server) = pair();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(client.write(b"more")), ErrorKind::BrokenPipe); // and no SIGPIPE
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
        assert_eq!(server.read(&mut [0]).unwrap(), 0); // again
        server.write_all(b"answer").unwrap();
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer");
    });
}

#[test]
fn shutdown_wakes_those_who_wait() {
    let _w = watchdog("shutdown_wakes_those_who_wait");
    both(|| {
        let (client, server) = pair();
        let (client, _server) = (Arc::new(client), server);
        let theirs = client.clone();
        let reader = thread::spawn(move || (&*theirs).read(&mut [0]).unwrap());
        let theirs = client.clone();
        let writer = thread::spawn(move || kind((&*theirs).write_all(&vec![0; 64 << 20])));
        let_it_block();
        client.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);

        let listener = Arc::new(listener());
        let theirs = listener.clone();
        let acceptor = thread::spawn(move || kind(theirs.accept()));
        let_it_block();
        socket2::SockRef::from(&*listener)
            .shutdown(Shutdown::Both)
            .unwrap();
        assert_eq!(acceptor.join().unwrap(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_reset_is_an_error() {
    let _w = watchdog("a_reset_is_an_error");
    both(|| {
        let (client, mut server) = pair();
        let reader = thread::spawn(move || (kind(server.read(&mut [0])), server));
        let_it_block();
        let at_once = Some(Duration::ZERO);
        socket2::SockRef::from(&client).set_linger(at_once).unwrap();
        drop(client);
        let (error, mut server) = reader.join().unwrap();
        assert_eq!(error, ErrorKind::ConnectionReset);
        assert_eq!(kind(server.write(&[0])), ErrorKind::BrokenPipe);
        assert_eq!(kind(server.peer_addr()), ErrorKind::NotConnected);
    });
}

#[test]
fn non_blocking() {
    let _w = watchdog("non_blocking");
    both(|| {
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
        assert_eq!(
            kind(listener.incoming().next().unwrap()),
            ErrorKind::WouldBlock
        );
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = None;
        wait_until(|| {
            server = listener.accept().ok();
            server.is_some()
        });
        // What is accepted does not inherit the mode.
        let mut server = server.unwrap().0;
        server
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let before = Instant::now();
        assert_eq!(timed(|| server.read(&mut [0])), ErrorKind::WouldBlock);
        not_early(before, Duration::from_millis(20));
        server.set_nonblocking(true).unwrap();
        assert_eq!(timed(|| server.read(&mut [0])), ErrorKind::WouldBlock);
        assert_eq!(
            kind(server.read_vectored(&mut [IoSliceMut::new(&mut [0])])),
            ErrorKind::WouldBlock
        );
        let block = vec![0; 1 << 20];
        wait_until(|| match server.write(&block) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        server.set_nonblocking(false).unwrap();
        server.set_read_timeout(None).unwrap();
        client.write_all(b"!").unwrap();
        server.read_exact(&mut [0]).unwrap();
    });
}
