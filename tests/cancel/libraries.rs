//! What unmodified code's calls of libc do in a frame: std's here, in the place of libraries.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use greenthread::cancel;
use greenthread::time::{self, Duration, Instant};

use crate::common::directory::Directory;
use crate::common::{green, watchdog};

const SOON: Duration = Duration::from_millis(5);

/// A listener whose queue is full, and the connections that nobody accepts.
pub fn full_tcp() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a descriptor of ours.
    unsafe { libc::listen(listener.as_raw_fd(), 0) };
    let address = listener.local_addr().unwrap();
    let mut made = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, 20 * SOON) {
        made.push(stream);
    }
    (listener, made)
}

/// The same of a Unix socket, whose queue one connection fills.
pub fn full(directory: &Directory) -> (UnixListener, UnixStream) {
    let listener = UnixListener::bind(directory.path("full")).unwrap();
    // SAFETY: a descriptor of ours.
    unsafe { libc::listen(listener.as_raw_fd(), 0) };
    let first = UnixStream::connect(directory.path("full")).unwrap();
    (listener, first)
}

/// Runs `call` in a frame that ends soon, and in one that has ended. Both return at the limit, and not much later.
#[track_caller]
fn limited<T>(call: impl Fn() -> T) -> [T; 2] {
    [SOON, Duration::ZERO].map(|limit| {
        let ends = Instant::now() + limit;
        let result = time::timeout_at(ends, &call).unwrap();
        assert!(Instant::now() >= ends);
        result
    })
}

