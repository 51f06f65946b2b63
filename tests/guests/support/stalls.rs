//! Servers that stall, for calls with limits, and what such a call may leave behind.
//!
//! A [`Server`] runs a script for each connection, a green thread each, on greenthread's own sockets. A script stalls
//! until its server is dropped, or for a while; it is never the one that ends a call.

use greenthread::cancel::Token;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::Runtime;
use greenthread::time;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::{Test, green, kernel_threads};

/// The limit of most calls.
pub const LIMIT: Duration = Duration::from_millis(200);
/// Of a call that needs no new connection with handshakes.
pub const SHORT: Duration = Duration::from_millis(20);
/// How much later a call may return on a machine that is busy with other things. The server stalls for ever.
const SLACK: Duration = Duration::from_secs(5);
/// More than the kernel takes from a client whose server does not read.
pub const LARGE: usize = 48 << 20;

/// Waits for ever: until the server is dropped.
pub fn stall() -> ! {
    loop {
        greenthread::park();
    }
}

/// A server, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    token: Token,
    thread: Option<greenthread::JoinHandle<()>>,
}

impl Server {
    pub fn new(script: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let token = Token::new();
        let ends = token.clone();
        let thread = greenthread::spawn(move || {
            let served = ends.run(|| {
                greenthread::scope(|scope| {
                    while let Ok((stream, _)) = listener.accept() {
                        // Answers go in parts, none of which is to wait for the client's acknowledgement.
                        stream.set_nodelay(true).unwrap();
                        // An error: the client has gone.
                        scope.spawn(|| drop(script(stream)));
                    }
                });
            });
            drop(served);
        });
        Server {
            address,
            token,
            thread: Some(thread),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.token.cancel();
        if !green() {
            return; // kernel threads stay in calls that wait for connections
        }
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A server that passes everything on to another one. In either direction it stalls, or not, for less than twice
/// the limit of the calls.
pub fn proxy(to: SocketAddr, limit: Duration) -> Server {
    Server::new(move |client| {
        let server = TcpStream::connect(to)?;
        server.set_nodelay(true)?;
        greenthread::scope(|scope| {
            scope.spawn(|| pass_on(&client, &server, limit));
            pass_on(&server, &client, limit);
        });
        Ok(())
    })
}

/// The end of one direction ends the other one. Not every part is late: much comes in many parts.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, limit: Duration) {
    const STALLS: u8 = 8;
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        let first = fastrand::usize(..=length);
        let _gone = to.write_all(&piece[..first]);
        if fastrand::u8(..STALLS) == 0 {
            greenthread::sleep(limit.mul_f64(2.0 * fastrand::f64()));
        }
        if to.write_all(&piece[first..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _over = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A listener whose queue is full: a connection to it is never made.
pub struct Full(std::net::TcpListener, Vec<std::net::TcpStream>);

impl Full {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Full {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: a descriptor of ours.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let mut full = Full(listener, Vec::new());
        let little = Duration::from_millis(100);
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&full.address(), little) {
            full.1.push(stream);
        }
        full
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// Makes a call that would not return without its limit. It returns soon after that, without an answer.
pub fn ends<T, E: Display>(what: &str, call: impl FnOnce() -> Result<T, E>) {
    let begin = Instant::now();
    let result = time::timeout(LIMIT, call);
    let elapsed = begin.elapsed();
    let late = elapsed.saturating_sub(LIMIT);
    let outcome = match result {
        Ok(Ok(_)) => panic!("{what}: an answer from a server that stalls"),
        Ok(Err(error)) => error.to_string(),
        Err(elapsed) => format!("unwound: {elapsed}"),
    };
    eprintln!("    {what}: {late:.1?} late: {outcome}");
    assert!(elapsed >= LIMIT, "{what}: too early, after {elapsed:?}");
    assert!(late < SLACK, "{what}: {late:?} late");
}

/// Runs `body` twice on a green thread. After the second time the process has no more than after the first.
pub fn twice(name: &'static str, body: impl Fn() + Send + Sync + Clone + 'static) {
    if !green() {
        return; // libc's calls go on
    }
    let test = Test::new(name, 120);
    eprintln!("{name}:");
    greenthread::spawn(body.clone()).join().unwrap();
    let before = Left::settled(&test);
    greenthread::spawn(body).join().unwrap();
    before.is_all(&test);
}

/// What a process has: what calls with limits may leave behind.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    descriptors: usize,
    /// Kernel threads without the runtime's idle ones.
    threads: usize,
    children: usize,
    green_threads: usize,
    queued: usize,
}

impl Left {
    pub fn now() -> Left {
        let metrics = Runtime::global().metrics();
        let children: usize = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
            .map(|children| children.split_whitespace().count())
            .sum();
        let queues = metrics
            .processors
            .iter()
            .map(|processor| processor.queue_len);
        Left {
            descriptors: open().len(),
            threads: kernel_threads().saturating_sub(metrics.parked_kernel_threads),
            children,
            green_threads: metrics.live_threads,
            queued: metrics.global_queue_len + queues.sum::<usize>(),
        }
    }

    fn parts(&self) -> [usize; 5] {
        [
            self.descriptors,
            self.threads,
            self.children,
            self.green_threads,
            self.queued,
        ]
    }

    fn is_within(&self, other: &Left) -> bool {
        self.parts().iter().zip(other.parts()).all(|(a, b)| *a <= b)
    }

    /// What there is once nothing falls any more.
    pub fn settled(test: &Test) -> Left {
        let mut least = Left::now();
        let mut same_since = Instant::now();
        test.until(|| {
            let now = Left::now();
            let lower = now.parts().iter().zip(least.parts()).any(|(a, b)| *a < b);
            if lower {
                (least, same_since) = (now, Instant::now());
            }
            same_since.elapsed() > Duration::from_millis(300)
        });
        least
    }

    /// Waits until there is no more than this: the watch of the test ends it otherwise.
    pub fn is_all(&self, test: &Test) {
        let (begin, mut said) = (Instant::now(), 1);
        test.until(|| {
            let now = Left::now();
            if begin.elapsed() > said * Duration::from_secs(15) {
                said += 1;
                eprintln!("    left: {now:?}\n    before: {self:?}");
                eprintln!("    open: {:?}", open());
            }
            now.is_within(self)
        });
        eprintln!("    nothing left, after {:.1?}: {self:?}", begin.elapsed());
    }
}

/// What the descriptors are of. The runtime opens the folder of its kernel threads when it first looks for one that is
/// blocked, and keeps it.
fn open() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let target = |path| {
        std::fs::read_link(path)
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    };
    let open = entries.filter_map(|entry| target(entry.unwrap().path()));
    open.filter(|target| !target.ends_with("/task")).collect()
}

/// Deterministic bytes, of a length up to 100,000, for the `n`th question.
pub fn bytes(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let most = [10, 1_000, 100_000][random.usize(..3)];
    let length = random.usize(1..most);
    (0..length).map(|_| random.alphanumeric() as u8).collect()
}

/// The `n`th question and what the server is to do: where it stalls, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    pub n: u64,
    /// 0: nowhere.
    pub place: u64,
    pub micros: u64,
}

/// No stall.
const AT_ONCE: Question = Question {
    n: 0,
    place: 0,
    micros: 0,
};

impl Question {
    /// A stall round the limit, in two thirds of the questions. The numbers of questions are never used again.
    pub fn random(random: &mut fastrand::Rng, limit: Duration) -> Question {
        static N: AtomicU64 = AtomicU64::new(0);
        Question {
            n: N.fetch_add(1, Relaxed),
            place: random.u64(..6).saturating_sub(1),
            micros: random.u64(..2 * limit.as_micros() as u64),
        }
    }

    /// Whether the client is to send much with it.
    pub fn is_large(self) -> bool {
        self.place == 5 || self.place == 0 && self.n.is_multiple_of(4)
    }

    pub fn text(self) -> String {
        format!("random-{}-{}-{}", self.n, self.place, self.micros)
    }

    pub fn parse(text: &str) -> Option<Question> {
        let mut parts = text.strip_prefix("random-")?.split('-');
        let mut next = || parts.next()?.parse().ok();
        Some(Question {
            n: next()?,
            place: next()?,
            micros: next()?,
        })
    }

    /// Stalls if this is the place.
    pub fn at(self, place: u64) {
        if self.place == place {
            greenthread::sleep(Duration::from_micros(self.micros));
        }
    }

    pub fn answer(self) -> Vec<u8> {
        bytes(self.n)
    }

    /// Writes an answer: `head`, then the bytes. Stalls at 1, before it; 2, in the head; 3, in the bytes; 4, before `tail`.
    pub fn write(
        self,
        mut to: impl Write,
        head: &[u8],
        bytes: &[u8],
        tail: &[u8],
    ) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(!self.n);
        let (in_head, in_bytes) = (random.usize(..=head.len()), random.usize(..=bytes.len()));
        let parts = [
            &head[..in_head],
            &head[in_head..],
            &bytes[..in_bytes],
            &bytes[in_bytes..],
            tail,
        ];
        for (part, place) in parts.into_iter().zip([1, 2, 0, 3, 4]) {
            if place != 0 {
                self.at(place);
            }
            to.write_all(part)?;
        }
        to.flush()
    }
}

/// Calls `f`, and cancels it after so long, if it is not over then.
fn cancelled<T>(after: Duration, f: impl FnOnce() -> T) -> Option<T> {
    let token = Token::new();
    let over = greenthread::sync::Semaphore::new(0);
    greenthread::scope(|scope| {
        scope.spawn(|| {
            if over.acquire_timeout(after).is_none() {
                token.cancel();
            }
        });
        let result = token.run(f).ok();
        over.add_permits(1);
        result
    })
}

/// 200 questions through one client, from four threads, in frames that end about when the answers come. `ask` returns
/// the answer or an error; what a question is answered with is its own answer. In the end the client still answers.
pub fn own_answers<E: Display>(
    name: &'static str,
    limit: Duration,
    ask: impl Fn(usize, Question) -> Result<Vec<u8>, E> + Send + Sync,
) {
    let seed = std::env::var("GT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{name}: GT_SEED={seed}");
    const THREADS: usize = 4;
    let counts = [const { AtomicU64::new(0) }; 3];
    greenthread::scope(|scope| {
        for thread in 0..THREADS {
            let (ask, counts) = (&ask, &counts);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(thread as u64));
                for _ in 0..200 / THREADS {
                    let question = Question::random(&mut random, limit);
                    // Some end at any moment, some by a token: the errors differ.
                    let limit = match random.u8(..4) {
                        0 => limit.mul_f64(random.f64()),
                        _ => limit,
                    };
                    let result = match random.u8(..4) {
                        0 => cancelled(limit, || ask(thread, question)),
                        _ => time::timeout(limit, || ask(thread, question)).ok(),
                    };
                    let which = match result {
                        Some(Ok(answer)) => {
                            let own = question.answer();
                            assert!(answer == own, "{question:?}: {answer:?}, not {own:?}");
                            0
                        }
                        Some(Err(_)) => 1,
                        None => 2,
                    };
                    counts[which].fetch_add(1, Relaxed);
                }
                // Without a limit: a connection that was shut down may be noticed now.
                let answers = (0..3).any(|_| {
                    let question = Question {
                        place: 0,
                        ..Question::random(&mut random, limit)
                    };
                    match ask(thread, question) {
                        Ok(answer) => {
                            assert!(answer == question.answer(), "{question:?}: {answer:?}");
                            true
                        }
                        Err(error) => {
                            eprintln!("    the first question without a limit: {error}");
                            false
                        }
                    }
                });
                assert!(answers, "{name}: of no use after a limit");
            });
        }
    });
    let [answers, errors, unwound] = counts.map(AtomicU64::into_inner);
    eprintln!("    {answers} answers, {errors} errors, {unwound} unwound");
}

