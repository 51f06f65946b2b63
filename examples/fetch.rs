//! A synchronous client from elsewhere, `minreq`, in fifty green threads at once.
//!
//! `minreq` knows nothing of green threads: it uses std's sockets, and blocks. Its blocking calls park the
//! green thread (or, without the feature `unmodified`, block a kernel thread, whose processor goes to
//! another thread). The server here proves it: it answers no request before all fifty have come. So the
//! program ends only if all fifty threads are in the middle of a request at once, however few
//! processors there are.
//!
//! ```sh
//! cargo run --release --example fetch
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use greenthread::sync::Barrier;

const CLIENTS: usize = 50;

/// Answers one request with its path, as soon as `all` have asked.
fn answer(stream: TcpStream, all: &Barrier) -> io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    all.wait();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (status, size) = ("HTTP/1.1 200 OK", path.len());
    write!(
        &stream,
        "{status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{path}"
    )
}

fn serve(listener: TcpListener) {
    let all = Arc::new(Barrier::new(CLIENTS));
    for stream in listener.incoming().take(CLIENTS).flatten() {
        let all = all.clone();
        greenthread::spawn(move || {
            if let Err(error) = answer(stream, &all) {
                eprintln!("server: {error}");
            }
        });
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    greenthread::spawn(move || serve(listener));
    let start = Instant::now();
    let fetch = |number| {
        greenthread::spawn(move || {
            let path = format!("/page/{number}");
            let request = minreq::get(format!("http://{address}{path}")).with_timeout(30);
            match request.send()?.as_str()? {
                text if text == path => Ok(()),
                text => Err(minreq::Error::IoError(io::Error::other(format!(
                    "{path}: got '{text}'"
                )))),
            }
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(fetch).collect();
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    println!(
        "{CLIENTS} fetches, all in flight at once, in {:?}",
        start.elapsed()
    );
    Ok(())
}
