//! Streams: what was written is read, byte for byte.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, OnceLock};

use greenthread::{cancel, net, thread};

use super::{Actor, Book};

pub type Ends = (Box<dyn Read + Send>, Box<dyn Write + Send>);

struct Streams {
    make: fn() -> Ends,
    /// Whether a call that is refused shuts the connection down.
    shuts: bool,
}

pub fn of(make: fn() -> Ends, shuts: bool) -> Arc<dyn Book> {
    Arc::new(Streams { make, shuts })
}

fn boxed<R: Read + Send + 'static, W: Write + Send + 'static>(ends: io::Result<(R, W)>) -> Ends {
    let (reader, writer) = ends.unwrap();
    (Box::new(reader), Box::new(writer))
}

pub fn own_net() -> Ends {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    boxed(listener.accept().map(|(far, _)| (far, near)))
}

pub fn stds_net() -> Ends {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    boxed(listener.accept().map(|(far, _)| (far, near)))
}

pub fn own_pipe() -> Ends {
    boxed(greenthread::io::pipe())
}

pub fn stds_pipe() -> Ends {
    boxed(io::pipe())
}

/// Longer than what is read or written at once; each byte says where it stands.
fn pattern(from: usize) -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    let pattern = PATTERN.get_or_init(|| (0..251).cycle().take(MOST + 251).collect());
    &pattern[from % 251..]
}

const MOST: usize = 60_000;

impl Streams {
    /// Calls `pass` with the place in the stream until it returns 0 or the connection is shut. Returns the number of bytes
    /// that have passed, and whether a call of ours was refused that shuts the connection.
    fn pass_all(
        &self,
        actor: &mut Actor,
        mut pass: impl FnMut(&mut Actor, usize) -> Option<io::Result<usize>>,
    ) -> (usize, bool) {
        let mut at = 0;
        loop {
            match pass(actor, at).expect("calls that can fail do not unwind") {
                Ok(0) => return (at, false),
                Ok(n) => at += n,
                Err(error) if cancel::is_cause(&error) => {
                    actor.has_ended();
                    if self.shuts {
                        return (at, true);
                    }
                }
                Err(error) => {
                    let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                    assert!(self.shuts && kinds.contains(&error.kind()), "{error}");
                    return (at, false);
                }
            }
            actor.dawdle();
        }
    }
}

impl Book for Streams {
    fn act(&self, actor: &mut Actor) {
        // Frames do not end what std does on kernel threads.
        while actor.goes_on() && !(self.shuts && actor.index < 2) {
            let (mut reader, mut writer) = (self.make)();
            let (mut other, mut calls) = (actor.second(), 1 + actor.rng.below(10));
            let (written, read) = thread::scope(|s| {
                let writes = s.spawn(|| {
                    let written = self.pass_all(&mut other, |other, at| {
                        calls -= 1;
                        let n = if calls == 0 { 0 } else { other.rng.below(MOST) };
                        other.framed(|| writer.write(&pattern(at)[..n]))
                    });
                    drop(writer);
                    written
                });
                let mut buffer = vec![0; MOST];
                let read = self.pass_all(actor, |actor, at| {
                    let n = 1 + actor.rng.below(MOST);
                    let result = actor.framed(|| reader.read(&mut buffer[..n]));
                    if let Some(Ok(n)) = result {
                        assert!(buffer[..n] == pattern(at)[..n], "other bytes at {at}");
                    }
                    result
                });
                drop(reader);
                (writes.join().unwrap(), read)
            });
            assert!(read.0 <= written.0);
            assert!(read.1 || read.0 == written.0, "{read:?} of {written:?}");
        }
    }

    fn close(&self) {}
}
