//! A server with one green thread for each connection, within limits, until Ctrl-C (or SIGTERM).
//!
//! | state | accepting | connections |
//! |---|---|---|
//! | serving | waits for a client, then for room | as many as allowed; the others wait in the kernel |
//! | pausing | tries again shortly (short of descriptors, memory, threads) | go on |
//! | stopping | has ended | idle ones end at once, others after their request |
//! | cut off | | what is left after the time of grace is cancelled |
//!
//! 1. Each connection has one permit of `room`, and is in `guests`, until its thread ends.
//! 2. No idle connection sleeps through a stop: it says that it is idle, then looks whether the
//!    server stops; `stop` says that it stops, then looks for idle connections. Both have a
//!    fence between, so that one of them sees the other. (A token ends the reads of green threads,
//!    but not those of kernel threads.)
//! 3. A failure on a connection ends the thread of that connection only.

use greenthread::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;

use greenthread::cancel::Token;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::signal::{SIGINT, SIGTERM, Signals};
use greenthread::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use greenthread::time::timeout;

use super::args::{Opt, wrong};
use super::{Args, Client, Connection, say};

/// How long accepting pauses when the system has run out of something.
const PAUSE: Duration = Duration::from_millis(20);

/// The limits of one client, and of all clients together.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) per_client: usize,
    /// Without a byte read or taken.
    pub(crate) idle: Duration,
    /// From the first byte of a request to its last.
    pub(crate) request: Duration,
    pub(crate) grace: Duration,
}

pub(crate) struct Server {
    listener: TcpListener,
    limits: Limits,
    room: Arc<Semaphore>,
    guests: Mutex<Guests>,
    /// For what is to end when the server stops: accepting, and idle work.
    stopping: Token,
    /// For all that its clients wait for.
    cut_off: Token,
    signals: Signals,
}

#[derive(Default)]
struct Guests {
    last: u64,
    connections: HashMap<u64, Arc<Connection>>,
    from: HashMap<IpAddr, usize>,
}

