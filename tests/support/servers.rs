//! An example server in a process of its own, and a client that notices every wrong reply.
//!
//! The process is this test's executable, run again: it has the examples as modules. So the servers
//! run with the allocator that aborts when it is called with preemption off.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{child_case, child_command, wait_until};

/// The test that is a server when it runs as a child. See [`run_as_child`].
const ENTRY: &str = "servers_bad_input::server";

pub const GET: &str = "GET /json HTTP/1.1\r\nHost: test\r\n\r\n";

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    said: Arc<Mutex<String>>,
    /// Writes down what it says until it ends.
    listener: Option<JoinHandle<()>>,
}

/// In the test called `server`: is one, if this process is a child. `run` knows the examples.
pub fn run_as_child(run: fn(&str, std::vec::IntoIter<String>) -> ExitCode) {
    let Some(case) = child_case(ENTRY) else {
        return;
    };
    let mut words: Vec<String> = case.split(' ').map(str::to_string).collect();
    let files: u64 = words.remove(0).parse().unwrap();
    if files > 0 {
        let limit = libc::rlimit {
            rlim_cur: files,
            rlim_max: files,
        };
        // SAFETY: the limit outlives its call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    }
    let example = words[0].clone();
    let status = run(&example, words.into_iter());
    let code = if status == ExitCode::SUCCESS { 0 } else { 1 };
    std::process::exit(code);
}

impl Server {
    /// `command` is an example's name and its options.
    pub fn start(command: &str) -> Server {
        Server::start_with(command, 0, None)
    }

    /// With so many descriptors at most (0: no such limit), and with stderr elsewhere.
    pub fn start_with(command: &str, files: u64, stderr: Option<std::fs::File>) -> Server {
        let case = format!("{files} {command} --listen 127.0.0.1:0");
        let mut child = child_command(ENTRY, &case)
            .stdout(Stdio::piped())
            .stderr(stderr.map_or_else(Stdio::piped, Stdio::from))
            .spawn()
            .expect("the test's own executable");
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let listener = child.stderr.take().map(|stderr| {
            let said = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    *said.lock().unwrap() += &(line + "\n");
                }
            })
        });
        let address = loop {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                panic!("{command} does not listen: {}", said.lock().unwrap());
            }
            if let Some((_, address)) = line.split_once("listening on ") {
                break address.trim().parse().unwrap();
            }
        };
        std::thread::spawn(move || io::copy(&mut out, &mut io::sink()));
        Server {
            child,
            address,
            said,
            listener,
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(40)))
            .unwrap();
        stream
    }

    /// All that comes after `bytes` were sent, until the server ends the connection.
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_ref()).unwrap();
        all_of(&mut stream)
    }

    /// What stands on its stderr so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wait_until_it_says(&self, what: &str) {
        wait_until(|| self.said().contains(what));
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many sockets it has open.
    pub fn sockets(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("a live server");
        let is_socket = |file: &std::fs::DirEntry| {
            std::fs::read_link(file.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket"))
        };
        files.flatten().filter(is_socket).count()
    }

    pub fn interrupt(&self) {
        // SAFETY: a signal to our own child, which has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
    }

    /// It has been interrupted, and ends with status 0.
    pub fn ends(mut self) -> String {
        let status = self.child.wait().unwrap();
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }

    pub fn stop(self) -> String {
        self.interrupt();
        self.ends()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server sends until it ends the connection.
pub fn all_of(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => panic!("{error}, after: {}", String::from_utf8_lossy(&bytes)),
    }
}

/// As `read`, once more after a signal: one that another test sends to the process ends a read with a time limit.
pub fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The end of the connection comes, and nothing before it; a reset will do.
pub fn ends_silently(stream: &mut TcpStream) {
    match read(stream, &mut [0; 100]) {
        Ok(0) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("no end: {other:?}"),
    }
}

/// Closes the connection so that the server sees a reset.
pub fn reset(stream: TcpStream) {
    let linger = socket2::SockRef::from(&stream);
    linger.set_linger(Some(Duration::ZERO)).unwrap();
}

pub fn half_close(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}

/// A client that behaves, on one connection from beginning to end, and counts right replies. A
/// wrong one fails the test when this is asked how it went.
pub struct Healthy {
    over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Healthy {
    pub fn http(server: &Server) -> Healthy {
        Healthy::start(server, GET, |reply| {
            assert!(
                "HTTP/1.1 200 OK".starts_with(&reply[..reply.len().min(15)]),
                "{reply}"
            );
            reply.ends_with('}')
        })
    }

    pub fn redis(server: &Server) -> Healthy {
        Healthy::start(server, "ECHO well\r\n", |reply| {
            assert!("$4\r\nwell\r\n".starts_with(reply), "{reply}");
            reply.len() == 10
        })
    }

    pub fn echo(server: &Server) -> Healthy {
        Healthy::start(server, "well\n", |reply| {
            assert!("well\n".starts_with(reply), "{reply}");
            reply.len() == 5
        })
    }

    /// Sends `request` again and again; each reply must satisfy `right`, which is asked as bytes
    /// come, and says when the reply is complete.
    fn start(server: &Server, request: &'static str, right: fn(&str) -> bool) -> Healthy {
        let mut stream = server.connect();
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stop, count): (_, Arc<AtomicUsize>) = (over.clone(), Arc::clone(&served));
        let client = move || {
            while !stop.load(SeqCst) {
                stream.write_all(request.as_bytes()).expect("a request");
                let mut reply = String::new();
                while !right(&reply) {
                    let mut bytes = [0; 1000];
                    let read = read(&mut stream, &mut bytes);
                    let Ok(n @ 1..) = read else {
                        panic!("a healthy client: {read:?} after '{reply}'");
                    };
                    reply += std::str::from_utf8(&bytes[..n]).expect("text");
                    assert!(reply.len() < 1000, "a wrong reply: {reply}");
                }
                count.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let thread = Some(std::thread::spawn(client));
        let healthy = Healthy {
            over,
            served,
            thread,
        };
        healthy.goes_on();
        healthy
    }

    /// Some replies from now on are right.
    pub fn goes_on(&self) {
        let before = self.served.load(SeqCst);
        let lives = || !self.thread.as_ref().unwrap().is_finished();
        wait_until(|| self.served.load(SeqCst) > before + 2 || !lives());
        assert!(lives(), "the healthy client has failed");
    }

    pub fn ends(mut self) {
        self.goes_on();
        self.over.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}
