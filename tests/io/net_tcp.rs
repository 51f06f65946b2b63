//! TCP: std's semantics (the same text runs with std's types too), asked from a kernel thread and
//! from a green one; then closing, conversions, running out of descriptors.

#![cfg(feature = "net")]

mod with_std {
    use std::{net, thread};
    include!("../support/net/tcp.rs");
    include!("../support/net/tcp_connect.rs");
}

mod with_ours {
    use greenthread::{self as thread, net};
    include!("../support/net/tcp.rs");
    include!("../support/net/tcp_connect.rs");
}

use crate::common::*;
use greenthread as thread;
use greenthread::net::{TcpListener, TcpStream};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn let_it_block(does: bool) {
    if does {
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(green)]
#[test]
fn close_ends_all_calls() {
    let _w = watchdog("net_tcp::close_ends_all_calls");
    both(|| {
        for blocks in [true, false] {
            let (client, _server) = pair();
            let client = Arc::new(client);
            let mut calls = Vec::new();
            for _ in 0..3 {
                let (one, two) = (client.clone(), client.try_clone().unwrap());
                calls.push(thread::spawn(move || kind((&*one).read(&mut [0]))));
                calls.push(thread::spawn(move || kind((&two).read(&mut [0]))));
                let one = client.clone();
                calls.push(thread::spawn(move || {
                    kind((&*one).write_all(&vec![0; 64 << 20]))
                }));
            }
            let_it_block(blocks);
            client.close();
            for call in calls {
                assert_eq!(call.join().unwrap(), ErrorKind::NotConnected);
            }
            let error = (&*client).read(&mut [0]).unwrap_err();
            assert_eq!(error.to_string(), "the socket was closed by another thread");
            assert_eq!(kind((&*client).write(&[0])), ErrorKind::NotConnected);
            assert_eq!(kind(client.peek(&mut [0])), ErrorKind::NotConnected);
            client.close(); // again
        }
    });
}

#[test]
fn close_ends_all_who_accept() {
    let _w = watchdog("net_tcp::close_ends_all_who_accept");
    both(|| {
        for blocks in [true, false] {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let acceptors: Vec<_> = (0..6)
                .map(|i| {
                    let (one, two) = (listener.clone(), listener.try_clone().unwrap());
                    thread::spawn(move || {
                        kind(if i % 2 == 0 {
                            one.accept()
                        } else {
                            two.accept()
                        })
                    })
                })
                .collect();
            let_it_block(blocks);
            listener.close();
            for acceptor in acceptors {
                assert_eq!(acceptor.join().unwrap(), ErrorKind::NotConnected);
            }
            assert!(listener.incoming().next().is_none());
            let late = TcpStream::connect(listener.local_addr().unwrap());
            // On std alone the handles that are left keep the socket open.
            assert!(cfg!(not(green)) || kind(late) == ErrorKind::ConnectionRefused);
            assert_eq!(kind(listener.accept()), ErrorKind::NotConnected);
        }
    });
}

fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    // SAFETY: a system call on an open descriptor.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

fn is_cloexec(fd: &impl AsRawFd) -> bool {
    // SAFETY: as above.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

#[test]
fn conversions_keep_what_was_set() {
    let _w = watchdog("net_tcp::conversions_keep_what_was_set");
    both(|| {
        let second = Some(Duration::from_secs(1));
        let (client, server) = pair();
        assert!(!is_nonblocking(&client) && !is_nonblocking(&server));
        assert!(is_cloexec(&client) && is_cloexec(&server));
        client.set_read_timeout(second).unwrap();
        server.set_nonblocking(true).unwrap();
        let fd = client.as_raw_fd();
        let client = std::net::TcpStream::from(client);
        assert_eq!(
            (client.as_raw_fd(), client.read_timeout().unwrap()),
            (fd, second)
        );
        let server = OwnedFd::from(server);
        assert!(is_nonblocking(&server) && !is_nonblocking(&client));
        // And back: what was set on the descriptor counts.
        let mut server = TcpStream::from(server);
        assert_eq!(kind(server.read(&mut [0])), ErrorKind::WouldBlock);
        client
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        // SAFETY: the descriptor just given up.
        let mut client = unsafe { TcpStream::from_raw_fd(client.into_raw_fd()) };
        assert_eq!(kind(client.read(&mut [0])), ErrorKind::WouldBlock);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = std::net::TcpListener::from(listener);
        assert!(!is_nonblocking(&listener));
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let acceptor = thread::spawn(move || (listener.accept().unwrap(), listener));
        thread::sleep(Duration::from_millis(5));
        let _client = TcpStream::connect(address).unwrap();
        let ((server, _), listener) = acceptor.join().unwrap();
        assert!(!is_nonblocking(&server));
        listener.set_nonblocking(true).unwrap();
        let listener = OwnedFd::from(listener);
        assert!(is_nonblocking(&listener));
        assert_eq!(
            kind(TcpListener::from(listener).accept()),
            ErrorKind::WouldBlock
        );
    });
}

#[test]
fn out_of_descriptors() {
    let _w = watchdog("net_tcp::out_of_descriptors");
    if child_case("net_tcp::out_of_descriptors").is_none() {
        return assert_code(&child("net_tcp::out_of_descriptors", "run"), 0);
    }
    both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the record outlives the calls.
        let set = |limit: &libc::rlimit| unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, limit), 0);
        };
        // SAFETY: as above.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        set(&libc::rlimit {
            rlim_cur: 4,
            ..limit
        });
        let errors = [
            listener.accept().map(drop).unwrap_err(),
            TcpStream::connect(listener.local_addr().unwrap()).unwrap_err(),
            client.try_clone().unwrap_err(),
            TcpListener::bind("127.0.0.1:0").unwrap_err(),
        ];
        set(&limit);
        for error in errors {
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        }
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"!").unwrap();
        server.read_exact(&mut [0]).unwrap();
    });
}
