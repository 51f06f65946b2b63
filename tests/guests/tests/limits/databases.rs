//! redis and mysql: stages against servers made by hand, and answers from those and from real ones, which speak by way of
//! a proxy that stalls.

use mysql::prelude::Queryable;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use support::stalls::{
    Full, LARGE, LIMIT, Question, SHORT, Server, Stubborn, ends, own_answers, proxy, stall,
    stall_after, twice,
};
use support::{Test, server};

type Stream = greenthread::net::TcpStream;

/// `*3`, `$7`: how many, or how long.
fn number(from: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let number = line.get(1..).and_then(|number| number.trim().parse().ok());
    number.ok_or(io::ErrorKind::UnexpectedEof.into())
}

/// Answers a command with its key, and stalls as that says.
fn serve_redis(stream: Stream) -> io::Result<()> {
    let mut from = BufReader::new(&stream);
    let mut to = &stream;
    let mut earlier = 0;
    loop {
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        for i in 0..number(&mut from)? {
            let length = number(&mut from)?;
            if i == 2 {
                let key = String::from_utf8_lossy(&arguments[1]);
                match Question::parse(&key) {
                    Some(question) => question.at(5),
                    None if key == "deaf" => stall(),
                    None => {}
                }
            }
            let mut argument = vec![0; length + 2];
            from.read_exact(&mut argument)?;
            argument.truncate(length);
            arguments.push(argument);
        }
        match arguments[0].to_ascii_uppercase().as_slice() {
            b"CLIENT" => to.write_all(b"+OK\r\n")?,
            b"PING" => to.write_all(b"+PONG\r\n")?,
            _ => {
                let key = std::str::from_utf8(&arguments[1]).unwrap();
                let question = Question::parse(key);
                let bytes = question.map_or_else(|| key.as_bytes().to_vec(), Question::answer);
                let head = format!("${}\r\n", bytes.len());
                match key {
                    "head" => stall(),
                    "second" if earlier > 0 => stall(),
                    "in-head" => stall_after(to, b"$"),
                    "body" => stall_after(to, format!("{head}b").as_bytes()),
                    _ => {}
                }
                match question {
                    Some(question) => question.write(to, head.as_bytes(), &bytes, b"\r\n")?,
                    None => to.write_all(&[head.as_bytes(), &bytes, b"\r\n"].concat())?,
                }
                earlier += 1;
            }
        }
    }
}

fn redis_client(address: SocketAddr) -> redis::Client {
    redis::Client::open(format!("redis://{address}/")).unwrap()
}

fn redis_get(
    connection: &mut impl redis::ConnectionLike,
    key: &str,
    padding: &[u8],
) -> redis::RedisResult<Vec<u8>> {
    let mut get = redis::cmd("GET");
    get.arg(key);
    if !padding.is_empty() {
        get.arg(padding);
    }
    get.query(connection)
}

#[test]
fn redis() {
    twice("redis", || {
        let (server, full) = (Server::new(serve_redis), Full::new());
        let connect = |address| redis_client(address).get_connection();
        ends("connecting", || connect(full.address()).map(drop));
        let silent = Server::new(|_stream| stall());
        ends("greeting", || connect(silent.address).map(drop));
        let large = vec![7u8; LARGE];
        for key in ["head", "in-head", "body", "deaf", "second"] {
            let mut connection = connect(server.address).unwrap();
            assert_eq!(
                redis_get(&mut connection, "second", b"").unwrap(),
                b"second"
            );
            let padding = if key == "deaf" { &large[..] } else { &[] };
            ends(key, || redis_get(&mut connection, key, padding));
            // It is over with this connection.
            assert!(redis_get(&mut connection, "own", b"").is_err());
        }
    });
}

fn redis_pool(client: redis::Client) -> r2d2::Pool<redis::Client> {
    // The pool asks `is_open` only, when a connection comes back.
    let pool = r2d2::Pool::builder().max_size(4).test_on_check_out(false);
    pool.build(client).unwrap()
}

#[test]
fn redis_answers() {
    let _test = Test::new("redis' answers", 120);
    let server = Server::new(serve_redis);
    let large = vec![7u8; LARGE / 16];
    let padding = |question: Question| if question.is_large() { &large[..] } else { &[] };
    let client = redis_client(server.address);
    let clients: [Stubborn<redis::Connection>; 4] = Default::default();
    own_answers("redis, one connection", SHORT, |thread, question| {
        let connect = || client.get_connection();
        clients[thread].ask(connect, |connection| {
            redis_get(connection, &question.text(), padding(question))
        })
    });
    let pool = redis_pool(client);
    own_answers("redis and r2d2", SHORT, |_, question| {
        let mut connection = pool.get().unwrap();
        redis_get(&mut *connection, &question.text(), padding(question))
    });
}

