//! One connection, as its thread sees it.
//!
//! The idea: a protocol is a function that finds a request at the start of some bytes. [`Client`]
//! reads until that function is content, and sends the replies when it has to wait for more.
//! Pipelining then costs nothing: all requests that came together are answered together.
//!
//! 1. The memory that a client can make the server hold is bounded: one request (`max`) with the bytes
//!    that were read with it, and [`ENOUGH`] bytes of replies. The server reads no more from a client
//!    that does not take its replies.
//! 2. A request is complete within the time for requests, counted from its first byte, however
//!    slowly its bytes drip: one limit holds for all reads of it. The socket stays as it is after that,
//!    so that the server can still say what is wrong.
//! 3. A connection without a request is idle; it ends after the idle time, or when the server stops.
//! 4. The last reply arrives: closing a socket with unread bytes would reset the connection and
//!    destroy the bytes under way, so [`Client::part`] ends the writing side first and then reads on
//!    for a moment.

use greenthread::net::SocketAddr;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};
use std::time::Duration;

use greenthread::net::{Shutdown, TcpStream};
use greenthread::time::timeout;

use super::Server;
use super::server::Guest;

/// Replies are sent at the latest when they are this many bytes.
const ENOUGH: usize = 64 << 10;
/// The size of the buffer that an idle connection keeps for reading.
const CHUNK: usize = 4 << 10;
/// How long, and how much, to read after the last reply.
const PARTING: (Duration, usize) = (Duration::from_secs(1), 1 << 20);

/// A client's socket; shared by the threads that serve it, and by the server, which may end it.
pub(crate) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    idle: AtomicBool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum Refusal<E> {
    /// What the protocol said.
    Bad(E),
    TooLarge,
    TooSlow,
    /// The client ended its side in the middle of a request.
    CutShort,
    Failed(io::Error),
}

pub(crate) struct Client {
    guest: Guest,
    input: Vec<u8>,
    /// How much of `input` was consumed.
    taken: usize,
    output: Vec<u8>,
    /// Nothing can be read any more.
    ended: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Connection {
        let idle = AtomicBool::new(false);
        Connection { stream, peer, idle }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends all of it. An error if the client takes nothing for the idle time.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream)
            .write_all(bytes)
            .map_err(|error| match error {
                error if timed_out(&error) => too_slow("it does not read what it is sent"),
                error => error,
            })
    }

    /// Ends the connection in both directions, for all threads that read or write it.
    pub(crate) fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(super) fn wake_if_idle(&self) {
        if self.idle.load(SeqCst) {
            let _ = self.stream.shutdown(Shutdown::Read);
        }
    }

    /// Reads the next bytes. 0 at the end: of the connection, of patience, or of the server.
    fn wait(&self, server: &Server, buffer: &mut [u8]) -> io::Result<usize> {
        self.idle.store(true, SeqCst);
        fence(SeqCst);
        let read = match server.stopping().is_cancelled() {
            true => Ok(0),
            false => self.read_within(server.limits().idle, buffer),
        };
        self.idle.store(false, SeqCst);
        read.or_else(|error| if timed_out(&error) { Ok(0) } else { Err(error) })
    }

    /// Reads the next bytes. An error if none come for so long.
    fn read_within(&self, limit: Duration, buffer: &mut [u8]) -> io::Result<usize> {
        timeout(limit, || (&self.stream).read(buffer)).unwrap_or(Err(ErrorKind::TimedOut.into()))
    }
}

impl Client {
    pub(super) fn new(guest: Guest) -> Client {
        Client {
            guest,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            ended: false,
        }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.guest.connection
    }

    pub(crate) fn server(&self) -> &Server {
        &self.guest.server
    }