/// Reads the head of a request, and returns its path and the length of its body.
fn request(from: &mut impl BufRead) -> io::Result<Option<(String, usize, bool)>> {
    let (mut path, mut length, mut closes) = (None, 0, false);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            return Ok(path.map(|path| (path, length, closes)));
        }
        if path.is_none() {
            path = line
                .split(' ')
                .nth(1)
                .map(|path| path.trim_start_matches('/').to_owned());
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        closes |= line == "connection: close";
    }
}

/// Answers HTTP, and stalls as the path says.
pub fn http(stream: impl Read + Write) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut earlier = 0;
    while let Some((path, length, closes)) = request(&mut stream)? {
        let question = Question::parse(&path);
        match path.as_str() {
            "deaf" | "head" => stall(),
            "second" if earlier > 0 => stall(),
            _ => {}
        }
        if let Some(question) = question {
            question.at(5);
        }
        io::copy(&mut stream.by_ref().take(length as u64), &mut io::sink())?;
        let body = question.map_or_else(|| path.clone().into_bytes(), Question::answer);
        let connection = if closes { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            body.len()
        );
        let to = stream.get_mut();
        match path.as_str() {
            "in-head" => stall_after(to, &head.as_bytes()[..20]),
            "body" => stall_after(to, &[head.as_bytes(), b"b"].concat()),
            _ => question
                .unwrap_or(AT_ONCE)
                .write(to, head.as_bytes(), &body, b"")?,
        }
        if closes {
            return Ok(());
        }
        earlier += 1;
    }
    Ok(())
}

