//! An echo over std's sockets, beside the same over greenthread's: what a wait for a socket costs.
//!
//! ```sh
//! GT_GUESTS_RATIO=1 cargo test --release -p greenthread-guests --test echo -- --nocapture
//! ```

use std::io::{Read, Write};
use std::time::Instant;
use support::{Test, descriptors, ratios_count, some};

/// An echo may take so many times as long as over greenthread's sockets.
const BOUND: f64 = 1.6;
const MESSAGE: usize = 64;

/// Nanoseconds of an echo, on so many connections, in so many rounds. Both ends are green threads.
macro_rules! echo {
    ($net:ident) => {
        |connections: usize, rounds: usize| {
            let listener = $net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let pair = |_| {
                let near = $net::TcpStream::connect(address).unwrap();
                let far = listener.accept().unwrap().0;
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                (near, far)
            };
            let pairs: Vec<_> = (0..connections).map(pair).collect();
            let start = Instant::now();
            let threads = pairs.into_iter().flat_map(|(mut near, mut far)| {
                let asks = move || {
                    let mut message = [7; MESSAGE];
                    for _ in 0..rounds {
                        near.write_all(&message).unwrap();
                        near.read_exact(&mut message).unwrap();
                    }
                };
                let answers = move || {
                    let mut message = [0; MESSAGE];
                    for _ in 0..rounds {
                        far.read_exact(&mut message).unwrap();
                        far.write_all(&message).unwrap();
                    }
                };
                [greenthread::spawn(asks), greenthread::spawn(answers)]
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            start.elapsed().as_nanos() as f64 / (connections * rounds) as f64
        }
    };
}

#[test]
fn echoes() {
    use greenthread::net as our_net;
    use std::net as std_net;
    let test = Test::new("echoes", 120);
    let connections = some(1_000, 50).min((descriptors() - 200) / 2);
    let (theirs, ours) = (echo!(std_net), echo!(our_net));
    let (echoes, times) = if ratios_count() { (20, 40) } else { (5, 1) };
    let mut best = [f64::INFINITY; 2];
    for _ in 0..times {
        best[0] = best[0].min(theirs(connections, echoes));
        best[1] = best[1].min(ours(connections, echoes));
    }
    let [theirs, ours] = best;
    let ratio = theirs / ours;
    eprintln!(
        "{connections} connections: {theirs:.0} ns an echo over std's sockets, {ours:.0} over greenthread's: {ratio:.2}"
    );
    assert!(
        !ratios_count() || ratio <= BOUND,
        "{ratio:.2} times greenthread's own"
    );
    test.report();
}