#[track_caller]
fn fails<T: std::fmt::Debug>(call: impl Fn() -> std::io::Result<T>) {
    for result in limited(call) {
        let error = result.unwrap_err();
        assert!(cancel::is_cause(&error), "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }
}

fn on_green(test: &'static str, body: impl FnOnce() + Send + 'static) {
    let _w = watchdog(test);
    if green() {
        greenthread::spawn(body).join().unwrap();
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn a_refused_read_shuts_the_connection_down() {
    on_green(
        "libraries::a_refused_read_shuts_the_connection_down",
        || {
            let (near, far) = pair();
            let error = time::timeout(SOON, || (&near).read(&mut [0]))
                .unwrap()
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!((&far).read(&mut [0]).unwrap(), 0);
            assert_eq!(
                (&near).write(b"a").unwrap_err().kind(),
                ErrorKind::BrokenPipe
            );
            // What need not wait is done.
            let (near, far) = pair();
            (&far).write_all(b"there").unwrap();
            let result = time::timeout_at(Instant::now(), || {
                let mut all = [0; 5];
                (&near).read_exact(&mut all).unwrap();
                (&near).write_all(b"goodbye").unwrap();
                all
            });
            assert_eq!(&result.unwrap(), b"there");
            let mut goodbye = [0; 7];
            (&far).read_exact(&mut goodbye).unwrap();
        },
    );
}

#[test]
fn a_write_is_cut_short() {
    on_green("libraries::a_write_is_cut_short", || {
        let (near, far) = pair();
        let much = vec![7; 64 << 20];
        let short = time::timeout(SOON, || (&near).write(&much))
            .unwrap()
            .unwrap();
        assert!(0 < short && short < much.len());
        let error = time::timeout(SOON, || (&near).write(&much))
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let mut all = Vec::new();
        (&far).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), short);
    });
}

#[test]
fn others_fail_and_stay() {
    on_green("libraries::others_fail_and_stay", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fails(|| listener.accept());
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        fails(|| socket.recv(&mut [0]));
        socket.send_to(b"a", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap(), 1);
        let (reader, mut writer) = std::io::pipe().unwrap();
        fails(|| (&reader).read(&mut [0]));
        writer.write_all(b"a").unwrap();
        assert_eq!((&reader).read(&mut [0]).unwrap(), 1);
    });
}

#[test]
fn polls_fail_and_never_say_nothing() {
    on_green("libraries::polls_fail_and_never_say_nothing", || {
        let (near, _far) = pair();
        let poll = |millis| {
            let mut record = libc::pollfd {
                fd: near.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one record.
            let answer = unsafe { libc::poll(&mut record, 1, millis) };
            (answer, std::io::Error::last_os_error().raw_os_error())
        };
        assert_eq!(limited(|| poll(-1)), [(-1, Some(libc::ETIMEDOUT)); 2]);
        // Its own time-out.
        assert_eq!(time::timeout_at(Instant::now(), || poll(0).0), Ok(0));
        let select = || {
            // SAFETY: an empty set.
            let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
            // SAFETY: a set with one descriptor.
            unsafe {
                libc::FD_SET(near.as_raw_fd(), &mut set);
                let none = std::ptr::null_mut();
                libc::select(near.as_raw_fd() + 1, &mut set, none, none, none.cast())
            }
        };
        assert_eq!(limited(select), [-1; 2]);
    });
}

#[test]
fn sleeps_end_early() {
    on_green("libraries::sleeps_end_early", || {
        let begin = Instant::now();
        limited(|| std::thread::sleep(Duration::from_millis(300)));
        assert!(begin.elapsed() < Duration::from_secs(300));
    });
}

#[test]
fn connections_that_are_not_made() {
    on_green("libraries::connections_that_are_not_made", || {
        let (listener, made) = full_tcp();
        fails(|| TcpStream::connect(listener.local_addr().unwrap()));
        let directory = Directory::new();
        let (_unix, _first) = full(&directory);
        fails(|| UnixStream::connect(directory.path("full")));
        drop(made);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap());
        time::timeout_at(Instant::now(), connect).unwrap().unwrap();
        let gone = UnixListener::bind(directory.path("gone")).unwrap();
        drop(gone);
        let refused = time::timeout(SOON, || UnixStream::connect(directory.path("gone")));
        assert_eq!(
            refused.unwrap().unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn children_and_locks() {
    on_green("libraries::children_and_locks", || {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        for result in limited(|| {
            // SAFETY: it writes nothing.
            let answer = unsafe { libc::waitpid(child.id() as i32, std::ptr::null_mut(), 0) };
            (answer, std::io::Error::last_os_error().raw_os_error())
        }) {
            assert_eq!(result, (-1, Some(libc::ETIMEDOUT)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The first read after a fork is std's own.
        let spawned = time::timeout_at(Instant::now(), || {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new("true");
            // SAFETY: it does nothing.
            unsafe { command.pre_exec(|| Ok(())) };
            command.stdin(Stdio::null()).spawn()
        });
        assert!(spawned.unwrap().unwrap().wait().unwrap().success());
        let directory = crate::common::directory::Directory::new();
        let open = || std::fs::File::create(directory.path("locked")).unwrap();
        let (one, other) = (open(), open());
        one.lock().unwrap();
        fails(|| other.lock());
        one.unlock().unwrap();
        time::timeout(SOON, || other.lock()).unwrap().unwrap();
    });
}

#[test]
fn names_are_found() {
    on_green("libraries::names_are_found", || {
        for limit in [Duration::from_secs(60), Duration::MAX] {
            let found = time::timeout(limit, || ("localhost", 7).to_socket_addrs().unwrap().next());
            assert!(found.unwrap().unwrap().ip().is_loopback());
        }
        let found = time::timeout(Duration::MAX, || {
            "no.such.host.invalid:7".to_socket_addrs().is_err()
        });
        assert_eq!(found, Ok(true));
    });
}

/// A loop that overlooks its errors does not take a whole CPU.
#[test]
fn deaf_loops_are_slow() {
    on_green("libraries::deaf_loops_are_slow", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Instant::now();
        let mut rounds = 0;
        let result = time::timeout_at(begin, || {
            while begin.elapsed() < 40 * SOON {
                assert!(listener.accept().is_err());
                rounds += 1;
            }
        });
        assert!(result.is_ok() && rounds < 40, "{rounds}");
    });
}
