//! The example servers against clients that misbehave, and short of what they need.
//!
//! The idea: whatever a client does, the error is clear and stays on its connection. In each test a
//! healthy client, connected all the time, goes on getting right replies.

#![cfg(all(green, feature = "net"))]
#![allow(clippy::duplicate_mod)] // each example has its own copy of what they share

#[path = "../support/servers.rs"]
mod servers;

#[allow(dead_code)]
#[path = "../../examples/chat.rs"]
mod chat;
#[allow(dead_code)]
#[path = "../../examples/echo.rs"]
mod echo;
#[allow(dead_code)]
#[path = "../../examples/http/main.rs"]
mod http;
#[allow(dead_code)]
#[path = "../../examples/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../examples/redis/main.rs"]
mod redis;

use crate::common::*;
use servers::*;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// What a child runs.
#[test]
fn server() {
    run_as_child(|example, args| match example {
        "chat" => chat::run(args),
        "echo" => echo::run(args),
        "http" => http::run(args),
        "proxy" => proxy::run(args),
        "redis" => redis::run(args),
        _ => panic!("no example {example}"),
    });
}

#[track_caller]
fn assert_begins(reply: &str, with: &str, what: &str) {
    assert!(
        reply.starts_with(with),
        "{what:.200}: wanted {with}, got {reply}"
    );
}

