//! Web servers, on green threads: tiny_http and rouille, with thousands of kept-alive connections.
//!
//! Both make kernel threads themselves, by `std::thread::spawn`: tiny_http one that accepts, and one for each
//! connection (four at least), which reads the requests and queues them; rouille, which is built on tiny_http, some
//! for its handlers. What runs on green threads is what the program runs: here the threads that take the requests
//! from tiny_http's queue and answer them, and the work of rouille's handlers. So the bounds say: a kernel thread a
//! connection, and no more.
//!
//! tiny_http gives a connection to a thread that it believes idle; when many come at once it believes so of the same
//! thread twice, and then a connection waits until another one is closed, on kernel threads as well. Hence here each
//! connection is opened when the one before has had its first answer.

use greenthread::net::TcpStream;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use support::http::Connection;
use support::{Test, descriptors, some};

/// Green threads that answer requests.
const HANDLERS: usize = 64;
/// More than the kernel's buffers take.
const BIG: usize = 32 << 20;
/// Kernel threads beside those of connections; 52 of them for the connections of wrk and of the slow clients.
const BESIDE: usize = 300;

fn many() -> usize {
    let many = if cfg!(feature = "servers") {
        5_000
    } else {
        500
    };
    some(many, 50).min((descriptors() - 200) / 2)
}

/// What both servers answer to a path and a body.
fn answer(path: &str, body: Vec<u8>) -> Vec<u8> {
    match path {
        "/big" => vec![b'x'; BIG],
        "/echo" => body,
        "/sleep" => {
            std::thread::sleep(Duration::from_millis(20));
            b"slept".to_vec()
        }
        _ => format!("answer to {path}").into_bytes(),
    }
}

fn connect(address: SocketAddr) -> Connection<TcpStream> {
    Connection::new(TcpStream::connect(address).unwrap())
}

/// A client that asks for much and reads nothing; one that says half a request; and `n` others, all of which are
/// served meanwhile. Then the slow ones get their answers too.
fn serve_all(address: SocketAddr, n: usize) {
    let mut reader = connect(address);
    reader.send("/big", b"");
    let mut writer = connect(address);
    let request = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nat length";
    writer.stream().write_all(&request[..40]).unwrap();

    let connections: Vec<_> = (0..n)
        .map(|i| {
            let mut connection = connect(address);
            let path = format!("/first/{i}");
            assert_eq!(connection.request(&path, b""), answer(&path, vec![]));
            connection
        })
        .collect();
    let served = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = connections
        .into_iter()
        .enumerate()
        .map(|(i, mut connection)| {
            let served = served.clone();
            greenthread::spawn(move || {
                for turn in 0..3 {
                    let body = format!("thread {i}, turn {turn}").repeat(1 + i % 50);
                    assert_eq!(
                        connection.request("/echo", body.as_bytes()),
                        body.as_bytes()
                    );
                }
                if i.is_multiple_of(20) {
                    assert_eq!(connection.request("/sleep", b""), b"slept");
                }
                served.fetch_add(1, Relaxed);
                connection
            })
        })
        .collect();
    if cfg!(feature = "servers") {
        greenthread::blocking(|| real_clients(address));
    }
    let connections: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(served.load(Relaxed), n);
    drop(connections);

    for byte in request[40..].chunks(1) {
        writer.stream().write_all(byte).unwrap();
        greenthread::sleep(Duration::from_micros(100));
    }
    assert_eq!(writer.answer(), b"at length");
    assert!(
        reader.answer() == answer("/big", vec![]),
        "not what was asked for"
    );
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// curl and wrk, from outside.
fn real_clients(address: SocketAddr) {
    for i in 0..20 {
        let url = format!("http://{address}/curl/{i}");
        let text = output(Command::new("curl").args(["-sSf", "-m", "30", &url]));
        assert_eq!(text, format!("answer to /curl/{i}"));
        let (url, body) = (format!("http://{address}/echo"), format!("body {i}"));
        let text = output(Command::new("curl").args(["-sSf", "-m", "30", "-d", &body, &url]));
        assert_eq!(text, body);
    }
    let url = format!("http://{address}/wrk");
    let text = output(Command::new("wrk").args(["-t1", "-c50", "-d2s", &url]));
    eprintln!("{text}");
    let requests = text
        .lines()
        .find(|line| line.contains("requests in"))
        .unwrap();
    let requests: usize = requests.split_whitespace().next().unwrap().parse().unwrap();
    assert!(requests > 0 && !text.contains("Non-2xx"));
}

#[test]
fn tiny_http() {
    let test = Test::new("tiny_http", 120);
    test.after_others(BESIDE); // idle ones stay for five seconds
    let n = many();
    let start = greenthread::spawn(|| Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap()));
    let server = start.join().unwrap();
    let address = server.server_addr().to_ip().unwrap();
    let handlers: Vec<_> = (0..HANDLERS)
        .map(|_| {
            let server = server.clone();
            greenthread::spawn(move || {
                let mut answered = 0;
                while let Ok(mut request) = server.recv() {
                    let mut body = Vec::new();
                    // The client may be gone by the end of a test with wrk.
                    if request.as_reader().read_to_end(&mut body).is_ok() {
                        let data = answer(request.url(), body);
                        let _ = request.respond(tiny_http::Response::from_data(data));
                    }
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    greenthread::spawn(move || serve_all(address, n))
        .join()
        .unwrap();
    handlers.iter().for_each(|_| server.unblock());
    let answered: usize = handlers.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(answered >= 4 * n);
    eprintln!("{answered} requests");
    test.never_above(n + BESIDE);
}

/// rouille's own eight threads call the handler, which hands the work to a green thread.
#[test]
fn rouille() {
    let test = Test::new("rouille", 120);
    test.after_others(BESIDE); // idle ones stay for five seconds
    let n = many() / 10;
    let handler = |request: &rouille::Request| {
        greenthread::scope(|scope| {
            let work = scope.spawn(|| {
                let mut body = Vec::new();
                request.data().unwrap().read_to_end(&mut body).unwrap();
                rouille::Response::from_data("text/plain", answer(&request.url(), body))
            });
            work.join().unwrap()
        })
    };
    let server = rouille::Server::new("127.0.0.1:0", handler)
        .unwrap()
        .pool_size(8);
    let address = server.server_addr();
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let server = greenthread::spawn(move || {
        while !over.load(Relaxed) {
            server.poll_timeout(Duration::from_millis(10));
        }
    });
    greenthread::spawn(move || serve_all(address, n))
        .join()
        .unwrap();
    stop.store(true, Relaxed);
    server.join().unwrap();
    test.never_above(n + 8 + BESIDE);
}
