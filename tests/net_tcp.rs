//! TCP: std's semantics, asked from a kernel thread and from a green one.

mod common;

use common::*;
use greenthread as thread;
use greenthread::net::{TcpListener, TcpStream};
use std::io::{Read, Write};

#[test]
fn echo_one_thread_a_connection() {
    let _w = watchdog("echo_one_thread_a_connection");
    both(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
        let clients: Vec<_> = (0..500u32)
            .map(|i| {
                thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for round in 0..10u32 {
                        let word = (i << 8 | round).to_le_bytes();
                        stream.write_all(&word).unwrap();
                        let mut reply = [0; 4];
                        stream.read_exact(&mut reply).unwrap();
                        assert_eq!(reply, word);
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        server.join().unwrap();
    });
}