#[test]
fn redis_itself() {
    let Some(address) = server("GT_REDIS") else {
        return;
    };
    let _test = Test::new("redis' own answers", 120);
    let socket = address.trim_start_matches("redis://").trim_end_matches('/');
    let proxy = proxy(socket.parse().unwrap(), SHORT);
    let large = vec![7u8; LARGE / 16];
    let mut direct = redis::Client::open(address)
        .unwrap()
        .get_connection()
        .unwrap();
    redis::cmd("FLUSHALL").exec(&mut direct).unwrap();
    let ask = |connection: &mut dyn redis::ConnectionLike, question: Question| {
        if question.is_large() {
            redis::cmd("SET")
                .arg("large")
                .arg(&large)
                .exec(connection)?;
        }
        let (key, value) = (question.text(), question.answer());
        redis::cmd("SET").arg(&key).arg(value).exec(connection)?;
        redis::cmd("GET").arg(&key).query::<Vec<u8>>(connection)
    };
    let client = redis_client(proxy.address);
    let clients: [Stubborn<redis::Connection>; 4] = Default::default();
    own_answers("redis itself, one connection", SHORT, |thread, question| {
        let connect = || client.get_connection();
        clients[thread].ask(connect, |connection| ask(connection, question))
    });
    let pool = redis_pool(client);
    own_answers("redis itself and r2d2", SHORT, |_, question| {
        ask(&mut *pool.get().unwrap(), question)
    });
    // A value that was cut short has no other command in it.
    let stored: Vec<u8> = redis::cmd("GET").arg("large").query(&mut direct).unwrap();
    assert!(
        stored == large || stored.is_empty(),
        "{} bytes",
        stored.len()
    );
}

/// A packet of mysql's.
fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..3], &[number], payload].concat()
}

fn read_packet(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let mut payload = vec![0; length as usize];
    from.read_exact(&mut payload)?;
    Ok((head[3], payload))
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];

fn greeting() -> Vec<u8> {
    // Of protocol 4.1: long passwords, databases, transactions, secure connections, plugins.
    let capabilities = (0x0008_a209u32).to_le_bytes();
    let mut greeting = b"\x0a8.0.0\0\x01\0\0\0abcdefgh\0".to_vec();
    greeting.extend(&capabilities[..2]);
    greeting.extend([45, 2, 0]);
    greeting.extend(&capabilities[2..]);
    greeting.push(21);
    greeting.extend([0; 10]);
    greeting.extend(b"ijklmnopqrst\0mysql_native_password\0");
    packet(0, &greeting)
}

/// What goes before a string that has so many bytes.
fn length_of(length: usize) -> Vec<u8> {
    let bytes = (length as u32).to_le_bytes();
    match length {
        0..=250 => vec![bytes[0]],
        251..=65_535 => vec![0xfc, bytes[0], bytes[1]],
        _ => vec![0xfd, bytes[0], bytes[1], bytes[2]],
    }
}

/// Lets the client in, and returns its stream.
fn log_in(mut stream: Stream) -> io::Result<Stream> {
    stream.write_all(&greeting())?;
    let (number, _) = read_packet(&mut stream)?;
    stream.write_all(&packet(number + 1, OK))?;
    Ok(stream)
}

/// Answers `SELECT 'name'` with the name, and stalls as that says.
fn serve_mysql(stream: Stream) -> io::Result<()> {
    let mut stream = log_in(stream)?;
    let mut earlier = 0;
    loop {
        let (_, query) = read_packet(&mut stream)?;
        match query[0] {
            1 => return Ok(()),
            3 => {}
            _ => {
                stream.write_all(&packet(1, OK))?;
                continue;
            }
        }
        let text = String::from_utf8_lossy(&query[1..]);
        let name = text.split('\'').nth(1).unwrap();
        let question = Question::parse(name);
        let bytes = question.map_or_else(|| name.as_bytes().to_vec(), Question::answer);
        let length = length_of(bytes.len());
        let column = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\0\x10\0\xfd\0\0\0\0\0";
        let row = packet(4, &[&length[..], &bytes].concat());
        let head = [
            packet(1, &[1]),
            packet(2, column),
            packet(3, EOF),
            row[..4 + length.len()].to_vec(),
        ]
        .concat();
        match name {
            "head" => stall(),
            "second" if earlier > 0 => stall(),
            "in-head" => stall_after(&stream, &head[..15]),
            "body" => stall_after(&stream, &[&head[..], b"b"].concat()),
            _ => {}
        }
        match question {
            Some(question) => question.write(&stream, &head, &bytes, &packet(5, EOF))?,
            None => stream.write_all(&[head, bytes, packet(5, EOF)].concat())?,
        }
        earlier += 1;
    }
}

