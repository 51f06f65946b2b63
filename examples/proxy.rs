//! A TCP proxy: it sends all that it receives to another address, and returns the answers.
//!
//! Each connection has two green threads, one for each direction. The proxy passes the end of one
//! direction on while the other one goes on, as TCP does.
//!
//! ```sh
//! cargo run --release --example proxy -- --listen 127.0.0.1:7008 --to 127.0.0.1:7007
//! ```

use greenthread::net::{Shutdown, SocketAddr, TcpStream};
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use greenthread::time::timeout;

mod support;

use support::{Client, Server, timed_out};

const ABOUT: &str = "proxy: passes connections on to another address.";

/// The time when bytes last moved on a connection, in either direction, in milliseconds from its
/// beginning.
struct Pulse {
    begun: Instant,
    last: AtomicU64,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse {
            begun: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    fn beat(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.last.store(now, Relaxed);
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Relaxed));
        self.begun.elapsed().saturating_sub(last)
    }
}

/// Copies until `from` ends, and passes the end on. If a side fails, both are closed, which ends
/// the other direction's thread too.
fn copy(mut from: &TcpStream, mut to: &TcpStream, pulse: &Pulse, idle: Duration) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    let mut pass = || loop {
        let left = idle.saturating_sub(pulse.silence());
        match timeout(left, || from.read(&mut buffer)).unwrap_or(Err(ErrorKind::TimedOut.into())) {
            Ok(0) => return to.shutdown(Shutdown::Write),
            Ok(n) => to.write_all(&buffer[..n])?,
            // One direction may be silent for long while the other is busy.
            Err(error) if timed_out(&error) && pulse.silence() < idle => continue,
            Err(error) => return Err(error),
        }
        pulse.beat();
    };
    let passed = pass();
    if passed.is_err() {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
    passed
}

fn pass_on(client: &mut Client, to: SocketAddr, patience: Duration) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&to, patience).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot connect to {to}: {error}"))
    })?;
    let idle = client.server().limits().idle;
    server.set_nodelay(true)?;
    server.set_write_timeout(Some(idle))?;
    let (near, far, pulse) = (client.connection().stream(), &server, &Pulse::new());
    greenthread::scope(|scope| {
        let back = scope.spawn(|| copy(far, near, pulse, idle));
        let forth = copy(near, far, pulse, idle);
        let back = back
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a panic")));
        forth.and(back)
    })
    .or_else(|error| {
        if timed_out(&error) {
            Ok(())
        } else {
            Err(error)
        }
    }) // was idle
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let own = &[
        (
            "to",
            "ADDRESS",
            "127.0.0.1:7007",
            "where to pass connections on to",
        ),
        (
            "connect-time",
            "SECONDS",
            "5",
            "give up connecting there after so long",
        ),
    ];
    let args = Server::args(ABOUT, "127.0.0.1:7008", own, args);
    let (to, patience) = (args.get("to"), args.seconds("connect-time"));
    Server::bind(&args).run(move |client| pass_on(client, to, patience))
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
