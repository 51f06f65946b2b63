//! One client: its kernel thread reads its requests and writes the answers, and looks between them which threads run.
//!
//! | it ends the connection | after |
//! |---|---|
//! | a request that is too long | the answer that says so |
//! | no whole request | a minute |
//! | an answer that the client does not take | 5 s without progress, or 30 s in all |
//!
//! A request that is not understood is answered with an error, and the connection goes on. The looks end some seconds
//! after the last summary was asked for.

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::answer;
use super::ask::{self, Ask, LONGEST};
use crate::engine::door::clock;
use crate::engine::inspect::system::kernel_thread;
use crate::engine::inspect::system::observer::Observer;
use crate::observe::runtimes;
use crate::observe::summary::Looks;

const SECOND: u64 = 1_000_000_000;
/// A client that asks nothing is sent away.
const SILENCE: u64 = 60 * SECOND;
/// So long after a summary the looks go on.
const LOOKS_FOR: u64 = 5 * SECOND;
/// A whole answer takes so long at most.
const ANSWER_FOR: u64 = 30 * SECOND;
/// The fewest looks that a summary has, and the time between those.
const FEWEST_LOOKS: u32 = 5;
const QUICK_PACE: u64 = 2_000_000;

pub(super) struct Client {
    /// One descriptor, which a forked child closes.
    stream: Arc<UnixStream>,
    /// What was read and not yet answered.
    read: Vec<u8>,
    pub(super) looks: Looks,
    pub(super) observer: Observer,
    /// When the process began to serve.
    pub(super) started: u64,
    /// When it last asked for something, and for a summary.
    asked: u64,
    summarized: Option<u64>,
}

/// Serves a client until it goes, or is sent away.
pub(super) fn serve(stream: UnixStream, started: u64) {
    let mut client = Client {
        stream: Arc::new(stream),
        read: Vec::new(),
        looks: Looks::default(),
        observer: Observer::new(),
        started,
        asked: clock::now(),
        summarized: None,
    };
    // An error is the client's, or the end.
    let _ = client.live();
}

impl Client {
    fn live(&mut self) -> io::Result<()> {
        while let Some(line) = self.line()? {
            self.asked = clock::now();
            let asked = ask::parse(&line);
            if let Ok(Ask::Summary { .. }) = asked {
                self.look_enough();
                self.summarized = Some(self.asked);
            }
            let stream = self.stream.clone();
            let mut to = BufWriter::new(Slow {
                stream,
                until: clock::now() + ANSWER_FOR,
            });
            match asked {
                Ok(asked) => self.answer(asked, &mut to)?,
                Err(reason) => to.write_all(answer::error(&reason).as_bytes())?,
            }
            to.flush()?;
        }
        Ok(())
    }

    /// The next request, without its end; `None`: there will be none.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let mut line = core::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.read.len() > LONGEST {
                let text = answer::error(&format!("a request has {LONGEST} bytes at most"));
                (&*self.stream).write_all(text.as_bytes())?;
                return Ok(None);
            }
            let now = clock::now();
            if now >= self.asked + SILENCE {
                return Ok(None);
            }
            let looks = self.summarized.is_some_and(|at| now < at + LOOKS_FOR);
            let pause = match looks {
                true => Duration::from_micros(fastrand::u64(15_000..25_000)),
                false => Duration::from_secs(1),
            };
            self.stream.set_read_timeout(Some(pause))?;
            let mut bytes = [0; 1024];
            match (&*self.stream).read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if looks {
                        self.looks.look(&runtimes::all(), &mut self.observer);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The first summary has no looks yet.
    fn look_enough(&mut self) {
        let runtimes = runtimes::all();
        while self.looks.count() < FEWEST_LOOKS {
            self.looks.look(&runtimes, &mut self.observer);
            kernel_thread::rest(QUICK_PACE);
        }
    }
}

/// Writes to a client, but not for ever.
struct Slow {
    stream: Arc<UnixStream>,
    until: u64,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if clock::now() >= self.until {
            return Err(ErrorKind::TimedOut.into());
        }
        (&*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.stream).flush()
    }
}
