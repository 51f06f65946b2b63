//! UDP: std's semantics (the same text runs with std's types too), asked from a kernel thread and
//! from a green one; then closing and conversions.

#![cfg(feature = "net")]

mod with_std {
    use std::{net, thread};
    include!("../support/net/udp.rs");
}

mod with_ours {
    use greenthread::{self as thread, net};
    include!("../support/net/udp.rs");
}

use crate::common::*;
use greenthread::net::UdpSocket;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[cfg(green)]
#[test]
fn close_ends_all_calls() {
    use greenthread as thread;
    use std::sync::Arc;
    let _w = watchdog("net_udp::close_ends_all_calls");
    both(|| {
        for (connected, early) in [(false, false), (true, false), (false, true), (true, true)] {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            if connected {
                socket.connect(other.local_addr().unwrap()).unwrap();
            }
            let receivers: Vec<_> = (0..6)
                .map(|i| {
                    let (one, two) = (socket.clone(), socket.try_clone().unwrap());
                    thread::spawn(move || match i % 3 {
                        0 => kind(one.recv(&mut [0])),
                        1 => kind(one.recv_from(&mut [0])),
                        _ => kind(two.recv(&mut [0])),
                    })
                })
                .collect();
            if !early {
                thread::sleep(Duration::from_millis(5));
            }
            socket.close();
            for receiver in receivers {
                assert_eq!(receiver.join().unwrap(), ErrorKind::NotConnected);
            }
            let address = other.local_addr().unwrap();
            assert_eq!(kind(socket.send_to(b"", address)), ErrorKind::NotConnected);
            assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::NotConnected);
        }
    });
}

#[test]
fn conversions_keep_what_was_set() {
    let _w = watchdog("net_udp::conversions_keep_what_was_set");
    both(|| {
        let second = Some(Duration::from_secs(1));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(second).unwrap();
        let socket = std::net::UdpSocket::from(socket);
        assert_eq!(socket.read_timeout().unwrap(), second);
        socket.set_nonblocking(true).unwrap();
        let socket = UdpSocket::from(OwnedFd::from(socket));
        assert_eq!(kind(socket.recv(&mut [0])), ErrorKind::WouldBlock);
    });
}
