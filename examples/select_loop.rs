//! A loop that many servers have: it waits for a request, a regular tick or a stop signal, and serves
//! the one that comes first. The client gives up when an answer takes too long.
//!
//! ```sh
//! cargo run --example select_loop
//! ```

use std::time::Duration;

use greenthread::channel::{Receiver, Sender, after, bounded, never, tick};
use greenthread::select;

struct Request {
    number: u64,
    reply: Sender<u64>,
}

/// Serves until it is told to stop, and returns the number of requests served.
fn serve(requests: Receiver<Request>, stop: Receiver<()>) -> u64 {
    let report = tick(Duration::from_millis(20));
    let mut served = 0;
    loop {
        select! {
            recv(requests) -> request => match request {
                Ok(Request { number, reply }) => {
                    if number % 100 == 0 {
                        greenthread::sleep(Duration::from_millis(5)); // a slow one
                    }
                    // The client may have given up and dropped the receiver.
                    let _ = reply.send(number * number);
                    served += 1;
                }
                Err(_) => return served, // all clients are gone
            },
            recv(report) -> _ => println!("{served} requests so far"),
            recv(stop) -> _ => return served,
        }
    }
}

/// Asks, and waits for `patience` at most; for ever if there is none.
fn ask(server: &Sender<Request>, number: u64, patience: Option<Duration>) -> Option<u64> {
    let (reply, answer) = bounded(1);
    server.send(Request { number, reply }).ok()?;
    let timeout = patience.map_or_else(never, after);
    select! {
        recv(answer) -> answer => answer.ok(),
        recv(timeout) -> _ => None,
    }
}

fn main() {
    let (requests, inbox) = bounded(16);
    let (stop, stopped) = bounded(0);
    let server = greenthread::spawn(move || serve(inbox, stopped));
    let clients: Vec<_> = (0..10)
        .map(|client| {
            let requests = requests.clone();
            greenthread::spawn(move || {
                let mut late = 0;
                for number in (client..1000).step_by(10) {
                    let patience = (number % 100 == 0).then_some(Duration::from_millis(1));
                    match ask(&requests, number, patience) {
                        Some(answer) => assert_eq!(answer, number * number),
                        None => late += 1,
                    }
                }
                late
            })
        })
        .collect();
    let late: u32 = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    stop.send(()).expect("the server still runs");
    println!("{} served, {late} came too late", server.join().unwrap());
}
