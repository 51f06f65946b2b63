//! Clients with event loops inside, which limits do not end: `cancel::on_cancel` cancels the query, or closes the socket.

use greenthread::{cancel, time};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use support::stalls::{
    Full, LARGE, LIMIT, Question, Server, Stubborn, ends, http, own_answers, stall, twice,
};
use support::{Test, server};

/// Shuts down the connections to this address, made or not: what a program does that knows no better way to its library's
/// sockets.
fn close_to(address: SocketAddr) {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let fd: RawFd = name.parse().unwrap();
        // SAFETY: zeroes are a valid address, and the calls write no more than they are told. A number that is no socket's fails.
        unsafe {
            let mut peer: libc::sockaddr_in = std::mem::zeroed();
            let mut length = size_of_val(&peer) as libc::socklen_t;
            let found = libc::getpeername(fd, (&raw mut peer).cast(), &mut length) == 0;
            let mut state = 0u8;
            let mut length = 1;
            let place = (&raw mut state).cast();
            let tcp = libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, place, &mut length) == 0;
            const SYN_SENT: u8 = 2;
            let is_this = found && u16::from_be(peer.sin_port) == address.port();
            if is_this || !found && tcp && state == SYN_SENT {
                libc::shutdown(fd, libc::SHUT_RDWR);
            }
        }
    }
}

fn get(client: &reqwest::blocking::Client, url: String, body: Vec<u8>) -> reqwest::Result<Vec<u8>> {
    Ok(client.post(url).body(body).send()?.bytes()?.to_vec())
}

#[test]
fn reqwest() {
    twice("reqwest", || {
        let (server, full) = (Server::new(http), Full::new());
        let client = reqwest::blocking::Client::builder()
            .timeout(None)
            .build()
            .unwrap();
        let ends = |what, address, path: &str, body| {
            let url = format!("http://{address}/{path}");
            ends(what, || {
                cancel::on_cancel(|| close_to(address), || get(&client, url, body))
            });
        };
        ends("connecting", full.address(), "", vec![]);
        for path in ["head", "in-head", "body"] {
            ends(path, server.address, path, vec![]);
        }
        ends("sending", server.address, "deaf", vec![7u8; LARGE]);
        let ask = |path: &str| get(&client, server.url(path), vec![]);
        assert_eq!(ask("/second").unwrap(), b"second");
        ends("second", server.address, "second", vec![]);
        assert_eq!(ask("/own").unwrap(), b"own");
        // Without a way out it goes on, and the value counts.
        let slow = Question {
            n: 1,
            place: 1,
            micros: 2 * LIMIT.as_micros() as u64,
        };
        let late = time::timeout(LIMIT, || ask(&format!("/{}", slow.text())));
        assert!(late.unwrap().unwrap() == slow.answer());
    });
}

/// Each thread has a server of its own, so that it closes only its own connection.
#[test]
fn reqwest_answers() {
    let _test = Test::new("reqwest's answers", 120);
    let servers: [Server; 4] = std::array::from_fn(|_| Server::new(http));
    let client = reqwest::blocking::Client::builder()
        .timeout(None)
        .build()
        .unwrap();
    own_answers("reqwest", LIMIT / 2, |thread, question| {
        let server = &servers[thread];
        let length = if question.is_large() { LARGE / 16 } else { 0 };
        let url = server.url(&format!("/{}", question.text()));
        cancel::on_cancel(
            || close_to(server.address),
            || get(&client, url, vec![7u8; length]),
        )
    });
}

fn config(address: SocketAddr) -> postgres::Config {
    let mut config = postgres::Config::new();
    config
        .host(&address.ip().to_string())
        .port(address.port())
        .user("guests");
    config
}

#[test]
fn postgres_connecting() {
    twice("postgres", || {
        let full = Full::new();
        let silent = Server::new(|_stream| stall());
        for (what, address) in [("connecting", full.address()), ("greeting", silent.address)] {
            ends(what, || {
                cancel::on_cancel(
                    || close_to(address),
                    || config(address).connect(postgres::NoTls).map(drop),
                )
            });
        }
    });
}

/// Runs a query that the end of a frame cancels.
fn query(client: &mut postgres::Client, query: &str) -> Result<Vec<u8>, postgres::Error> {
    let token = client.cancel_token();
    let row = cancel::on_cancel(
        || drop(token.cancel_query(postgres::NoTls)),
        || client.query_one(query, &[]),
    )?;
    Ok(row.get::<_, &str>(0).as_bytes().to_vec())
}

/// The connection is as good as before. But the server's process gets two signals for one cancellation, the second of
/// which may be for the next query.
fn own(client: &mut postgres::Client) {
    let answer = query(client, "SELECT 'own'").or_else(|_| query(client, "SELECT 'own'"));
    assert_eq!(answer.unwrap(), b"own");
}

#[test]
fn postgres_itself() {
    let Some(address) = server("GT_POSTGRES") else {
        return;
    };
    let config: postgres::Config = address.parse().unwrap();
    let connect = move || config.connect(postgres::NoTls);
    let connects = connect.clone();
    twice("postgres itself", move || {
        let mut client = connects().unwrap();
        ends("sleeping", || {
            query(&mut client, "SELECT 'late', pg_sleep(1000)")
        });
        own(&mut client);
        let mut lock = connects().unwrap();
        lock.batch_execute("SELECT pg_advisory_lock(29)").unwrap();
        ends("waiting for a lock", || {
            query(&mut client, "SELECT 'late', pg_advisory_lock(29)")
        });
        own(&mut client);
    });
    let _test = Test::new("postgres' answers", 120);
    let clients: [Stubborn<postgres::Client>; 4] = Default::default();
    own_answers("postgres itself", LIMIT / 2, |thread, question| {
        let text = String::from_utf8(question.answer()).unwrap();
        let seconds = match question.place {
            0 => 0.0,
            _ => question.micros as f64 / 1e6,
        };
        clients[thread].ask(&connect, |client| {
            query(client, &format!("SELECT '{text}', pg_sleep({seconds})"))
        })
    });
}
