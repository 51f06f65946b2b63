//! The load generator: one thread, one edge-triggered epoll loop, a closed loop on each connection:
//! a request, its whole reply, the next request.
//!
//! It shares the processors with the server, so a request costs it three system calls at most: its
//! part of an `epoll_wait`, one read, one write.
//!
//! Invariants:
//! 1. A connection has at most one request on its way: the send buffer is empty when the next one
//!    is written, so it always takes it whole.
//! 2. A read that brings less than was asked for has emptied the socket, and one that brings all
//!    completes a reply, before the next request: either way the next byte raises a new edge.
//! 3. What comes is compared with the expected reply at the place it belongs to, so a byte too many
//!    is found as the first, wrong one of the next reply.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, SockRef, Socket, Type};

use crate::exchange::{Exchange, wrong};
use crate::http;

/// How many connections are opened at a time. A listener's overflow, 128 by default, takes them all.
const BATCH: usize = 64;

/// Connections from one source address; it has 28 thousand ports, and those of closed connections
/// stay taken for a minute.
const PER_ADDRESS: u32 = 10_000;

/// How long a reply may take before it counts as missed.
const PATIENCE: Duration = Duration::from_secs(10);

/// In nanoseconds: longer than anything here takes.
const HOUR: u64 = 3_600_000_000_000;

/// Connections with the closed loop running on each.
pub struct Load<'a> {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    exchange: &'a mut Exchange,
    /// Whether a reply is followed by the next request.
    more: bool,
    replies: u64,
    /// Requests on their way.
    waiting: usize,
    /// Connections that broke, or brought a wrong reply.
    broken: usize,
    /// In nanoseconds.
    latencies: Histogram<u64>,
}

struct Connection {
    stream: mio::net::TcpStream,
    number: u64,
    /// How much of the reply has come.
    received: usize,
    sent: Instant,
}

/// What a stretch of load has shown.
pub struct Outcome {
    pub requests: u64,
    pub elapsed: Duration,
    pub p50: Duration,
    pub p99: Duration,
}

impl Outcome {
    pub fn thousands_a_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64() / 1e3
    }
}

impl<'a> Load<'a> {
    /// Takes these connections, on which nothing is on its way.
    pub fn new(streams: Vec<TcpStream>, exchange: &'a mut Exchange) -> io::Result<Load<'a>> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(streams.len());
        for (i, stream) in streams.into_iter().enumerate() {
            // No port is to stay taken when the load ends.
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            stream.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            poll.registry()
                .register(&mut stream, Token(i), Interest::READABLE)?;
            connections.push(Connection {
                stream,
                number: 0,
                received: 0,
                sent: Instant::now(),
            });
        }
        Ok(Load {
            poll,
            events: Events::with_capacity(1024),
            connections,
            exchange,
            more: false,
            replies: 0,
            waiting: 0,
            broken: 0,
            latencies: Histogram::new_with_bounds(1, HOUR, 3).expect("valid bounds"),
        })
    }

    /// Goes on for so long.
    pub fn run(&mut self, duration: Duration) -> io::Result<Outcome> {
        if !self.more {
            self.resume()?;
        }
        self.latencies.reset();
        let start = Instant::now();
        self.turn(start + duration, |_| true)?;
        let percentile = |p| Duration::from_nanos(self.latencies.value_at_percentile(p));
        Ok(Outcome {
            requests: self.latencies.len(),
            elapsed: start.elapsed(),
            p50: percentile(50.0),
            p99: percentile(99.0),
        })
    }

    /// Waits for the replies to what is on its way, and sends nothing more.
    pub fn pause(&mut self) -> io::Result<()> {
        self.more = false;
        self.turn(Instant::now() + PATIENCE, |load| load.waiting > 0)
    }

    fn resume(&mut self) -> io::Result<()> {
        if self.missed() > 0 {
            return Err(io::Error::other("replies are missing"));
        }
        self.more = true;
        self.waiting = self.connections.len();
        (0..self.connections.len()).try_for_each(|i| self.send(i, Instant::now()))
    }

    /// When the load pauses, the connections that owe a reply or have given a wrong one.
    pub fn missed(&self) -> usize {
        self.waiting + self.broken
    }

    /// All replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Takes replies until then, and while `condition` holds.
    fn turn(&mut self, end: Instant, condition: impl Fn(&Load) -> bool) -> io::Result<()> {
        while condition(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.poll.poll(&mut self.events, Some(left)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
            for event in &events {
                let i = event.token().0;
                if let Err(error) = self.receive(i)
                    && error.kind() != io::ErrorKind::WouldBlock
                {
                    // Said once: nothing else comes on this connection.
                    eprintln!("a connection broke: {error}");
                    let stream = &mut self.connections[i].stream;
                    self.poll.registry().deregister(stream)?;
                    self.broken += 1;
                    self.waiting -= 1;
                }
            }
            self.events = events;
        }
        Ok(())
    }

    /// Takes what has come on a connection, and sends the next request if that is a whole reply.
    fn receive(&mut self, i: usize) -> io::Result<()> {
        let connection = &mut self.connections[i];
        let expected = &self.exchange.reply(connection.number)[connection.received..];
        let mut bytes = [0; http::REPLY_BYTES];
        let received = connection.stream.read(&mut bytes[..expected.len()])?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes[..received] != expected[..received] {
            return Err(wrong());
        }
        if received < expected.len() {
            connection.received += received;
            return Ok(());
        }
        connection.received = 0;
        self.replies += 1;
        let now = Instant::now();
        let latency = now.duration_since(connection.sent).as_nanos() as u64;
        self.latencies.saturating_record(latency);
        match self.more {
            true => self.send(i, now),
            false => {
                self.waiting -= 1;
                Ok(())
            }
        }
    }

    fn send(&mut self, i: usize, now: Instant) -> io::Result<()> {
        let connection = &mut self.connections[i];
        connection.number = next_number();
        connection.sent = now;
        let request = self.exchange.request(connection.number);
        let written = connection.stream.write(request)?;
        assert_eq!(written, request.len(), "invariant 1");
        Ok(())
    }
}

/// Opens so many connections. The server has accepted each and answered a request on it.
pub fn open(to: SocketAddr, n: usize, exchange: &mut Exchange) -> io::Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(n);
    while streams.len() < n {
        let opened = streams.len();
        for _ in 0..BATCH.min(n - opened) {
            streams.push(connect(to)?);
        }
        check(&streams[opened..], exchange)?;
    }
    Ok(streams)
}

/// Opens and closes so many connections, with an exchange on each.
pub fn storm(to: SocketAddr, n: usize, exchange: &mut Exchange) -> io::Result<()> {
    for first in (0..n).step_by(BATCH) {
        open(to, BATCH.min(n - first), exchange)?;
    }
    Ok(())
}

/// One exchange on each connection.
pub fn check(streams: &[TcpStream], exchange: &mut Exchange) -> io::Result<()> {
    for batch in streams.chunks(BATCH) {
        let numbered: Vec<_> = batch.iter().map(|stream| (stream, next_number())).collect();
        for &(stream, number) in &numbered {
            exchange.send(stream, number)?;
        }
        for &(stream, number) in &numbered {
            exchange.receive(stream, number)?;
        }
    }
    Ok(())
}

/// A connection from an address that has ports left.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let address = u32::from(Ipv4Addr::LOCALHOST) + MADE.fetch_add(1, Relaxed) / PER_ADDRESS;
    let from = SocketAddr::from((Ipv4Addr::from(address), 0));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // For connect, too.
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&from.into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Far apart in all digits.
    NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed)
}