    /// Reads the client's next bytes, for protocols without requests. 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.guest.connection.wait(&self.guest.server, buffer);
        self.ended |= !matches!(read, Ok(1..));
        read
    }

    /// The next request of at most `max` bytes; `None` if the client wants no more, or the server.
    ///
    /// `parse` finds it at the start of the bytes, and says how many it takes; `None` if some are
    /// missing.
    pub(crate) fn request<T, E>(
        &mut self,
        max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<T>, Refusal<E>> {
        let request = self.whole_request(max, parse)?;
        self.keep_small().map_err(Refusal::Failed)?;
        Ok(request)
    }

    fn whole_request<T, E>(
        &mut self,
        max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<T>, Refusal<E>> {
        if let Some(request) = self.take(&parse)? {
            return Ok(Some(request)); // it has come with the one before it
        }
        self.flush().map_err(Refusal::Failed)?;
        if self.input.is_empty() && self.read_more(max).map_err(Refusal::Failed)? == 0 {
            return Ok(None);
        }
        let limit = self.server().limits().request;
        let read_all = || {
            loop {
                if let Some(request) = self.take(&parse)? {
                    return Ok(Some(request));
                }
                if self.input.len() >= max {
                    return Err(Refusal::TooLarge);
                }
                match self.read_more(max) {
                    Ok(0) => return Err(Refusal::CutShort),
                    Ok(_) => {}
                    Err(error) if timed_out(&error) => return Err(Refusal::TooSlow),
                    Err(error) => return Err(Refusal::Failed(error)),
                }
            }
        };
        timeout(limit, read_all).unwrap_or(Err(Refusal::TooSlow))
    }

    /// Takes the request at the start of the input. If some of it is missing, only its start is left there.
    fn take<T, E>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<T>, Refusal<E>> {
        let found = parse(&self.input[self.taken..]).map_err(Refusal::Bad)?;
        match found {
            Some((request, length)) => {
                self.taken += length;
                Ok(Some(request))
            }
            None => {
                self.input.drain(..self.taken);
                self.taken = 0;
                Ok(None)
            }
        }
    }

    /// Appends the next bytes to `input`, and returns how many they were.
    fn read_more(&mut self, max: usize) -> io::Result<usize> {
        let connection = self.guest.connection.clone();
        let held = self.input.len();
        if held == 0 && self.input.capacity() > CHUNK {
            self.input = Vec::new(); // was a big request
        }
        self.input
            .resize((held + held.max(CHUNK)).min(max.max(CHUNK)), 0);
        let room = &mut self.input[held..];
        let read = match held {
            0 => connection.wait(&self.guest.server, room),
            _ => (&connection.stream).read(room),
        };
        self.input.truncate(held + *read.as_ref().unwrap_or(&0));
        self.ended |= matches!(read, Ok(0));
        read
    }

    /// Where replies go. They are sent before the next wait.
    pub(crate) fn reply(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends the replies if they are many.
    pub(crate) fn keep_small(&mut self) -> io::Result<()> {
        if self.output.len() < ENOUGH {
            return Ok(());
        }
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.guest.connection.send(&self.output)?;
        self.output.clear();
        self.output.shrink_to(CHUNK);
        Ok(())
    }

    /// Ends the connection such that the last reply arrives. See the header.
    pub(super) fn part(&mut self) {
        let stream = &self.guest.connection.stream;
        if self.ended || stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let (mut left, mut unwanted) = (PARTING.1, [0; 4096]);
        let _elapsed = timeout(PARTING.0, || {
            while left > 0
                && let Ok(n @ 1..) = self.read(&mut unwanted)
            {
                left = left.saturating_sub(n);
            }
        });
    }
}

/// Whether a call took longer than the socket's time-out.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, what)
}

impl<E> Refusal<E> {
    /// The refusal as an error; `bad` translates the protocol's own refusals.
    pub(crate) fn into_error(self, bad: impl FnOnce(E) -> String) -> io::Error {
        match self {
            Refusal::Bad(error) => io::Error::new(ErrorKind::InvalidData, bad(error)),
            Refusal::TooLarge => io::Error::new(ErrorKind::InvalidData, "its request is too large"),
            Refusal::TooSlow => too_slow("its request took too long to arrive"),
            Refusal::CutShort => io::Error::new(ErrorKind::UnexpectedEof, "its request ends early"),
            Refusal::Failed(error) => error,
        }
    }
}