#[test]
fn http_refuses_what_is_no_request() {
    let _w = watchdog("servers_bad_input::http_refuses_what_is_no_request");
    let server = Server::start("http");
    let healthy = Healthy::http(&server);
    let line = "GET / HTTP/1.1\r\nHost: x\r\n";
    let cases = [
        (400, "\0\0\0\0\r\n\r\n".into()),
        (400, "GET\r\n\r\n".into()),
        (400, "GET / FTP/1.1\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\n\r\n".into()),
        (400, format!("{line}Host: y\r\n\r\n")),
        (400, format!("{line}a b: c\r\n\r\n")),
        (400, format!("{line}Content-Length: -1\r\n\r\n")),
        (400, format!("{line}Content-Length: +1\r\n\r\n")),
        (
            400,
            format!("{line}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        ),
        (
            400,
            "GET /%2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(),
        ),
        (
            400,
            "GET /%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(),
        ),
        (
            400,
            "GET /../x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(),
        ),
        (405, format!("PUT{}Connection: close\r\n\r\n", &line[3..])),
        (413, format!("{line}Content-Length: 65537\r\n\r\n")),
        (
            413,
            format!("{line}Content-Length: 99999999999999999999999\r\n\r\n"),
        ),
        (
            417,
            format!("{line}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
        ),
        (431, format!("GET /{} HTTP/1.1\r\n", "x".repeat(10_000))),
        (431, format!("{line}{}\r\n", "a: b\r\n".repeat(100))),
        (
            501,
            format!("{line}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        (505, "GET / HTTP/3.0\r\n\r\n".into()),
    ];
    for (status, request) in cases {
        let reply = server.ask(&request);
        assert_begins(&reply, &format!("HTTP/1.1 {status} "), &request);
        assert!(reply.contains("\r\nConnection: close\r\n"), "{reply}");
        // What came before in the same breath is answered, and what comes after it is not.
        let reply = server.ask(format!("{GET}{request}{GET}"));
        assert_begins(&reply, "HTTP/1.1 200 OK", &request);
        assert_eq!(reply.matches("\r\nDate: ").count(), 2, "{request}: {reply}");
    }
    healthy.ends();
    server.stop();
}

#[test]
fn redis_and_chat_refuse_what_is_too_much() {
    let _w = watchdog("servers_bad_input::redis_and_chat_refuse_what_is_too_much");
    let server = Server::start("redis --max-request 100000");
    let healthy = Healthy::redis(&server);
    for wrong in [
        "*x\r\n",
        "*99999999\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n$-5\r\n",
        "*1\r\n$99999999999999999999\r\n",
        "*1\r\n$3\r\nabcdef\r\n",
    ] {
        assert_begins(&server.ask(wrong), "-ERR Protocol error: ", wrong);
        let reply = server.ask(format!("PING\r\n{wrong}"));
        assert_begins(&reply, "+PONG\r\n-ERR Protocol error: ", wrong);
    }
    assert_begins(
        &server.ask("x".repeat(70_000)),
        "-ERR Protocol error: too big",
        "a line",
    );
    let words = format!(
        "*100\r\n{}",
        format!("$9999\r\n{}\r\n", "x".repeat(9999)).repeat(20)
    );
    assert_begins(
        &server.ask(&words),
        "-ERR Protocol error: the command is too large",
        "words",
    );
    assert_eq!(server.ask("*0\r\n\r\n*-1\r\nQUIT\r\n"), "+OK\r\n");
    healthy.ends();
    server.stop();

    let server = Server::start("chat");
    let mut member = BufReader::new(server.connect());
    let mut heard = String::new();
    member.get_ref().write_all(b"ann\n").unwrap();
    while !heard.ends_with("* here: ann\n") {
        assert_ne!(member.read_line(&mut heard).unwrap(), 0);
    }
    let reply = server.ask(format!("bob\n{}", "x".repeat(3000)));
    assert!(
        reply.contains("* lines have 1024 bytes at most\n"),
        "{reply}"
    );
    while !heard.ends_with("* bob leaves\n") {
        assert_ne!(member.read_line(&mut heard).unwrap(), 0);
    }
    server.stop();
}

#[test]
fn random_bytes() {
    let _w = watchdog("servers_bad_input::random_bytes");
    let (http, redis) = (
        Server::start("http"),
        Server::start("redis --max-request 10000"),
    );
    let healthy = [Healthy::http(&http), Healthy::redis(&redis)];
    let seed = std::process::id() as u64;
    eprintln!("seed {seed}");
    let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(seed);
    let mut random = || rand::RngExt::random::<u32>(&mut random) as usize;
    for _ in 0..300 {
        for (server, valid) in [(&http, GET), (&redis, "*2\r\n$4\r\nECHO\r\n$4\r\nwell\r\n")] {
            let mut bytes = valid.repeat(1 + random() % 3).into_bytes();
            for _ in 0..random() % 5 {
                let at = random() % bytes.len();
                match random() % 3 {
                    0 => bytes[at] = random() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random() as u8),
                }
            }
            let mut stream = server.connect();
            stream.write_all(&bytes).unwrap();
            half_close(&stream); // so that it ends, come what may
            all_of(&mut stream);
        }
    }
    for (healthy, server) in healthy.into_iter().zip([http, redis]) {
        healthy.ends();
        assert!(!server.stop().contains("panicked"));
    }
}

#[test]
fn slow_clients_are_not_waited_for() {
    let _w = watchdog("servers_bad_input::slow_clients_are_not_waited_for");
    let server = Server::start("http --request-time 0.5");
    let healthy = Healthy::http(&server);
    // Each byte comes well within any time-out, the request never.
    let mut slow: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    let drip = |mut stream: TcpStream| {
        while stream.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for stream in &slow {
        let stream = stream.try_clone().unwrap();
        std::thread::spawn(move || drip(stream));
    }
    for stream in &mut slow {
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"HTTP/1.1 408");
    }
    healthy.ends();
    server.stop();

    let server = Server::start("http --idle 0.5");
    ends_silently(&mut server.connect());
    // One that asks, but does not take the replies.
    let mut deaf = server.connect();
    deaf.set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    wait_until(|| {
        let _ = deaf.write(GET.repeat(100).as_bytes());
        server.said().contains("it does not read what it is sent")
    });
    server.stop();
}

#[test]
fn half_closed_connections_get_all_replies() {
    let _w = watchdog("servers_bad_input::half_closed_connections_get_all_replies");
    let echo = Server::start("echo");
    let to_echo = Server::start(&format!("proxy --to {}", echo.address));
    let redis = Server::start("redis");
    let healthy = [
        Healthy::echo(&echo),
        Healthy::echo(&to_echo),
        Healthy::redis(&redis),
    ];
    for server in [&echo, &to_echo] {
        let mut stream = server.connect();
        let text = "0123456789".repeat(20_000);
        let mut writer = stream.try_clone().unwrap();
        let copy = text.clone();
        let write = std::thread::spawn(move || {
            writer.write_all(copy.as_bytes()).unwrap();
            half_close(&writer);
        });
        assert!(all_of(&mut stream) == text);
        write.join().unwrap();
    }
    let mut stream = redis.connect();
    stream
        .write_all("PING\r\n".repeat(1000).as_bytes())
        .unwrap();
    half_close(&stream);
    assert_eq!(all_of(&mut stream), "+PONG\r\n".repeat(1000));
    healthy.into_iter().for_each(Healthy::ends);
    for server in [to_echo, echo, redis] {
        server.stop();
    }
}

#[test]
fn resets_leave_nothing_behind() {
    let _w = watchdog("servers_bad_input::resets_leave_nothing_behind");
    let echo = Server::start("echo");
    let proxy = Server::start(&format!("proxy --to {}", echo.address));
    let (http, redis, chat) = (
        Server::start("http"),
        Server::start("redis"),
        Server::start("chat"),
    );
    let healthy = [
        Healthy::echo(&proxy),
        Healthy::http(&http),
        Healthy::redis(&redis),
    ];
    let servers = [&echo, &proxy, &http, &redis, &chat];
    let before = servers.map(Server::sockets);
    for round in 0..40 {
        for server in servers {
            let mut stream = server.connect();
            match round % 4 {
                0 => {}
                1 => stream.write_all(b"GET /js").unwrap(),
                2 => stream.write_all(GET.repeat(50).as_bytes()).unwrap(),
                _ => {
                    stream.write_all(b"PING\r\nann\n\n").unwrap();
                    read(&mut stream, &mut [0; 1]).unwrap();
                }
            }
            reset(stream);
        }
    }
    for (server, before) in servers.into_iter().zip(before) {
        wait_until(|| server.sockets() <= before);
    }
    healthy.into_iter().for_each(Healthy::ends);
    for server in [proxy, echo, http, redis, chat] {
        let said = server.stop();
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn short_of_descriptors() {
    let _w = watchdog("servers_bad_input::short_of_descriptors");
    let server = Server::start_with("http", 64, None);
    let healthy = Healthy::http(&server);
    // The system connects them all; the server has room for some.
    let mut clients: Vec<TcpStream> = (0..80).map(|_| server.connect()).collect();
    server.wait_until_it_says("accepting pauses: ");
    for client in &mut clients {
        client.write_all(GET.as_bytes()).unwrap();
    }
    healthy.goes_on();
    let mut first = clients.remove(0);
    first.read_exact(&mut [0; 12]).unwrap();
    // A file needs a descriptor, too: that one request is refused, and the next is not.
    let mut rest = [0; 1000];
    while !read(&mut first, &mut rest)
        .map(|n| rest[..n].ends_with(b"}"))
        .unwrap()
    {}
    first
        .write_all(b"GET /Cargo.toml HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut reply = [0; 12];
    first.read_exact(&mut reply).unwrap();
    assert_eq!(
        &reply,
        b"HTTP/1.1 503",
        "{}",
        String::from_utf8_lossy(&reply)
    );
    // As clients leave, those who wait come in, the last one too.
    drop(first);
    for mut client in clients {
        client.read_exact(&mut [0; 12]).unwrap();
    }
    healthy.ends();
    let said = server.stop();
    assert!(said.contains("accepting again"), "{said}");
    let pauses = said.matches("accepting pauses: ").count();
    assert!(
        pauses <= said.matches("accepting again").count() + 1,
        "{said}"
    );
}

#[test]
fn full_disks() {
    let _w = watchdog("servers_bad_input::full_disks");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    // What they have to say to the operator does not matter to clients.
    let server = Server::start_with("redis --append /dev/full --per-client 2", 0, Some(full()));
    let healthy = Healthy::redis(&server);
    let sockets = server.sockets();
    let reply = server.ask("SET a 1\r\nINCR b\r\nEXISTS a b\r\nPING\r\nQUIT\r\n");
    let lines: Vec<&str> = reply.lines().collect();
    assert!(
        lines[0].starts_with("-MISCONF cannot append to the log: No space left"),
        "{reply}"
    );
    assert!(lines[1].starts_with("-MISCONF"), "{reply}");
    assert_eq!(lines[2..], [":0", "+PONG", "+OK"]);
    wait_until(|| server.sockets() == sockets);
    let mut second = server.connect();
    second.write_all(b"PING\r\n").unwrap();
    second.read_exact(&mut [0; 7]).unwrap();
    ends_silently(&mut server.connect()); // one too many, and nowhere to say so
    healthy.ends();
    server.stop();
}

#[test]
fn limits_of_connections() {
    let _w = watchdog("servers_bad_input::limits_of_connections");
    let server = Server::start("echo --connections 3");
    let healthy = Healthy::echo(&server);
    let mut clients: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(b"here").unwrap();
    }
    for client in &mut clients[..2] {
        client.read_exact(&mut [0; 4]).unwrap();
    }
    for late in 2..4 {
        let set = |ms| clients[late].set_read_timeout(Some(Duration::from_millis(ms)));
        set(20).unwrap();
        let early = (&clients[late]).read(&mut [0; 4]);
        assert!(early.is_err(), "there is no room for it");
        set(40_000).unwrap();
        clients[late - 2].shutdown(Shutdown::Both).unwrap();
        (&clients[late]).read_exact(&mut [0; 4]).unwrap();
    }
    healthy.ends();
    server.stop();
}

#[test]
fn a_slow_reader_is_put_out_of_the_chat() {
    let _w = watchdog("servers_bad_input::a_slow_reader_is_put_out_of_the_chat");
    let server = Server::start("chat --rate 1000000");
    let mut deaf = server.connect();
    socket2::SockRef::from(&deaf)
        .set_recv_buffer_size(4096)
        .unwrap();
    deaf.write_all(b"deaf\n").unwrap();
    let talker = server.connect();
    let mut lines = BufReader::new(talker.try_clone().unwrap());
    let mut line = String::new();
    (&talker).write_all(b"ann\n").unwrap();
    while line != "* here: ann, deaf\n" && line != "* here: ann\n" {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0);
    }
    let text = format!("{}\n", "x".repeat(1000));
    let mut put_out = false;
    while !put_out {
        // Never more than one line ahead: this member reads.
        (&talker).write_all(text.as_bytes()).unwrap();
        loop {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0);
            put_out |= line == "* deaf does not read, and is put out\n";
            if line.starts_with("ann: ") {
                break;
            }
        }
    }
    server.wait_until_it_says("does not read, put out");
    server.stop();
}

#[test]
fn a_stop_lets_requests_end() {
    let _w = watchdog("servers_bad_input::a_stop_lets_requests_end");
    let server = Server::start("http --grace 3600 --request-time 3600");
    let (mut idle, mut busy) = (server.connect(), server.connect());
    idle.write_all(GET.as_bytes()).unwrap();
    idle.read_exact(&mut [0; 12]).unwrap();
    let (begin, end) = GET.split_at(10);
    // At once, so that the server has read the beginning when it has answered the first one.
    busy.write_all(format!("{GET}{begin}").as_bytes()).unwrap();
    busy.read_exact(&mut [0; 12]).unwrap();
    let healthy = Healthy::http(&server);
    healthy.ends();
    server.interrupt();
    server.wait_until_it_says("stopping");
    assert!(
        all_of(&mut idle).ends_with('}'),
        "the first reply, then the end"
    );
    busy.write_all(end.as_bytes()).unwrap();
    let replies = all_of(&mut busy);
    assert!(
        replies.contains("HTTP/1.1 200 OK") && replies.contains("Connection: close"),
        "{replies}"
    );
    assert!(
        TcpStream::connect(server.address).is_err(),
        "nobody new comes in"
    );
    server.ends(); // it waits for nobody

    // Who does not end is cut off.
    let server = Server::start("http --grace 0.2");
    let mut busy = server.connect();
    busy.write_all(format!("{GET}{begin}").as_bytes()).unwrap();
    let mut reply = [0; 1000];
    while !read(&mut busy, &mut reply)
        .map(|n| reply[..n].ends_with(b"}"))
        .unwrap()
    {}
    server.interrupt();
    ends_silently(&mut busy);
    assert!(server.ends().contains("cut off"));
}
