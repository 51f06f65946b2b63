//! Sockets that others share, and writes that block: std's semantics (the same text runs with std's
//! types too), asked from a kernel thread and from a green one; then many who connect at once.

#![cfg(feature = "net")]

mod with_std {
    use std::{net, os::unix::net as unix, thread};
    include!("../support/net/sharing.rs");
}

mod with_ours {
    use greenthread::{self as thread, net, os::unix::net as unix};
    include!("../support/net/sharing.rs");
}

use crate::common::*;
use greenthread::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::time::Duration;

/// More connect than std's listeners let wait (128), before anybody accepts; none is lost.
#[test]
fn a_thousand_clients_connect_at_once() {
    let _w = watchdog("net_sharing::a_thousand_clients_connect_at_once");
    const CLIENTS: usize = 1_000;
    if cfg!(not(green)) {
        return eprintln!("skipped: the listener is std's");
    }
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if allowed.trim().parse::<usize>().unwrap() < CLIENTS {
        eprintln!("skipped: the system lets {} wait", allowed.trim());
        return;
    }
    set_limit(libc::RLIMIT_NOFILE, 4 * CLIENTS as u64);
    both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                // A request that finds no place is repeated after a second.
                let patience = Duration::from_millis(900);
                let client = TcpStream::connect_timeout(&address, patience);
                client.unwrap_or_else(|error| panic!("client {i}: {error}"))
            })
            .collect();
        let server = greenthread::spawn(move || {
            for stream in listener.incoming().take(CLIENTS) {
                let mut stream = stream.unwrap();
                greenthread::spawn(move || {
                    let mut word = [0; 4];
                    stream.read_exact(&mut word).unwrap();
                    stream.write_all(&word).unwrap();
                });
            }
        });
        for (i, mut client) in clients.iter().enumerate() {
            client.write_all(&(i as u32).to_le_bytes()).unwrap();
        }
        for (i, mut client) in clients.iter().enumerate() {
            let mut word = [0; 4];
            client.read_exact(&mut word).unwrap();
            assert_eq!(u32::from_le_bytes(word), i as u32);
        }
        server.join().unwrap();
    });
}
