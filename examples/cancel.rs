//! Ten servers are asked at once, the first three answers win, and the waits for the others end.
//!
//! The servers are slow, each by another time. The clients use std's sockets, as a library would: their
//! blocking reads end when the group is cancelled. (Those of kernel threads go on until the answer comes.)
//!
//! ```sh
//! cargo run --release --example cancel
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use greenthread::{cancel, channel, time};

const SERVERS: u64 = 10;
const WANTED: usize = 3;

/// Starts a server that answers one client, after a while.
fn serve(number: u64) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    greenthread::spawn(move || {
        let (mut client, _) = listener.accept()?;
        greenthread::sleep(Duration::from_millis(number * number * 20));
        write!(client, "server {number}")
    });
    Ok(address)
}

fn ask(server: SocketAddr) -> io::Result<String> {
    let mut answer = String::new();
    TcpStream::connect(server)?.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The first answers. The threads of the group borrow from here.
fn ask_all(servers: &[SocketAddr], ended: &AtomicUsize) -> Vec<String> {
    let (sender, answers) = channel::bounded(0);
    cancel::group(|group| {
        for &server in servers {
            let sender = &sender;
            group.spawn(move || match ask(server) {
                Ok(answer) => drop(sender.send(answer)),
                Err(_) => drop(ended.fetch_add(1, Relaxed)),
            });
        }
        let first = answers.iter().take(WANTED).collect();
        group.cancel();
        first
    })
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = (1..=SERVERS).map(serve).collect::<io::Result<Vec<_>>>()?;
    let (begin, ended) = (Instant::now(), AtomicUsize::new(0));
    // If fewer than three servers ever answered, this would end, too.
    let first = time::timeout(Duration::from_secs(60), || ask_all(&servers, &ended))?;
    println!("after {:.0?}:", begin.elapsed());
    first.iter().for_each(|answer| println!("  {answer}"));
    println!("  {} others were ended", ended.into_inner());
    Ok(())
}
