//! HTTP clients, on green threads: ten thousand requests in flight, and the speed beside a client of our own.

use greenthread::net::TcpStream;
use greenthread::sync::Semaphore;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use support::http::{Gate, Server};
use support::{Test, descriptors, our_sockets, ratios_count, some};

/// Kernel threads while all wait, and at any time.
const BOUND: usize = 40;
const PEAK: usize = 300;

/// A client by its function from an address and a path to a body.
type Client = Arc<dyn Fn(SocketAddr, &str) -> String + Send + Sync>;

/// With ureq's own settings, but for the number of connections that it keeps.
fn config(idle: usize) -> ureq::config::Config {
    ureq::Agent::config_builder()
        .max_idle_connections(idle)
        .max_idle_connections_per_host(idle)
        .build()
}

fn agent(idle: usize) -> ureq::Agent {
    config(idle).new_agent()
}

/// ureq without and with connections that it keeps.
fn ureq_client(agent: ureq::Agent) -> Client {
    Arc::new(move |address, path| {
        let mut answer = agent.get(format!("http://{address}{path}")).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    })
}

fn minreq_client() -> Client {
    Arc::new(|address, path| {
        let answer = minreq::get(format!("http://{address}{path}"))
            .send()
            .unwrap();
        assert_eq!(answer.status_code, 200);
        answer.as_str().unwrap().to_owned()
    })
}

/// The same by hand, over greenthread's sockets.
fn our_client() -> Client {
    Arc::new(|address, path| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: by-hand\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "));
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    })
}

/// Each of `n` green threads makes one request, as many at once as there are permits.
fn requests(
    n: usize,
    at_once: usize,
    server: Server,
    folder: &'static str,
    client: &Client,
) -> Vec<greenthread::JoinHandle<()>> {
    let permits = Arc::new(Semaphore::new(at_once));
    let request = |i| {
        let (client, permits) = (client.clone(), permits.clone());
        greenthread::spawn(move || {
            let _permit = permits.acquire();
            let path = format!("/{folder}/{i}");
            let answer = client(server.address(i), &path);
            assert_eq!(answer, format!("answer to {path}"));
        })
    };
    (0..n).map(request).collect()
}

/// So many connections have descriptors for both ends.
fn at_once(n: usize) -> usize {
    n.min((descriptors() - 200) / 2)
}

/// No request is answered before all that there are descriptors for have come.
fn all_in_flight(name: &'static str, client: Client) {
    let test = Test::new(name, 120);
    let n = some(10_000, 500);
    let at_once = at_once(n);
    let gate = Arc::new(Gate::default());
    let server = Server::new(&gate);
    let requests = requests(n, at_once, server, "held", &client);
    test.until(|| gate.waiting() == at_once);
    eprintln!("{name}: {at_once} of {n} requests in flight");
    test.all_wait(BOUND);
    gate.open();
    requests.into_iter().for_each(|t| t.join().unwrap());
    test.report();
}

#[test]
fn ureq_in_flight() {
    all_in_flight("ureq", ureq_client(agent(0)));
}

#[test]
fn ureq_with_a_pool_in_flight() {
    all_in_flight("ureq, with kept connections", ureq_client(agent(100)));
}

#[test]
fn minreq_in_flight() {
    all_in_flight("minreq", minreq_client());
}

/// How many requests are in flight where their speed is measured. At each of them ureq walks the list of its open
/// connections, so that with thousands the time depends on how many happen to be open.
const IN_FLIGHT: usize = 500;

/// The same client over std's sockets and over greenthread's, in turn: the best of several rounds.
#[test]
fn speed() {
    let test = Test::new("requests a second", 120);
    let n = some(10_000, 500);
    let at_once = at_once(IN_FLIGHT);
    let server = Server::new(&Arc::default());
    let over_ours = |idle| ureq_client(our_sockets::agent(config(idle)));
    let pairs = [
        ("ureq", ureq_client(agent(0)), over_ours(0)),
        (
            "ureq, with kept connections",
            ureq_client(agent(100)),
            over_ours(100),
        ),
        ("minreq, and by hand", minreq_client(), our_client()),
    ];
    let mut best = [[0.0f64; 2]; 3];
    for _ in 0..if ratios_count() { 8 } else { 2 } {
        for ((_, std, ours), best) in pairs.iter().zip(&mut best) {
            for (client, best) in [std, ours].into_iter().zip(best) {
                let start = Instant::now();
                let requests = requests(n, at_once, server, "at-once", client);
                requests.into_iter().for_each(|t| t.join().unwrap());
                *best = best.max(n as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    let ratios = best.map(|[std, ours]| std / ours);
    for (((name, ..), [std, ours]), ratio) in pairs.iter().zip(best).zip(ratios) {
        eprintln!(
            "{name}: {std:.0} requests a second over std's sockets, {ours:.0} over greenthread's: {ratio:.2}"
        );
    }
    // The third is another client by hand: it is only printed.
    let fast = ratios[..2].iter().all(|ratio| *ratio >= 0.8);
    assert!(
        !ratios_count() || fast,
        "slower than over greenthread's sockets: {ratios:.2?}"
    );
    test.never_above(PEAK);
}