fn mysql_options(address: SocketAddr) -> mysql::OptsBuilder {
    mysql::OptsBuilder::new()
        .ip_or_hostname(Some(address.ip().to_string()))
        .tcp_port(address.port())
        .user(Some("root"))
        .prefer_socket(false)
        .max_allowed_packet(Some(64 << 20))
}

fn mysql_ask(
    connection: &mut impl Queryable,
    name: &str,
    padding: usize,
) -> mysql::Result<Vec<u8>> {
    let padding = "x".repeat(padding);
    let answer = connection.query_first(format!("SELECT '{name}' /* {padding} */"))?;
    Ok(answer.unwrap())
}

#[test]
fn mysql() {
    twice("mysql", || {
        let (server, full) = (Server::new(serve_mysql), Full::new());
        let connect = |address| mysql::Conn::new(mysql_options(address));
        ends("connecting", || connect(full.address()).map(drop));
        let silent = Server::new(|_stream| stall());
        ends("greeting", || connect(silent.address).map(drop));
        let half = Server::new(|stream| {
            stall_after(&stream, &greeting()[..20]);
            Ok(())
        });
        ends("half a greeting", || connect(half.address).map(drop));
        let strict = Server::new(|stream| {
            stall_after(&stream, &greeting());
            Ok(())
        });
        ends("login", || connect(strict.address).map(drop));
        for name in ["head", "in-head", "body", "second"] {
            let mut connection = connect(server.address).unwrap();
            assert_eq!(mysql_ask(&mut connection, "second", 0).unwrap(), b"second");
            ends(name, || mysql_ask(&mut connection, name, 0));
            // It is over with this connection.
            assert!(mysql_ask(&mut connection, "own", 0).is_err());
        }
        let deaf = Server::new(|stream| {
            let _stream = log_in(stream)?;
            stall()
        });
        let mut connection = connect(deaf.address).unwrap();
        ends("sending", || mysql_ask(&mut connection, "deaf", LARGE));
    });
}

#[test]
fn mysql_answers() {
    let _test = Test::new("mysql's answers", 120);
    let server = Server::new(serve_mysql);
    let padding = |question: Question| if question.is_large() { LARGE / 64 } else { 0 };
    let clients: [Stubborn<mysql::Conn>; 4] = Default::default();
    own_answers("mysql, one connection", LIMIT / 2, |thread, question| {
        clients[thread].ask(
            || mysql::Conn::new(mysql_options(server.address)),
            |connection| mysql_ask(connection, &question.text(), padding(question)),
        )
    });
    let pool = mysql::Pool::new(mysql_options(server.address)).unwrap();
    own_answers("mysql and its pool", LIMIT / 2, |_, question| {
        let mut connection = pool.get_conn()?;
        mysql_ask(&mut connection, &question.text(), padding(question))
    });
}

/// Asks for what is in the question.
fn mysql_echo(connection: &mut impl Queryable, question: Question) -> mysql::Result<Vec<u8>> {
    let text = String::from_utf8(question.answer()).unwrap();
    let padding = if question.is_large() { LARGE / 64 } else { 0 };
    mysql_ask(connection, &text, padding)
}

#[test]
fn mysql_itself() {
    let Some(address) = server("GT_MYSQL") else {
        return;
    };
    let _test = Test::new("mysql's own answers", 120);
    let options = mysql::Opts::from_url(&address).unwrap();
    let address = SocketAddr::new(
        options.get_ip_or_hostname().parse().unwrap(),
        options.get_tcp_port(),
    );
    let proxy = proxy(address, LIMIT / 2);
    let clients: [Stubborn<mysql::Conn>; 4] = Default::default();
    own_answers(
        "mysql itself, one connection",
        LIMIT / 2,
        |thread, question| {
            clients[thread].ask(
                || mysql::Conn::new(mysql_options(proxy.address)),
                |connection| mysql_echo(connection, question),
            )
        },
    );
    let pool = mysql::Pool::new(mysql_options(proxy.address)).unwrap();
    own_answers("mysql itself and its pool", LIMIT / 2, |_, question| {
        mysql_echo(&mut pool.get_conn()?, question)
    });
}