/// A connection's place in the server, which it leaves when this is dropped.
pub(crate) struct Guest {
    pub(super) connection: Arc<Connection>,
    pub(super) server: Arc<Server>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Server {
    /// The command line of a server that listens on `address` if not told otherwise.
    pub(crate) fn args(
        about: &'static str,
        address: &'static str,
        own: &[Opt],
        given: impl Iterator<Item = String>,
    ) -> Args {
        let mut options: Vec<Opt> = own.to_vec();
        options.extend([
            (
                "listen",
                "ADDRESS",
                address,
                "where to listen; port 0 takes a free one",
            ),
            ("connections", "N", "20000", "as many at once; others wait"),
            (
                "per-client",
                "N",
                "20000",
                "as many at once from one address; others are refused",
            ),
            (
                "idle",
                "SECONDS",
                "60",
                "close a connection on which so long nothing moved",
            ),
            (
                "request-time",
                "SECONDS",
                "10",
                "refuse a request that took longer to arrive",
            ),
            (
                "grace",
                "SECONDS",
                "5",
                "on Ctrl-C, what is in progress may take so long",
            ),
        ]);
        Args::parse(about, &options, given)
    }

    /// Listens as the command line says, and prints where. Ends the program if it cannot.
    pub(crate) fn bind(args: &Args) -> Server {
        let limits = Limits {
            connections: args.count("connections"),
            per_client: args.count("per-client"),
            idle: args.seconds("idle"),
            request: args.seconds("request-time"),
            grace: args.seconds("grace"),
        };
        let address: SocketAddr = args.get("listen");
        let bound = TcpListener::bind(address).and_then(|l| Ok((l.local_addr()?, l)));
        let (local, listener) =
            bound.unwrap_or_else(|error| wrong(format!("--listen '{address}': {error}")));
        // Before the address is printed: a program that knows it may stop the server.
        let signals = Signals::new([SIGINT, SIGTERM])
            .unwrap_or_else(|error| wrong(format!("cannot wait for Ctrl-C: {error}")));
        let first = format!("listening on {local}\n"); // not println!, which panics on a full disk
        if let Err(error) = io::Write::write_all(&mut io::stdout(), first.as_bytes()) {
            say(format!(
                "listening on {local}, but standard output fails: {error}"
            ));
        }
        Server {
            room: Arc::new(Semaphore::new(limits.connections)),
            listener,
            limits,
            guests: Mutex::default(),
            stopping: Token::new(),
            cut_off: Token::new(),
            signals,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Is cancelled when the server stops.
    pub(crate) fn stopping(&self) -> &Token {
        &self.stopping
    }

    /// Gives each client a green thread that runs `talk`, until Ctrl-C.
    pub(crate) fn run<F>(self, talk: F) -> ExitCode
    where
        F: Fn(&mut Client) -> io::Result<()> + Send + Sync + 'static,
    {
        let (server, talk) = (Arc::new(self), Arc::new(talk));
        let acceptor = {
            let server = server.clone();
            greenthread::spawn(move || server.stopping.run(|| server.accept(&talk)))
        };
        let _ = server.signals.recv();
        say("stopping; Ctrl-C again stops at once");
        server.stop();
        let _ = acceptor.join();
        let at_once = Token::new();
        let (again, signalled) = (at_once.clone(), server.clone());
        greenthread::spawn(move || {
            if signalled.signals.recv().is_ok() {
                again.cancel();
            }
        });
        let all = server.limits.connections;
        let drained = || drop(server.room.acquire_many(all));
        match at_once.run(|| timeout(server.limits.grace, drained)) {
            Ok(Ok(())) => {}
            Ok(Err(_elapsed)) => {
                let left = server.guests.lock().unwrap().connections.len();
                say(format!("cut off: {left} connections"));
                server.cut_off.cancel();
                let _ = timeout(PAUSE, drained);
            }
            Err(_cancelled) => say("stopped at once"),
        }
        ExitCode::SUCCESS
    }

    fn accept<F>(self: &Arc<Self>, talk: &Arc<F>)
    where
        F: Fn(&mut Client) -> io::Result<()> + Send + Sync + 'static,
    {
        let mut pausing = false;
        loop {
            let permit = self.room.clone().acquire_owned();
            let accepted = self.listener.accept();
            if self.stopping.is_cancelled() {
                return;
            }
            let started = match accepted {
                Ok((stream, peer)) => self.welcome(stream, peer, permit, talk),
                // That client is gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => Err(error),
            };
            match started {
                Ok(()) if pausing => {
                    say("accepting again");
                    pausing = false;
                }
                Ok(()) => {}
                Err(error) => {
                    if !pausing {
                        say(format!("accepting pauses: {error}"));
                        pausing = true;
                    }
                    greenthread::sleep(PAUSE);
                }
            }
        }
    }

    /// Starts a thread for a client. The error is one of the system, not of the client.
    fn welcome<F>(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        talk: &Arc<F>,
    ) -> io::Result<()>
    where
        F: Fn(&mut Client) -> io::Result<()> + Send + Sync + 'static,
    {
        let limits = &self.limits;
        let set_up = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_write_timeout(Some(limits.idle)));
        let (Ok(()), Some(number)) = (set_up, self.enter(peer.ip())) else {
            return Ok(()); // gone already, or refused: it sees the end of the connection
        };
        let connection = Arc::new(Connection::new(stream, peer));
        let mut guests = self.guests.lock().unwrap();
        guests.connections.insert(number, connection.clone());
        drop(guests);
        let mut client = Client::new(Guest {
            connection,
            server: self.clone(),
            number,
            _permit: permit,
        });
        let (server, talk) = (self.clone(), talk.clone());
        let serve = move || {
            let _cut_off = server.cut_off.run(|| {
                let talked = talk(&mut client).and_then(|()| client.flush());
                match talked {
                    Err(error) if !hung_up(&error) && !server.cut_off.is_cancelled() => {
                        say(format!("{peer}: {error}"));
                    }
                    _ => {}
                }
                client.part();
            });
        };
        greenthread::Builder::new().spawn(serve).map(drop)
    }

    /// Counts a client from `address`, and numbers it, unless there are enough from there.
    fn enter(&self, address: IpAddr) -> Option<u64> {
        let mut guests = self.guests.lock().unwrap();
        let from = guests.from.entry(address).or_default();
        if *from == self.limits.per_client {
            drop(guests);
            say(format!("{address}: refused, it has too many connections"));
            return None;
        }
        *from += 1;
        guests.last += 1;
        Some(guests.last)
    }

    /// All connections are told to stop, and no new one is accepted.
    fn stop(&self) {
        self.stopping.cancel();
        self.listener.close(); // a thread that waits in `accept` is woken
        fence(SeqCst);
        for connection in self.guests.lock().unwrap().connections.values() {
            connection.wake_if_idle();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let address = self.connection.peer().ip();
        let mut guests = self.server.guests.lock().unwrap();
        guests.connections.remove(&self.number);
        if let Some(from) = guests.from.get_mut(&address) {
            *from -= 1;
            if *from == 0 {
                guests.from.remove(&address);
            }
        }
    }
}

/// Whether the client went away in the middle, as clients do: nothing to report.
fn hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        ConnectionReset | BrokenPipe | ConnectionAborted | NotConnected
    )
}
