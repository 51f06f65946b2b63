//! A web server on greenthread's own sockets, for guests that are clients; and a client for guests that are servers.

use greenthread::net::{TcpListener, TcpStream};
use greenthread::sync::{Condvar, Mutex};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Answers to `/held/…` wait here.
#[derive(Default)]
pub struct Gate {
    waiting: Mutex<usize>,
    opens: Condvar,
}

/// Of `waiting`: the gate is open.
const OPEN: usize = usize::MAX;

impl Gate {
    /// How many answers wait.
    pub fn waiting(&self) -> usize {
        *self.waiting.lock().unwrap()
    }

    pub fn open(&self) {
        *self.waiting.lock().unwrap() = OPEN;
        self.opens.notify_all();
    }

    fn pass(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        if *waiting != OPEN {
            *waiting += 1;
        }
        drop(self.opens.wait_while(waiting, |waiting| *waiting != OPEN));
    }
}

/// How many addresses a server has. A port of a client's that was in use cannot be used again for a while, and the
/// kernel lets only some thousand clients at once wait for one listener: with several, neither runs short.
const ADDRESSES: u8 = 8;

/// A server, which serves until the process ends.
#[derive(Clone, Copy)]
pub struct Server(u16);

impl Server {
    /// Serves on greenthread's own sockets, a green thread a connection.
    pub fn new(gate: &Arc<Gate>) -> Server {
        let listeners = loop {
            let first = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = first.local_addr().unwrap().port();
            let others = (2..=ADDRESSES)
                .map(|host| TcpListener::bind(SocketAddr::from(([127, 0, 0, host], port))));
            let all = [Ok(first)].into_iter().chain(others);
            // Someone else may have the port at another address.
            if let Ok(listeners) = all.collect::<std::io::Result<Vec<_>>>() {
                break listeners;
            }
        };
        let port = listeners[0].local_addr().unwrap().port();
        for listener in listeners {
            // SAFETY: a listening socket. std's backlog of 128 is short for thousands of clients.
            assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 4096) }, 0);
            let gate = gate.clone();
            greenthread::spawn(move || {
                for stream in listener.incoming() {
                    let (stream, gate) = (stream.unwrap(), gate.clone());
                    greenthread::spawn(move || drop(serve(stream, &gate)));
                }
            });
        }
        Server(port)
    }

    /// The address for the `i`th client.
    pub fn address(self, i: usize) -> SocketAddr {
        let host = 1 + (i % usize::from(ADDRESSES)) as u8;
        SocketAddr::from(([127, 0, 0, host], self.0))
    }
}

fn serve(mut stream: TcpStream, gate: &Gate) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                n => head.extend_from_slice(&piece[..n]),
            }
        }
        let text = std::str::from_utf8(&head).unwrap().to_lowercase();
        let path = text.split(' ').nth(1).unwrap();
        if path.starts_with("/held/") {
            gate.pass();
        }
        let body = format!("answer to {path}");
        let close = text.contains("connection: close");
        let connection = if close { "close" } else { "keep-alive" };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes())?;
        if close {
            return Ok(());
        }
        head.clear();
    }
}

/// A client's connection, which is kept.
pub struct Connection<S>(BufReader<S>);

impl<S: Read + Write> Connection<S> {
    pub fn new(stream: S) -> Connection<S> {
        Connection(BufReader::new(stream))
    }

    pub fn stream(&mut self) -> &mut S {
        self.0.get_mut()
    }

    pub fn send(&mut self, path: &str, body: &[u8]) {
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        self.stream()
            .write_all(&[head.as_bytes(), body].concat())
            .unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_lowercase()
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The body of the answer that comes, whole or in chunks.
    pub fn answer(&mut self) -> Vec<u8> {
        let (status, body) = self.any_answer();
        assert_eq!(status, 200);
        body
    }

    /// The status and the body of the answer that comes.
    pub fn any_answer(&mut self) -> (u16, Vec<u8>) {
        let line = self.line();
        let status = line
            .strip_prefix("http/1.1 ")
            .and_then(|rest| rest.get(..3));
        let status = status.and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{line:?}"));
        (status, self.body())
    }

    fn body(&mut self) -> Vec<u8> {
        let mut length = None;
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse().unwrap());
            }
        }
        if let Some(length) = length {
            return self.exactly(length);
        }
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line(), 16).unwrap();
            body.extend(self.exactly(length));
            assert_eq!(self.line(), "");
            if length == 0 {
                return body;
            }
        }
    }

    pub fn request(&mut self, path: &str, body: &[u8]) -> Vec<u8> {
        self.send(path, body);
        self.answer()
    }
}
