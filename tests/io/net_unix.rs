//! Unix sockets: std's semantics (the same text runs with std's types too), asked from a kernel
//! thread and from a green one; then closing and conversions.

#![cfg(feature = "net")]

mod with_std {
    use std::{os::unix::net, thread};
    include!("../support/net/unix.rs");
}

mod with_ours {
    use greenthread::{self as thread, os::unix::net};
    include!("../support/net/unix.rs");
}

use crate::common::*;
use greenthread as thread;
use greenthread::os::unix::net::{self, UnixDatagram, UnixListener, UnixStream};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::time::Duration;

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn listener(name: &str) -> UnixListener {
    let name = format!("net_unix-{name}-{}-{}", std::process::id(), gettid());
    UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

#[cfg(green)]
#[test]
fn close_ends_all_calls() {
    use std::sync::Arc;
    let _w = watchdog("net_unix::close_ends_all_calls");
    both(|| {
        let (stream, _peer) = net::socketpair().unwrap();
        let (datagram, _peer) = UnixDatagram::pair().unwrap();
        let listener = listener("close");
        let (stream, datagram, listener) =
            (Arc::new(stream), Arc::new(datagram), Arc::new(listener));
        let mut calls = Vec::new();
        for _ in 0..3 {
            let (one, two) = (stream.clone(), stream.try_clone().unwrap());
            calls.push(thread::spawn(move || kind((&*one).read(&mut [0]))));
            calls.push(thread::spawn(move || {
                kind((&two).write_all(&vec![0; 64 << 20]))
            }));
            let (one, two) = (datagram.clone(), datagram.try_clone().unwrap());
            calls.push(thread::spawn(move || kind(one.recv(&mut [0]))));
            calls.push(thread::spawn(move || kind(two.recv_from(&mut [0]))));
            let (one, two) = (listener.clone(), listener.try_clone().unwrap());
            calls.push(thread::spawn(move || kind(one.accept())));
            calls.push(thread::spawn(move || kind(two.accept())));
        }
        thread::sleep(Duration::from_millis(5));
        stream.close();
        datagram.close();
        listener.close();
        for call in calls {
            assert_eq!(call.join().unwrap(), ErrorKind::NotConnected);
        }
        assert_eq!(kind((&*stream).read(&mut [0])), ErrorKind::NotConnected);
        assert_eq!(kind(datagram.send(b"")), ErrorKind::NotConnected);
        assert!(listener.incoming().next().is_none());
    });
}

#[test]
fn conversions_keep_what_was_set() {
    let _w = watchdog("net_unix::conversions_keep_what_was_set");
    both(|| {
        let second = Some(Duration::from_secs(1));
        let (one, other) = UnixStream::pair().unwrap();
        one.set_write_timeout(second).unwrap();
        let one = unix::UnixStream::from(one);
        assert_eq!(one.write_timeout().unwrap(), second);
        one.set_nonblocking(true).unwrap();
        let mut one = UnixStream::from(OwnedFd::from(one));
        assert_eq!(kind(one.read(&mut [0])), ErrorKind::WouldBlock);

        // std's blocks, so it waits.
        let mut other = unix::UnixStream::from(other);
        let reader = std::thread::spawn(move || other.read(&mut [0]).unwrap());
        one.write_all(b"!").unwrap();
        assert_eq!(reader.join().unwrap(), 1);
        let listener = unix::UnixListener::from(listener("convert"));
        let address = listener.local_addr().unwrap();
        let acceptor = std::thread::spawn(move || listener.accept().map(drop));
        thread::sleep(Duration::from_millis(5));
        let _client = UnixStream::connect_addr(&address).unwrap();
        acceptor.join().unwrap().unwrap();
        let (one, _other) = UnixDatagram::pair().unwrap();
        let one = unix::UnixDatagram::from(one);
        one.set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        assert_eq!(
            kind(UnixDatagram::from(one).recv(&mut [0])),
            ErrorKind::WouldBlock
        );
    });
}