/// Writes so much, and then nothing more.
pub fn stall_after(mut to: impl Write, part: &[u8]) {
    // An error: the client has gone.
    let _gone = to.write_all(part).and_then(|()| to.flush());
    stall();
}

/// Asks such a server, by hand.
pub fn ask(stream: &mut (impl Read + Write), path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = body.len();
    let head =
        format!("POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let mut length = head.split("Content-Length: ").skip(1);
    let length = length
        .next()
        .and_then(|length| length.lines().next()?.parse().ok());
    let mut body = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// A client with one connection, which it uses again after an error: a new one is made after two in a row.
pub struct Stubborn<C>(Mutex<(Option<C>, bool)>);

impl<C> Default for Stubborn<C> {
    fn default() -> Stubborn<C> {
        Stubborn(Mutex::new((None, false)))
    }
}

impl<C> Stubborn<C> {
    pub fn ask<T, E>(
        &self,
        connect: impl FnOnce() -> Result<C, E>,
        ask: impl FnOnce(&mut C) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut slot = self.0.lock().unwrap();
        let (connection, is_doubtful) = &mut *slot;
        if connection.is_none() {
            *connection = Some(connect()?);
        }
        let result = ask(connection.as_mut().unwrap());
        if result.is_err() && *is_doubtful {
            *connection = None;
        }
        *is_doubtful = result.is_err() && !*is_doubtful;
        result
    }
}

/// A server's stream that stalls after so many bytes.
pub struct Short<S>(pub S, pub usize);

impl<S: Read> Read for Short<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl<S: Write> Write for Short<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1 == 0 {
            stall();
        }
        let written = self.0.write(&bytes[..bytes.len().min(self.1)])?;
        self.1 -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
