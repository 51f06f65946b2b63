//! Plain blocking code, one thread a connection. `on_std` and `on_greenthread` are this file with
//! different imports.

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::net::{TcpListener, TcpStream};
use super::{File, thread};
use crate::http::Requests;
use crate::read::{Block, Reads, THREADS};
use crate::serve::{ANYWHERE, BUFFER, Hogs, Work};

/// Serves, and tells where; the caller does not return from that.
pub fn serve(work: Work, hogs: Hogs, announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let listener = TcpListener::bind(ANYWHERE)?;
    let address = listener.local_addr()?;
    for _ in 0..hogs.count {
        thread::spawn(move || hog(hogs.yielding));
    }
    thread::spawn(move || accept(&listener, work));
    announce(address)
}

fn accept(listener: &TcpListener, work: Work) -> io::Result<Infallible> {
    loop {
        let (connection, _) = listener.accept()?;
        connection.set_nodelay(true)?;
        thread::spawn(move || match work {
            Work::Echo => echo(connection),
            Work::Http => http(connection),
        });
    }
}

/// Ends when the client does, or with the connection.
fn echo(mut connection: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            n => connection.write_all(&buffer[..n])?,
        }
    }
}

fn http(mut connection: TcpStream) -> io::Result<()> {
    let (mut requests, mut replies) = (Requests::new(), Vec::new());
    loop {
        let n = connection.read(requests.room())?;
        if n == 0 || requests.answer(n, &mut replies).is_err() {
            return Ok(());
        }
        connection.write_all(&replies)?;
        replies.clear();
    }
}

fn hog(yielding: bool) {
    loop {
        match yielding {
            true => thread::yield_now(),
            false => _ = black_box(0),
        }
    }
}

/// Reads at random from many threads until time is up: how many blocks.
#[allow(clippy::useless_conversion, reason = "one of the two `File`s is std's")]
pub fn read(file: std::fs::File, reads: Arc<Reads>) -> u64 {
    let file = Arc::new(File::from(file));
    let threads = (0..THREADS).map(|thread| {
        let (file, reads) = (file.clone(), reads.clone());
        thread::spawn(move || {
            let mut block = Box::new(Block::EMPTY);
            reads
                .positions(thread)
                .map(|position| {
                    let n = file.read_at(block.bytes(), position.start());
                    block.check(n, position);
                })
                .count() as u64
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .map(|thread| thread.join().expect("a reader panicked"))
        .sum()
}
