//! Echo at half load: requests at times that are fixed beforehand, whatever the server does, and
//! their latencies from those times on. A server that stands still for a moment therefore pays for
//! every request that it keeps waiting, not only for those that it has got (*coordinated omission*).
//!
//! One thread sends and another one receives. Requests of one connection may follow each other
//! before the first is answered; replies come in order.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::thread::set_current_timer_slack;

use crate::clock;
use crate::{on_greenthread, on_tokio};

/// How much a server reads at a time, at most.
pub const BUFFER: usize = 1024;
/// Bytes of a request, and of its reply.
const MESSAGE: usize = 32;
pub const CONNECTIONS: usize = 50;
/// How long the greatest rate is measured.
const TRIAL: Duration = Duration::from_millis(500);
/// What is measured before this time does not count, in nanoseconds.
const WARM_UP: u64 = 200_000_000;
/// How long replies may take.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// `serve CONTENDER`: prints an address, and serves until standard input ends.
pub fn serve(contender: &str) -> Option<()> {
    match contender {
        "greenthread" => on_greenthread::serve(announce),
        "tokio" => on_tokio::serve(announce),
        _ => return None,
    }
    .expect("the server failed");
    Some(())
}

fn announce(address: SocketAddr) -> ! {
    println!("{address}");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    process::exit(0)
}

/// A server's process; it ends when this is dropped.
pub struct Server {
    child: Child,
    connections: Vec<TcpStream>,
}

impl Server {
    pub fn start(program: &Path, name: &str) -> io::Result<Server> {
        let mut child = Command::new(program)
            .args(["serve", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
        let mut server = Server {
            child,
            connections: Vec::new(),
        };
        let address: SocketAddr = line.trim().parse().map_err(io::Error::other)?;
        for _ in 0..CONNECTIONS {
            let connection = TcpStream::connect(address)?;
            connection.set_nodelay(true)?;
            server.connections.push(connection);
        }
        Ok(server)
    }

    /// Requests a second, when each reply is followed by the next request.
    pub fn greatest_rate(&self) -> io::Result<f64> {
        let events = Events::new(&self.connections)?;
        let (start, mut replies) = (clock::now(), 0);
        for mut connection in &self.connections {
            connection.write_all(&[b'?'; MESSAGE])?;
        }
        let end = start + TRIAL.as_nanos() as u64;
        let mut received = [0; CONNECTIONS];
        let mut waiting = CONNECTIONS;
        while waiting > 0 {
            let now = clock::now();
            events.each(|i| {
                let mut connection = &self.connections[i];
                received[i] += connection.read(&mut [0; MESSAGE])?;
                if received[i] == MESSAGE {
                    received[i] = 0;
                    replies += 1;
                    match now < end {
                        true => connection.write_all(&[b'?'; MESSAGE])?,
                        false => waiting -= 1,
                    }
                }
                Ok(())
            })?;
        }
        Ok(f64::from(replies) / (clock::now() - start) as f64 * 1e9)
    }

    /// Latencies at `rate` requests a second for so long, in nanoseconds.
    pub fn latencies(&self, rate: f64, time: Duration, seed: u64) -> io::Result<Vec<u64>> {
        let (schedule, mut due) = schedule(rate, time, seed);
        let events = Events::new(&self.connections)?;
        let mut latencies = Vec::with_capacity(schedule.len());
        let mut missing = schedule.len();
        let start = clock::now();
        thread::scope(|scope| {
            let sender = scope.spawn(move || self.send(start, &schedule));
            let mut received = [0; CONNECTIONS];
            while missing > 0 {
                events.each(|i| {
                    let mut bytes = [0; BUFFER];
                    let mut connection = &self.connections[i];
                    let n = connection.read(&mut bytes)?;
                    let now = clock::now() - start;
                    received[i] += n;
                    for _ in 0..received[i] / MESSAGE {
                        let due = due[i].pop_front().ok_or(ErrorKind::InvalidData)?;
                        missing -= 1;
                        if due >= WARM_UP {
                            latencies.push(now.saturating_sub(due));
                        }
                    }
                    received[i] %= MESSAGE;
                    match n {
                        0 => Err(ErrorKind::UnexpectedEof.into()),
                        _ => Ok(()),
                    }
                })?;
            }
            sender.join().expect("the sender panicked")
        })?;
        Ok(latencies)
    }

    fn send(&self, start: u64, schedule: &[(u64, usize)]) -> io::Result<()> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        for &(due, i) in schedule {
            let early = (start + due).saturating_sub(clock::now());
            if early > 0 {
                thread::sleep(Duration::from_nanos(early));
            }
            (&self.connections[i]).write_all(&[b'?'; MESSAGE])?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// When to send, in nanoseconds from the beginning, and on which connection: a Poisson process. And
/// the times of each connection.
fn schedule(rate: f64, time: Duration, seed: u64) -> (Vec<(u64, usize)>, Vec<VecDeque<u64>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut at, end) = (0.0, WARM_UP as f64 + time.as_nanos() as f64);
    let (mut all, mut of_each) = (Vec::new(), vec![VecDeque::new(); CONNECTIONS]);
    loop {
        at -= (1.0 - random.f64()).ln() / rate * 1e9;
        if at >= end {
            return (all, of_each);
        }
        let i = random.usize(..CONNECTIONS);
        all.push((at as u64, i));
        of_each[i].push_back(at as u64);
    }
}

/// Tells which connections can be read.
struct Events(rustix::fd::OwnedFd);

impl Events {
    fn new(connections: &[TcpStream]) -> io::Result<Events> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (i, connection) in connections.iter().enumerate() {
            let number = epoll::EventData::new_u64(i as u64);
            epoll::add(&events, connection, number, epoll::EventFlags::IN)?;
        }
        Ok(Events(events))
    }

    /// Waits for some, and does `f` with each.
    fn each(&self, mut f: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
        let mut events = Vec::with_capacity(CONNECTIONS);
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.0, spare, Some(&PATIENCE))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        events
            .iter()
            .try_for_each(|event| f(event.data.u64() as usize))
    }
}
