//! The table of docs/cancel.md, row by row: what `limits` and `libraries` leave out.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use greenthread::cancel::{self, Cancelled, Token};
use greenthread::runtime::{Driver, Runtime};
use greenthread::sync::{Condvar, Mutex, OnceLock, RwLock, Semaphore, WaitGroup};
use greenthread::time::{self, Duration, Elapsed, Instant};
use greenthread::{channel, thread};

use crate::common::directory::Directory;
use crate::common::{alone, both, everywhere, hooked, wait_until, watchdog};
use crate::libraries::{full, full_tcp};

const SOON: Duration = Duration::from_millis(5);
const HOUR: Duration = Duration::from_secs(3600);

/// On a green thread, and on one of each driver.
fn on_green(test: &'static str, body: fn()) {
    let _w = watchdog(test);
    if !hooked() {
        return;
    }
    let join = |handle: thread::JoinHandle<()>| {
        handle
            .join()
            .unwrap_or_else(|payload| resume_unwind(payload))
    };
    join(greenthread::spawn(body));
    for driver in [Driver::Epoll, Driver::IoUring] {
        let runtime = Runtime::builder()
            .processors(2)
            .driver(driver)
            .build()
            .unwrap();
        join(runtime.spawn(body));
        runtime.shutdown();
    }
}

/// Makes the call in a frame that ends soon, in one that has ended, and in one whose token is cancelled soon. Also says
/// which error each must bring.
#[track_caller]
fn ended<T>(call: impl Fn() -> T) -> [(T, i32); 3] {
    let limited = |limit| {
        let ends = Instant::now() + limit;
        let result = time::timeout_at(ends, &call).expect("it does not unwind");
        assert!(Instant::now() >= ends, "early");
        (result, libc::ETIMEDOUT)
    };
    let token = Token::new();
    let canceller = token.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(SOON);
        canceller.cancel();
    });
    let cancelled = token.run(&call).expect("it does not unwind");
    assert!(token.is_cancelled(), "early");
    canceller.join().unwrap();
    [
        limited(SOON),
        limited(Duration::ZERO),
        (cancelled, libc::ECANCELED),
    ]
}

/// The call fails with a frame's error.
#[track_caller]
fn fails<T: std::fmt::Debug>(call: impl Fn() -> std::io::Result<T>) {
    for (result, errno) in ended(call) {
        let error = result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{error}");
        assert!(cancel::is_cause(&error));
    }
}

/// What a call of libc's returns, or its error.
fn answer(result: impl TryInto<i64>) -> std::io::Result<i64> {
    match result.try_into().ok().expect("a number") {
        -1 => Err(std::io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn is_alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn seconds(seconds: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    }
}

// ==== children ====

#[test]
fn a_child_outlives_the_wait_for_its_output() {
    use greenthread::process::{Child, Command, Stdio};
    let _w = watchdog("table::a_child_outlives_the_wait_for_its_output");
    everywhere(|| {
        let child = |stdout: fn() -> Stdio, stderr: fn() -> Stdio| {
            let mut command = Command::new("sleep");
            command.arg("1000").stdout(stdout()).stderr(stderr());
            command.spawn().unwrap()
        };
        let end = |id: u32| {
            assert!(is_alive(id));
            // SAFETY: a child of ours, which nobody has waited for.
            unsafe {
                libc::kill(id as i32, libc::SIGKILL);
                libc::waitpid(id as i32, std::ptr::null_mut(), 0);
            }
        };
        let pipes: [fn() -> Stdio; 2] = [Stdio::piped, Stdio::null];
        for stdout in pipes {
            for stderr in pipes {
                for limit in [SOON, Duration::ZERO] {
                    let child: Child = child(stdout, stderr);
                    let id = child.id();
                    let output = time::timeout(limit, || child.wait_with_output());
                    assert_eq!(output.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
                    end(id);
                }
                let (child, id) = (child(stdout, stderr), Arc::new(AtomicUsize::new(0)));
                id.store(child.id() as usize, SeqCst);
                let waits = thread::spawn(move || child.wait_with_output());
                waits.cancel();
                let error = waits.join().unwrap().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                end(id.load(SeqCst) as u32);
            }
        }
    });
}

#[test]
fn any_child_is_waited_for() {
    alone!();
    on_green("table::any_child_is_waited_for", || {
        #[allow(clippy::zombie_processes)] // libc's calls wait for it
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id() as i64;
        let wait = || {
            let mut status = 0;
            // SAFETY: a valid place.
            answer(unsafe { libc::waitpid(-1, &mut status, 0) })
        };
        fails(wait);
        let wait_id = || {
            // SAFETY: zeroes are a valid record.
            answer(unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED)
            })
        };
        fails(wait_id);
        drop(child.stdin.take());
        // In a frame that does not end.
        assert_eq!(time::timeout(HOUR, wait).unwrap().unwrap(), id);
        let none = time::timeout_at(Instant::now(), wait).unwrap().unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ECHILD));
    });
}

// ==== locks of files ====

/// A child that has locked the first byte of the file, and says so; it ends when it can read.
fn locks(file: &File, then: Option<i64>) -> (libc::pid_t, std::io::PipeWriter) {
    let (mut told, tell) = std::io::pipe().unwrap();
    let (wait, go) = std::io::pipe().unwrap();
    // SAFETY: the child makes system calls, and ends.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            // Nobody else holds the other end.
            libc::close(go.as_raw_fd());
            libc::alarm(30);
            let fd = file.as_raw_fd();
            libc::fcntl(fd, libc::F_SETLK, &record(libc::F_WRLCK, 0));
            libc::write(tell.as_raw_fd(), [0_u8].as_ptr().cast(), 1);
            match then {
                Some(byte) => _ = libc::fcntl(fd, libc::F_SETLKW, &record(libc::F_WRLCK, byte)),
                None => _ = libc::read(wait.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1),
            }
            libc::_exit(0);
        }
        child
    };
    drop(tell);
    told.read_exact(&mut [0]).unwrap();
    (child, go)
}

fn record(kind: i32, byte: i64) -> libc::flock {
    // SAFETY: zeroes are a valid record.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as _;
    (record.l_start, record.l_len) = (byte, 1);
    record
}

fn lock_byte(file: &File, byte: i64) -> std::io::Result<i64> {
    // SAFETY: a valid record.
    answer(unsafe {
        libc::fcntl(
            file.as_raw_fd(),
            libc::F_SETLKW,
            &record(libc::F_WRLCK, byte),
        )
    })
}

fn reap(child: libc::pid_t) {
    // SAFETY: a child of ours.
    assert_eq!(
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
        child
    );
}

#[test]
fn locks_of_files() {
    alone!();
    on_green("table::locks_of_files", || {
        let directory = Directory::new();
        let file = File::create(directory.path("file")).unwrap();
        let (child, go) = locks(&file, None);
        fails(|| lock_byte(&file, 0));
        // A lock that is free is taken, whatever has ended.
        assert!(
            time::timeout_at(Instant::now(), || lock_byte(&file, 1))
                .unwrap()
                .is_ok()
        );
        drop(go);
        assert!(time::timeout(HOUR, || lock_byte(&file, 0)).unwrap().is_ok());
        reap(child);
        let other = File::create(directory.path("file")).unwrap();
        // SAFETY: numbers.
        let lock = |file: &File| answer(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) });
        lock(&file).unwrap();
        fails(|| lock(&other));
        assert!(cancel::deadline().is_none());
        drop(file);
        assert!(time::timeout(HOUR, || lock(&other)).unwrap().is_ok());
    });
}

// ==== polls ====

fn mask_with(signal: i32) -> libc::sigset_t {
    // SAFETY: valid places.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        libc::sigaddset(&mut mask, signal);
        mask
    }
}

/// `poll`, `ppoll`, `select` and `pselect` for reading.
fn polls(
    fds: &[i32],
    limit: Option<i64>,
    mask: Option<&libc::sigset_t>,
) -> [std::io::Result<i64>; 4] {
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    let records = || {
        let record = |&fd: &i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        fds.iter().map(record).collect::<Vec<_>>()
    };
    let set = || {
        // SAFETY: an empty set, and small numbers.
        unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            fds.iter().for_each(|&fd| libc::FD_SET(fd, &mut set));
            set
        }
    };
    let none = std::ptr::null_mut();
    let (count, most) = (fds.len() as u64, fds.iter().max().unwrap() + 1);
    let limit = limit.map(seconds);
    let at = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut micros = limit.map(|limit| libc::timeval {
        tv_sec: limit.tv_sec,
        tv_usec: 0,
    });
    let micros = micros
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let millis = limit.map_or(-1, |limit| (limit.tv_sec * 1000) as i32);
    // SAFETY: records, sets, times and a mask, or null.
    unsafe {
        [
            answer(libc::poll(records().as_mut_ptr(), count, millis)),
            answer(libc::ppoll(records().as_mut_ptr(), count, at, mask)),
            answer(libc::select(most, &mut set(), none, none, micros)),
            answer(libc::pselect(most, &mut set(), none, none, at, mask)),
        ]
    }
}

#[test]
fn polls_say_what_is_ready() {
    on_green("table::polls_say_what_is_ready", || {
        let (near, far) = pair();
        let (other, _far) = pair();
        let fds = [near.as_raw_fd(), other.as_raw_fd()];
        for (results, errno) in ended(|| polls(&fds, None, None)) {
            for result in results {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
            }
        }
        // Its own limit, also in a frame that has ended.
        let results = time::timeout_at(Instant::now(), || polls(&fds, Some(0), None)).unwrap();
        assert_eq!(results.map(Result::unwrap), [0; 4]);
        (&far).write_all(b"a").unwrap();
        for limit in [None, Some(0), Some(3600)] {
            let results = time::timeout_at(Instant::now(), || polls(&fds, limit, None)).unwrap();
            assert_eq!(results.map(Result::unwrap), [1; 4]);
        }
        // The connections stay.
        let result = time::timeout_at(Instant::now(), || (&near).read(&mut [0]));
        assert_eq!(result.unwrap().unwrap(), 1);
        (&far).write_all(b"b").unwrap();
        assert_eq!((&near).read(&mut [0]).unwrap(), 1);
    });
}

#[test]
fn polls_with_another_mask_fail() {
    alone!(GT_PATIENCE = "10");
    on_green("table::polls_with_another_mask_fail", || {
        let (near, _far) = pair();
        let mask = mask_with(libc::SIGUSR2);
        for (results, errno) in ended(|| {
            let fds = [near.as_raw_fd()];
            // SAFETY: one record; a mask.
            let _ = &fds;
            let mut record = libc::pollfd {
                fd: fds[0],
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: as above.
            answer(unsafe { libc::ppoll(&mut record, 1, std::ptr::null(), &mask) })
        }) {
            assert_eq!(results.unwrap_err().raw_os_error(), Some(errno));
        }
    });
}

#[test]
fn event_loops_wait_on() {
    on_green("table::event_loops_wait_on", || {
        // SAFETY: calls on descriptors of ours, and places for one record.
        unsafe {
            let epoll = libc::epoll_create1(0);
            let event = libc::eventfd(0, 0);
            let mut wanted = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 7,
            };
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event, &mut wanted);
            for _ in 0..3 {
                let begun = AtomicBool::new(false);
                let got = thread::scope(|s| {
                    let waits = s.spawn(|| {
                        time::timeout_at(Instant::now(), || {
                            begun.store(true, SeqCst);
                            let mut got = libc::epoll_event { events: 0, u64: 0 };
                            let answer = answer(libc::epoll_wait(epoll, &mut got, 1, -1));
                            (answer.unwrap(), got.u64)
                        })
                    });
                    wait_until(|| begun.load(SeqCst));
                    thread::sleep(SOON);
                    assert!(!waits.is_finished());
                    libc::write(event, 1_u64.to_ne_bytes().as_ptr().cast(), 8);
                    waits.join().unwrap()
                });
                assert_eq!(got, Ok((1, 7)));
                libc::read(event, [0_u8; 8].as_mut_ptr().cast(), 8);
            }
            // Its own limit.
            let none = || {
                let mut got = libc::epoll_event { events: 0, u64: 0 };
                libc::epoll_wait(epoll, &mut got, 1, 5)
            };
            assert_eq!(time::timeout_at(Instant::now(), none), Ok(0));
            libc::close(epoll);
            libc::close(event);
        }
    });
}

// ==== sleeps ====

#[test]
fn every_sleep_ends_early() {
    on_green("table::every_sleep_ends_early", || {
        let hour = seconds(3600);
        let begun = Instant::now();
        for clock in [
            libc::CLOCK_MONOTONIC,
            libc::CLOCK_REALTIME,
            libc::CLOCK_BOOTTIME,
        ] {
            for absolute in [false, true] {
                let sleep = || {
                    let mut time = hour;
                    // SAFETY: valid places.
                    unsafe {
                        if absolute {
                            libc::clock_gettime(clock, &mut time);
                            time.tv_sec += 3600;
                        }
                        let flags = if absolute { libc::TIMER_ABSTIME } else { 0 };
                        libc::clock_nanosleep(clock, flags, &time, std::ptr::null_mut())
                    }
                };
                ended(sleep)
                    .iter()
                    .for_each(|(result, _)| assert_eq!(*result, 0));
            }
        }
        // SAFETY: valid places.
        let sleeps = || unsafe {
            [
                libc::nanosleep(&hour, std::ptr::null_mut()),
                libc::usleep(3_600_000_000),
                libc::sleep(3600) as i32,
            ]
        };
        ended(sleeps)
            .iter()
            .for_each(|(result, _)| assert_eq!(*result, [0; 3]));
        assert!(begun.elapsed() < Duration::from_secs(600));
    });
}

// ==== transfers ====

#[test]
fn each_refused_transfer_shuts_the_connection_down() {
    type Pair = fn() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd);
    on_green(
        "table::each_refused_transfer_shuts_the_connection_down",
        || {
            let pairs: [Pair; 2] = [
                || {
                    let (near, far) = pair();
                    (near.into(), far.into())
                },
                || {
                    let (near, far) = UnixStream::pair().unwrap();
                    (near.into(), far.into())
                },
            ];
            let calls: [fn(i32) -> isize; 6] = [
                // SAFETY: places for bytes, and records that lead there.
                |fd| unsafe { libc::read(fd, [0_u8].as_mut_ptr().cast(), 1) },
                // SAFETY: a place for a byte.
                |fd| unsafe { libc::recv(fd, [0_u8].as_mut_ptr().cast(), 1, 0) },
                // SAFETY: as above.
                |fd| unsafe { libc::recv(fd, [0_u8].as_mut_ptr().cast(), 1, libc::MSG_PEEK) },
                // SAFETY: as above.
                |fd| unsafe {
                    let null: *mut u8 = std::ptr::null_mut();
                    libc::recvfrom(
                        fd,
                        [0_u8].as_mut_ptr().cast(),
                        1,
                        0,
                        null.cast(),
                        null.cast(),
                    )
                },
                // SAFETY: a record that leads to such a place.
                |fd| unsafe {
                    let mut byte = [0_u8];
                    let part = libc::iovec {
                        iov_base: byte.as_mut_ptr().cast(),
                        iov_len: 1,
                    };
                    libc::readv(fd, &part, 1)
                },
                // SAFETY: as above.
                |fd| unsafe {
                    let mut byte = [0_u8];
                    let mut part = libc::iovec {
                        iov_base: byte.as_mut_ptr().cast(),
                        iov_len: 1,
                    };
                    let mut message: libc::msghdr = std::mem::zeroed();
                    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
                    libc::recvmsg(fd, &mut message, 0)
                },
            ];
            for make in pairs {
                for call in calls {
                    for past in [false, true] {
                        let (near, far) = make();
                        let limit = if past { Duration::ZERO } else { SOON };
                        let result = time::timeout(limit, || answer(call(near.as_raw_fd())));
                        let error = result.unwrap().unwrap_err();
                        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
                        assert_eq!((&File::from(far)).read(&mut [0]).unwrap(), 0);
                        // SAFETY: a byte.
                        let sent = answer(unsafe {
                            libc::send(
                                near.as_raw_fd(),
                                [0_u8].as_ptr().cast(),
                                1,
                                libc::MSG_NOSIGNAL,
                            )
                        });
                        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EPIPE));
                    }
                }
                // What has come is counted first, and the connection stays.
                let (near, far) = make();
                let far = File::from(far);
                (&far).write_all(b"abc").unwrap();
                let all = |fd| {
                    // SAFETY: a place for bytes.
                    answer(unsafe {
                        libc::recv(fd, [0_u8; 9].as_mut_ptr().cast(), 9, libc::MSG_WAITALL)
                    })
                };
                let short = time::timeout(SOON, || all(near.as_raw_fd()));
                assert_eq!(short.unwrap().unwrap(), 3);
                (&far).write_all(b"123456789").unwrap();
                assert_eq!(all(near.as_raw_fd()).unwrap(), 9);
            }
        },
    );
}

/// A limit of its own comes first, and is not the frame's business.
#[test]
fn own_limits_of_sockets_come_first() {
    on_green("table::own_limits_of_sockets_come_first", || {
        let (near, far) = pair();
        near.set_read_timeout(Some(SOON)).unwrap();
        let result = time::timeout(HOUR, || (&near).read(&mut [0]));
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
        (&far).write_all(b"a").unwrap();
        assert_eq!((&near).read(&mut [0]).unwrap(), 1);
        // The other way round.
        near.set_read_timeout(Some(HOUR)).unwrap();
        let result = time::timeout(SOON, || (&near).read(&mut [0]));
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn what_is_no_stream_stays() {
    on_green("table::what_is_no_stream_stays", || {
        let (near, far) = UnixDatagram::pair().unwrap();
        fails(|| near.recv(&mut [0]));
        far.send(b"a").unwrap();
        assert_eq!(near.recv(&mut [0]).unwrap(), 1);
        // Until the other side's queue is full.
        far.set_nonblocking(true).unwrap();
        while far.send(&[0; 1000]).is_ok() {}
        far.set_nonblocking(false).unwrap();
        fails(|| far.send(&[0; 1000]));
        assert!(near.recv(&mut [0; 1000]).is_ok());
        assert!(time::timeout(HOUR, || far.send(b"b")).unwrap().is_ok());
        let mut fds = [0; 2];
        // SAFETY: a place for two numbers.
        unsafe {
            assert_eq!(
                libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, fds.as_mut_ptr()),
                0
            );
        }
        // SAFETY: places for bytes.
        let read = |fd| answer(unsafe { libc::read(fd, [0_u8; 8].as_mut_ptr().cast(), 8) });
        fails(|| read(fds[0]));
        // SAFETY: as above.
        unsafe { libc::write(fds[1], b"a".as_ptr().cast(), 1) };
        assert_eq!(read(fds[0]).unwrap(), 1);
        // SAFETY: numbers.
        let event = unsafe { libc::eventfd(0, 0) };
        fails(|| read(event));
        // SAFETY: as above.
        unsafe { libc::write(event, 1_u64.to_ne_bytes().as_ptr().cast(), 8) };
        assert_eq!(read(event).unwrap(), 8);
        for fd in [fds[0], fds[1], event] {
            // SAFETY: a descriptor of ours.
            unsafe { libc::close(fd) };
        }
    });
}

/// A call that has waited in a frame and succeeds leaves `errno` alone.
#[test]
fn errno_stays() {
    on_green("table::errno_stays", || {
        fn kept<T>(call: impl FnOnce() -> T) -> T {
            let result = time::timeout(HOUR, || {
                // SAFETY: the thread's own.
                unsafe { *libc::__errno_location() = 123 };
                let result = call();
                // SAFETY: as above.
                (result, unsafe { *libc::__errno_location() })
            });
            let (result, errno) = result.unwrap();
            assert_eq!(errno, 123);
            result
        }
        let (near, far) = pair();
        let later = thread::spawn(move || {
            thread::sleep(SOON);
            (&far).write_all(b"ab").unwrap();
            far
        });
        // SAFETY: a place for a byte.
        let read = || unsafe { libc::read(near.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1) };
        assert_eq!(kept(read), 1);
        let _far = later.join().unwrap();
        let directory = Directory::new();
        let open = || File::create(directory.path("file")).unwrap();
        let (one, other) = (open(), open());
        // SAFETY: numbers.
        unsafe { libc::flock(one.as_raw_fd(), libc::LOCK_EX) };
        let later = thread::spawn(move || {
            thread::sleep(SOON);
            drop(one);
        });
        // SAFETY: numbers.
        assert_eq!(
            // SAFETY: numbers.
            kept(|| unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX) }),
            0
        );
        later.join().unwrap();
        #[allow(clippy::zombie_processes)] // libc's calls wait for it
        let child = std::process::Command::new("sleep")
            .arg("0.02")
            .spawn()
            .unwrap();
        let id = child.id() as i32;
        // SAFETY: numbers.
        assert_eq!(
            // SAFETY: as above.
            kept(|| unsafe { libc::waitpid(id, std::ptr::null_mut(), 0) }),
            id
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        kept(|| socket.connect(to.local_addr().unwrap())).unwrap();
        kept(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap();
        let listener = UnixListener::bind(directory.path("unix")).unwrap();
        kept(|| UnixStream::connect(directory.path("unix"))).unwrap();
        drop(listener);
    });
}

// ==== connections ====

/// A blocking Unix stream socket, and an address in the directory.
fn unix_socket(path: &std::path::Path) -> (UnixStream, libc::sockaddr_un) {
    use std::os::fd::FromRawFd;
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: zeroes are a valid address; a new descriptor.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as _;
        for (to, &from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = from as _;
        }
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        (UnixStream::from_raw_fd(fd), address)
    }
}

fn connect(socket: &UnixStream, address: &libc::sockaddr_un) -> std::io::Result<i64> {
    let length = size_of_val(address) as libc::socklen_t;
    // SAFETY: a valid address, and its length.
    answer(unsafe {
        libc::connect(
            socket.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            length,
        )
    })
}

#[test]
fn a_connect_puts_the_time_out_back() {
    on_green("table::a_connect_puts_the_time_out_back", || {
        let directory = Directory::new();
        let (_listener, _first) = full(&directory);
        for own in [None, Some(Duration::from_secs(7))] {
            let (socket, address) = unix_socket(&directory.path("full"));
            socket.set_write_timeout(own).unwrap();
            fails(|| connect(&socket, &address));
            assert_eq!(socket.write_timeout().unwrap(), own);
            assert!(!crate_is_nonblocking(&socket));
        }
        // Its own time-out is the earlier one.
        let (socket, address) = unix_socket(&directory.path("full"));
        socket
            .set_write_timeout(Some(Duration::from_millis(40)))
            .unwrap();
        let result = time::timeout(HOUR, || connect(&socket, &address));
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
        // A socket in non-blocking mode does not wait.
        let (socket, address) = unix_socket(&directory.path("full"));
        socket.set_nonblocking(true).unwrap();
        let result = time::timeout(HOUR, || connect(&socket, &address));
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

fn crate_is_nonblocking(socket: &impl AsRawFd) -> bool {
    // SAFETY: numbers.
    unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// Runs `body` while every kernel thread of the process gets one signal after another, whose handler restarts calls.
fn amid_signals(body: impl FnOnce()) {
    extern "C" fn handler(_: i32) {}
    // SAFETY: a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler as *const () as usize, libc::SA_RESTART);
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    let storm = std::thread::spawn(move || {
        let process = std::process::id() as i32;
        while !stops.load(SeqCst) {
            for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                let task: i32 = task.file_name().to_str().unwrap().parse().unwrap();
                // SAFETY: numbers.
                unsafe { libc::syscall(libc::SYS_tgkill, process, task, libc::SIGUSR1) };
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    body();
    stop.store(true, SeqCst);
    storm.join().unwrap();
}

/// The program's handlers restart calls, and a connect in a frame is restarted, too.
#[test]
fn a_connect_is_not_interrupted() {
    alone!(GT_PATIENCE = "30");
    amid_signals(|| {
        on_green("table::a_connect_is_not_interrupted", || {
            let directory = Directory::new();
            let (_listener, _first) = full(&directory);
            for _ in 0..20 {
                let (socket, address) = unix_socket(&directory.path("full"));
                let error = time::timeout(10 * SOON, || connect(&socket, &address))
                    .unwrap()
                    .unwrap_err();
                assert_eq!(socket.write_timeout().unwrap(), None);
                assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
            }
        });
    });
}

/// The same over TCP, where the kernel goes on with the connection.
#[test]
fn a_tcp_connect_is_not_interrupted() {
    alone!(GT_PATIENCE = "30");
    amid_signals(|| {
        on_green("table::a_tcp_connect_is_not_interrupted", || {
            let (listener, _made) = full_tcp();
            let address = listener.local_addr().unwrap();
            let libc_address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
                },
                sin_zero: [0; 8],
            };
            for _ in 0..20 {
                // SAFETY: a valid address, and its length.
                let result = time::timeout(10 * SOON, || unsafe {
                    let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
                    let length = size_of_val(&libc_address) as u32;
                    let result =
                        answer(libc::connect(fd, (&raw const libc_address).cast(), length));
                    libc::close(fd);
                    result
                });
                let error = result.unwrap().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
            }
        });
    });
}

#[test]
fn own_unix_connects_fail() {
    alone!(GT_PATIENCE = "10");
    let _w = watchdog("table::own_unix_connects_fail");
    if !hooked() {
        return;
    }
    let body = || {
        let directory = Directory::new();
        let (_listener, _first) = full(&directory);
        fails(|| greenthread::os::unix::net::UnixStream::connect(directory.path("full")));
    };
    greenthread::spawn(body).join().unwrap();
}

#[test]
fn own_datagrams_to_a_full_queue_fail() {
    alone!(GT_PATIENCE = "10");
    let _w = watchdog("table::own_datagrams_to_a_full_queue_fail");
    if !hooked() {
        return;
    }
    let body = || {
        use greenthread::os::unix::net::UnixDatagram;
        let directory = Directory::new();
        let _server = UnixDatagram::bind(directory.path("server")).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.set_nonblocking(true).unwrap();
        while client.send_to(b"a", directory.path("server")).is_ok() {}
        client.set_nonblocking(false).unwrap();
        fails(|| client.send_to(b"a", directory.path("server")));
    };
    greenthread::spawn(body).join().unwrap();
}

/// The queue of a socket that is not the peer is full, which no descriptor of the caller's tells.
#[test]
fn datagrams_to_a_full_queue_fail() {
    alone!(GT_PATIENCE = "10");
    on_green("table::datagrams_to_a_full_queue_fail", || {
        let directory = Directory::new();
        let server = UnixDatagram::bind(directory.path("server")).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.set_nonblocking(true).unwrap();
        while client.send_to(b"a", directory.path("server")).is_ok() {}
        client.set_nonblocking(false).unwrap();
        fails(|| client.send_to(b"a", directory.path("server")));
        let reads = thread::spawn(move || {
            thread::sleep(SOON);
            server.recv(&mut [0]).unwrap();
            server
        });
        let sent = time::timeout(HOUR, || client.send_to(b"a", directory.path("server")));
        assert_eq!(sent.unwrap().unwrap(), 1);
        drop(reads.join().unwrap());
    });
}

/// A child's standard input is a pipe that is silent.
#[test]
fn standard_input() {
    const TEST: &str = "table::standard_input";
    let read = || {
        use greenthread::io::BufRead;
        let mut line = String::new();
        let result = greenthread::io::stdin().lock().read_line(&mut line);
        result.map(|_| line)
    };
    if let Some(case) = crate::common::child_case(TEST) {
        let _w = watchdog(TEST);
        let std = move || {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map(|_| line)
        };
        let body = move || match &*case {
            "own" => fails(read),
            _ => fails(std),
        };
        greenthread::spawn(body).join().unwrap();
        return;
    }
    if !hooked() {
        return;
    }
    for case in ["std", "own"] {
        let mut child = crate::common::child_command(TEST, case)
            .env("GT_PATIENCE", "5")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let status = child.wait().unwrap();
        drop(input);
        assert!(status.success(), "{case}: {status}");
    }
}

// ==== the crate's own sockets and files ====

/// They fail after what has passed was counted, and stay.
#[test]
fn own_connections_stay() {
    use greenthread::net;
    let _w = watchdog("table::own_connections_stay");
    everywhere(|| {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        fails(|| listener.accept());
        let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        fails(|| (&near).read(&mut [0]));
        fails(|| near.peek(&mut [0]));
        let much = vec![7; 1 << 20];
        let mut written = 0;
        let error = loop {
            match time::timeout(SOON, || (&near).write(&much)).unwrap() {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        assert_eq!((&far).read_to_end(&mut all).unwrap(), written);
        (&far).write_all(b"abc").unwrap();
        let mut some = [0; 9];
        let result = time::timeout_at(Instant::now(), || (&near).read(&mut some));
        assert_eq!(result.unwrap().unwrap(), 3);
        let exact = time::timeout(SOON, || (&near).read_exact(&mut [0])).unwrap();
        assert_eq!(exact.unwrap_err().kind(), ErrorKind::TimedOut);
        // Own time-outs come first.
        near.set_read_timeout(Some(SOON)).unwrap();
        let result = time::timeout(HOUR, || (&near).read(&mut [0])).unwrap();
        assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
        let socket = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        fails(|| socket.recv_from(&mut [0]));
        socket.send_to(b"a", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap(), 1);
        let (reader, writer) = greenthread::io::pipe().unwrap();
        fails(|| (&reader).read(&mut [0]));
        let mut written = 0;
        while let Ok(count) = time::timeout(SOON, || (&writer).write(&much)).unwrap() {
            written += count;
        }
        drop(writer);
        all.clear();
        assert_eq!((&reader).read_to_end(&mut all).unwrap(), written);
    });
}

/// Disks answer: nothing of a file is refused, nor a connection that need not wait.
#[test]
fn what_answers_is_not_refused() {
    on_green("table::what_answers_is_not_refused", || {
        let directory = Directory::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(directory.path("socket")).unwrap();
        for round in 0..100 {
            let result = time::timeout_at(Instant::now(), || {
                let path = directory.path("file");
                std::fs::write(&path, [round; 100_000])?;
                greenthread::fs::write(&path, [round; 100_000])?;
                let file = File::open(&path)?;
                file.sync_all()?;
                assert_eq!(greenthread::fs::read(&path)?, [round; 100_000]);
                let stream = TcpStream::connect(listener.local_addr()?)?;
                let (far, _) = listener.accept()?;
                (&far).write_all(b"a")?;
                (&stream).read_exact(&mut [0])?;
                let stream = UnixStream::connect(directory.path("socket"))?;
                let (far, _) = unix.accept()?;
                (&far).write_all(b"a")?;
                (&stream).read_exact(&mut [0])
            });
            result
                .unwrap()
                .unwrap_or_else(|error| panic!("{round}: {error}"));
        }
    });
}

// ==== own limits ====

/// Calls with a limit that is the frame's, or an earlier one, return as they do without a frame.
#[test]
fn own_limits() {
    let _w = watchdog("table::own_limits");
    both(|| {
        for later in [Duration::ZERO, SOON, HOUR] {
            let frame = |at: Instant, call: &dyn Fn(Instant) -> bool| {
                assert_eq!(time::timeout_at(at + later, || call(at)), Ok(true));
                assert!(Instant::now() >= at);
            };
            let (sender, receiver) = channel::bounded::<u8>(0);
            let (mutex, condvar) = (Mutex::new(()), Condvar::new());
            let (semaphore, group) = (Semaphore::new(0), WaitGroup::new());
            let (locked, lock) = (RwLock::new(()), Mutex::new(()));
            let (_guard, _other) = (locked.write().unwrap(), lock.lock().unwrap());
            let after = channel::after(HOUR);
            let calls: [&dyn Fn(Instant) -> bool; 12] = [
                &|at| receiver.recv_deadline(at).is_err(),
                &|at| sender.send_deadline(1, at).is_err(),
                &|at| after.recv_deadline(at).is_err(),
                &|at| semaphore.acquire_deadline(at).is_none(),
                &|at| !group.clone().wait_timeout(at - Instant::now()),
                &|at| {
                    thread::park_until(at);
                    true
                },
                &|at| {
                    thread::sleep_until(at);
                    true
                },
                &|at| {
                    let guard = mutex.lock().unwrap();
                    let left = at - Instant::now();
                    condvar.wait_timeout(guard, left).unwrap().1.timed_out()
                },
                &|at| locked.try_read_until(at).is_err(),
                &|at| lock.try_lock_until(at).is_err(),
                &|at| {
                    let mut select = channel::Select::new();
                    select.recv(&receiver);
                    select.select_deadline(at).is_err()
                },
                &|at| {
                    let stop = Arc::new(Semaphore::new(0));
                    let stops = stop.clone();
                    let handle = thread::spawn(move || stops.acquire().forget());
                    let handle = handle.join_deadline(at).unwrap_err();
                    stop.add_permits(1);
                    handle.join().is_ok()
                },
            ];
            // `join` after the limit is a wait in the ended frame.
            let ends = if later == HOUR { 12 } else { 11 };
            // Limits that are lengths are a little later than that of the frame, if they are equal.
            for (i, call) in calls[..ends].iter().enumerate() {
                if !(later.is_zero() && matches!(i, 4 | 7)) {
                    frame(Instant::now() + SOON, call);
                }
            }
            assert!(!mutex.is_poisoned());
        }
    });
}

/// A call that need not wait does its work, whatever has ended.
#[test]
fn what_need_not_wait_is_done() {
    let _w = watchdog("table::what_need_not_wait_is_done");
    both(|| {
        let past = Instant::now();
        let done = |call: &dyn Fn() -> bool| {
            assert_eq!(time::timeout_at(past, call), Ok(true));
            let token = Token::new();
            token.cancel();
            assert!(matches!(token.run(call), Ok(true)));
        };
        let (sender, receiver) = channel::unbounded();
        done(&|| sender.send(1).is_ok());
        done(&|| receiver.recv().is_ok());
        // A receiver waits for it, and a sender with it.
        let (sender, receiver) = channel::bounded::<u8>(0);
        done(&|| {
            let (begun, r) = (Arc::new(AtomicBool::new(false)), receiver.clone());
            let begins = begun.clone();
            let waits = cancel::shield(Duration::MAX, || {
                let waits = thread::spawn(move || {
                    begins.store(true, SeqCst);
                    r.recv()
                });
                wait_until(|| begun.load(SeqCst));
                waits
            })
            .unwrap();
            while sender.try_send(3).is_err() {
                std::thread::yield_now();
            }
            cancel::shield(Duration::MAX, || waits.join().unwrap()).unwrap() == Ok(3)
        });
        done(&|| {
            let s = sender.clone();
            let waits = thread::spawn(move || s.send(4));
            let mut got = receiver.try_recv();
            while got.is_err() {
                std::thread::yield_now();
                got = receiver.try_recv();
            }
            cancel::shield(Duration::MAX, || waits.join().unwrap().is_ok()).unwrap() && got == Ok(4)
        });
        drop(sender);
        done(&|| receiver.recv().is_err());
        let semaphore = Semaphore::new(1);
        done(&|| {
            semaphore.acquire().forget();
            semaphore.add_permits(1);
            true
        });
        done(&|| {
            thread::current().unpark();
            thread::park();
            true
        });
        let value = OnceLock::new();
        value.set(7).unwrap();
        done(&|| *value.wait() == 7);
        done(&|| greenthread::block_on(async { 7 }) == 7);
        let over = thread::spawn(|| 7);
        wait_until(|| over.is_finished());
        let over = std::sync::Mutex::new(Some(over));
        assert_eq!(
            time::timeout_at(past, || over
                .lock()
                .unwrap()
                .take()
                .unwrap()
                .join()
                .unwrap()),
            Ok(7)
        );
    });
}

// ==== channels of timers ====

/// The message that an ended receiver has claimed is for the one that waits beside it.
#[test]
fn two_wait_for_one_message_of_a_timer() {
    alone!(GT_PATIENCE = "10");
    let _w = watchdog("table::two_wait_for_one_message_of_a_timer");
    let after = channel::after(Duration::from_millis(300));
    let (first, second) = (after.clone(), after);
    let token = Token::new();
    let ends = token.clone();
    let begun = Arc::new(AtomicBool::new(false));
    let begins = begun.clone();
    let ended = thread::spawn(move || {
        ends.run(|| {
            begins.store(true, SeqCst);
            first.recv().is_ok()
        })
        .is_err()
    });
    wait_until(|| begun.load(SeqCst));
    thread::sleep(2 * SOON);
    let waits = thread::spawn(move || second.recv().is_ok());
    thread::sleep(2 * SOON);
    token.cancel();
    assert!(ended.join().unwrap());
    assert!(waits.join().unwrap());
}

// ==== the crate's primitives ====

#[test]
fn a_permit_goes_to_the_next() {
    let _w = watchdog("table::a_permit_goes_to_the_next");
    both(|| {
        let semaphore = Semaphore::new(1);
        let begun = AtomicUsize::new(0);
        let token = Token::new();
        thread::scope(|s| {
            let first = s.spawn(|| {
                token.run(|| {
                    begun.fetch_add(1, SeqCst);
                    semaphore.acquire_many(2).forget();
                })
            });
            wait_until(|| begun.load(SeqCst) == 1 && semaphore.try_acquire().is_none());
            let second = s.spawn(|| {
                begun.fetch_add(1, SeqCst);
                semaphore.acquire().forget();
            });
            wait_until(|| begun.load(SeqCst) == 2);
            thread::sleep(SOON);
            token.cancel();
            assert!(first.join().unwrap().is_err());
            second.join().unwrap();
        });
        assert_eq!(semaphore.available_permits(), 0);
    });
}

#[test]
fn an_interval_keeps_its_ticks() {
    let _w = watchdog("table::an_interval_keeps_its_ticks");
    both(|| {
        let start = Instant::now();
        let mut interval = time::Interval::starting_at(start, 20 * SOON);
        for _ in 0..3 {
            assert_eq!(
                time::timeout_at(start + SOON, || interval.tick()),
                Err(Elapsed)
            );
        }
        assert_eq!(
            interval.tick().duration_since(start).as_nanos() % (20 * SOON).as_nanos(),
            0
        );
        assert!(start.elapsed() >= 20 * SOON);
    });
}

/// Locks, and statics that another thread makes.
#[test]
fn locks_wait_on() {
    let _w = watchdog("table::locks_wait_on");
    both(|| {
        let (go, begun) = (Semaphore::new(0), AtomicUsize::new(0));
        let (mutex, rwlock) = (Mutex::new(()), RwLock::new(()));
        let (once, lock) = (greenthread::sync::Once::new(), OnceLock::new());
        let stds = std::sync::Mutex::new(());
        let waits = |wait: &dyn Fn()| {
            let result = time::timeout_at(Instant::now(), || {
                begun.fetch_add(1, SeqCst);
                wait();
            });
            assert_eq!(result, Ok(()));
        };
        thread::scope(|s| {
            let holders = s.spawn(|| {
                let _a = mutex.lock().unwrap();
                let _b = rwlock.write().unwrap();
                let _c = stds.lock().unwrap();
                lock.get_or_init(|| {
                    once.call_once(|| {
                        begun.fetch_add(1, SeqCst);
                        go.acquire().forget();
                    });
                    7
                });
            });
            wait_until(|| begun.load(SeqCst) == 1);
            let waiters = [
                s.spawn(|| waits(&|| drop(mutex.lock()))),
                s.spawn(|| waits(&|| drop(rwlock.read()))),
                s.spawn(|| waits(&|| drop(rwlock.write()))),
                s.spawn(|| waits(&|| once.call_once(|| ()))),
                s.spawn(|| waits(&|| once.wait())),
                s.spawn(|| waits(&|| assert_eq!(lock.get_or_init(|| 8), &7))),
                s.spawn(|| waits(&|| assert_eq!(lock.wait(), &7))),
                s.spawn(|| waits(&|| drop(stds.lock()))),
            ];
            wait_until(|| begun.load(SeqCst) == 9);
            thread::sleep(2 * SOON);
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            go.add_permits(1);
            holders.join().unwrap();
            waiters
                .into_iter()
                .for_each(|waiter| waiter.join().unwrap());
        });
    });
}

/// Of std and of C.
#[test]
fn foreign_waits_wait_on() {
    on_green("table::foreign_waits_wait_on", || {
        let begun = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel::<u8>();
        let (stop, stopped) = mpsc::channel::<()>();
        let kernel = std::thread::spawn(move || stopped.recv().is_ok());
        let (_keep, parked) = (sender.clone(), &begun);
        thread::scope(|s| {
            let receives = s.spawn(move || {
                time::timeout_at(Instant::now(), || {
                    parked.fetch_add(1, SeqCst);
                    receiver.recv()
                })
            });
            let joins = s.spawn(move || {
                time::timeout_at(Instant::now(), || {
                    parked.fetch_add(1, SeqCst);
                    kernel.join().is_ok()
                })
            });
            wait_until(|| begun.load(SeqCst) == 2);
            thread::sleep(2 * SOON);
            assert!(!receives.is_finished() && !joins.is_finished());
            sender.send(7).unwrap();
            drop(stop);
            assert_eq!(receives.join().unwrap(), Ok(Ok(7)));
            assert_eq!(joins.join().unwrap(), Ok(true));
        });
    });
}

#[test]
fn a_future_is_dropped() {
    let _w = watchdog("table::a_future_is_dropped");
    both(|| {
        let shared = Arc::new(());
        let held = shared.clone();
        let result = time::timeout(SOON, || {
            greenthread::block_on(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
        });
        assert_eq!(result, Err(Elapsed));
        assert_eq!(Arc::strong_count(&shared), 1);
    });
}

#[test]
fn a_condvar_leaves_its_mutex_alone() {
    let _w = watchdog("table::a_condvar_leaves_its_mutex_alone");
    both(|| {
        let (mutex, condvar) = (Mutex::new(7), Condvar::new());
        let waits: [&dyn Fn(); 4] = [
            &|| drop(condvar.wait(mutex.lock().unwrap())),
            &|| drop(condvar.wait_while(mutex.lock().unwrap(), |_| true)),
            &|| drop(condvar.wait_timeout(mutex.lock().unwrap(), HOUR)),
            &|| drop(condvar.wait_timeout_while(mutex.lock().unwrap(), HOUR, |_| true)),
        ];
        for wait in waits {
            for limit in [SOON, Duration::ZERO] {
                assert_eq!(time::timeout(limit, wait), Err(Elapsed));
                assert_eq!(*mutex.try_lock().expect("neither locked nor poisoned"), 7);
            }
        }
    });
}

/// The frame's timer fires while the thread, which has left a shield, looks at its frames: between its look at the clock and its
/// second look. There are many frames, so that takes a while.
#[test]
fn a_limit_passes_while_the_thread_looks() {
    fn within(frames: usize, f: &dyn Fn()) {
        match frames {
            0 => f(),
            _ => time::timeout(HOUR, || within(frames - 1, f)).expect("an hour"),
        }
    }
    alone!(GT_PATIENCE = "20");
    let _w = watchdog("table::a_limit_passes_while_the_thread_looks");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let (stop, rounds) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let looks = || {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        runtime.spawn(move || {
            while !stop.load(SeqCst) {
                let round = rounds.fetch_add(1, SeqCst) as u32;
                let ends = Instant::now() + Duration::from_micros(400);
                let before = Duration::from_nanos(100) * (round % 400);
                let result = time::timeout_at(ends, || {
                    within(200, &|| {
                        // The timer is kept over this wait.
                        let me = thread::current();
                        thread::spawn(move || me.unpark());
                        thread::park();
                        while Instant::now() + before < ends {}
                        let _ = cancel::shield(Duration::MAX, || ());
                        thread::sleep(HOUR);
                    });
                });
                assert_eq!(result, Err(Elapsed));
            }
        })
    };
    let all: Vec<_> = (0..3).map(|_| looks()).collect();
    let yields = |_| {
        let stop = stop.clone();
        runtime.spawn(move || {
            while !stop.load(SeqCst) {
                thread::yield_now()
            }
        })
    };
    let yielding: Vec<_> = (0..2).map(yields).collect();
    std::thread::sleep(2 * crate::common::stress_time());
    stop.store(true, SeqCst);
    all.into_iter()
        .chain(yielding)
        .for_each(|thread| thread.join().unwrap());
    println!("{rounds:?}");
    runtime.shutdown();
}

// ==== deaf loops ====

/// Also on a kernel thread, and of the crate's own sockets.
#[test]
fn own_deaf_loops_are_slow() {
    let _w = watchdog("table::own_deaf_loops_are_slow");
    both(|| {
        let listener = greenthread::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Instant::now();
        let mut rounds = 0;
        let result = time::timeout_at(begin, || {
            while begin.elapsed() < 40 * SOON {
                assert!(listener.accept().is_err());
                rounds += 1;
            }
        });
        assert!(result.is_ok() && rounds < 60, "{rounds}");
    });
}

// ==== forks ====

#[test]
fn a_forked_child_has_no_frames() {
    let _w = watchdog("table::a_forked_child_has_no_frames");
    both(|| {
        let token = Token::new();
        token.cancel();
        let forks = || {
            // SAFETY: the child asks, and ends.
            unsafe {
                match libc::fork() {
                    0 => {
                        let wrong = [cancel::is_cancelled(), cancel::deadline().is_some()];
                        cancel::check();
                        libc::_exit(i32::from(wrong[0]) + 2 * i32::from(wrong[1]));
                    }
                    child => child,
                }
            }
        };
        let children = [
            time::timeout_at(Instant::now(), forks).unwrap(),
            token.run(forks).unwrap(),
        ];
        for child in children {
            let mut status = 0;
            // SAFETY: a valid place.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(libc::WEXITSTATUS(status), 0);
        }
    });
}

/// Only the first read of a pipe or a SEQPACKET socket waits on after a fork.
#[test]
fn a_datagram_after_a_fork_is_refused() {
    alone!(GT_PATIENCE = "10");
    let _w = watchdog("table::a_datagram_after_a_fork_is_refused");
    if !hooked() {
        return;
    }
    let body = || {
        // SAFETY: the child ends.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => child,
            }
        };
        reap(child);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        fails(|| socket.recv(&mut [0]));
    };
    greenthread::spawn(body).join().unwrap();
}

/// The crate's own `Command` reads what the child says itself: the thread's next read is no longer exempt.
#[test]
fn a_pipe_after_an_own_command_is_refused() {
    use greenthread::os::unix::process::CommandExt;
    alone!(GT_PATIENCE = "10");
    let _w = watchdog("table::a_pipe_after_an_own_command_is_refused");
    if !hooked() {
        return;
    }
    let body = || {
        let mut command = greenthread::process::Command::new("true");
        // SAFETY: it does nothing.
        unsafe { command.pre_exec(|| Ok(())) };
        assert!(command.status().unwrap().success());
        let (reader, _writer) = std::io::pipe().unwrap();
        fails(|| (&reader).read(&mut [0]));
    };
    greenthread::spawn(body).join().unwrap();
}

// ==== other masks, files, ticks ====

/// A `pselect` with another mask sees in a frame what comes while it waits.
#[test]
fn selects_with_another_mask_see_what_comes() {
    on_green("table::selects_with_another_mask_see_what_comes", || {
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let writes = thread::spawn(move || {
            thread::sleep(10 * SOON);
            (&writer).write_all(b"x").unwrap();
            writer
        });
        let mask = mask_with(libc::SIGHUP);
        let waits = || {
            // SAFETY: a set and a mask.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(fd, &mut set);
                let null = std::ptr::null_mut();
                let count = libc::pselect(fd + 1, &mut set, null, null, std::ptr::null(), &mask);
                (count, libc::FD_ISSET(fd, &set))
            }
        };
        assert_eq!(time::timeout(HOUR, waits), Ok((1, true)));
        drop(writes.join().unwrap());
    });
}

/// Event loops wait on with another mask, too.
#[test]
fn event_loops_with_another_mask_wait_on() {
    on_green("table::event_loops_with_another_mask_wait_on", || {
        let mask = mask_with(libc::SIGHUP);
        let waits = || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: a place for an event, and a mask.
            unsafe { libc::epoll_pwait(libc::epoll_create1(0), &mut event, 1, 20, &mask) }
        };
        assert_eq!(time::timeout_at(Instant::now(), waits), Ok(0));
    });
}

/// A read of a FIFO by `fs::File` waits on.
#[test]
fn files_wait_on() {
    on_green("table::files_wait_on", || {
        let directory = Directory::new();
        let path = directory.path("fifo");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (mut reader, mut writer) = (greenthread::fs::File::from(open()), open());
        let writes = thread::spawn(move || {
            thread::sleep(10 * SOON);
            writer.write_all(b"x").unwrap();
        });
        let read = time::timeout(SOON, || reader.read(&mut [0; 8]).unwrap());
        assert_eq!(read, Ok(1));
        writes.join().unwrap();
    });
}

/// The messages of a ticker are periods apart, however long a thread takes to wake up.
#[test]
fn ticks_do_not_drift() {
    let _w = watchdog("table::ticks_do_not_drift");
    crate::common::both(|| {
        let ticks = greenthread::channel::tick(SOON);
        let times: Vec<_> = (0..20).map(|_| ticks.recv().unwrap()).collect();
        // (Beside others it may be late by more than a period.)
        assert!(times.windows(2).any(|two| two[1] - two[0] == SOON));
    });
}

// ==== names ====

/// In a process whose /etc/hosts is a pipe that nobody writes to: so each question waits.
#[test]
fn names_of_hosts() {
    const TEST: &str = "table::names_of_hosts";
    use std::net::ToSocketAddrs;
    if let Some(case) = crate::common::child_case(TEST) {
        let _w = watchdog(TEST);
        let body = move || match &*case {
            "std" => fails(|| ("silent.example", 1).to_socket_addrs()),
            "tcp" => fails(|| greenthread::net::TcpStream::connect("silent.example:1")),
            "bind" => fails(|| greenthread::net::TcpListener::bind("silent.example:1")),
            "udp" => {
                let socket = greenthread::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                fails(|| socket.send_to(b"a", "silent.example:1"));
            }
            "connect" => {
                let socket = greenthread::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                fails(|| socket.connect("silent.example:1"));
            }
            // A name that is a number is no question.
            "number" => {
                let address = ("127.0.0.1", 1);
                let found = time::timeout_at(Instant::now(), || address.to_socket_addrs());
                assert!(found.unwrap().is_ok());
                let (mut list, null) = (std::ptr::null_mut(), std::ptr::null());
                let asked = time::timeout_at(Instant::now(), || {
                    // SAFETY: strings, and a place.
                    unsafe {
                        libc::getaddrinfo(c"127.0.0.1".as_ptr(), null, std::ptr::null(), &mut list)
                    }
                });
                assert_eq!(asked, Ok(0));
                // SAFETY: libc has made it.
                unsafe { libc::freeaddrinfo(list) };
            }
            _ => unreachable!(),
        };
        greenthread::spawn(body).join().unwrap();
        // Kernel threads of the crate's may still ask.
        std::process::exit(0);
    }
    if !hooked() {
        return;
    }
    let directory = Directory::new();
    let path = |name: &str| std::ffi::CString::new(directory.path(name).to_str().unwrap()).unwrap();
    let hosts = path("hosts");
    std::fs::write(directory.path("nsswitch"), "hosts: files\n").unwrap();
    let switch = path("nsswitch");
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(hosts.as_ptr(), 0o666) }, 0);
    let run = |case: &str| {
        use std::os::unix::process::CommandExt;
        let (hosts, switch) = (hosts.clone(), switch.clone());
        let mut command = crate::common::child_command(TEST, case);
        command.env("GT_PATIENCE", "5");
        let set_up = move || {
            // SAFETY: strings.
            unsafe {
                let null = std::ptr::null();
                let flags = libc::MS_REC | libc::MS_PRIVATE;
                let bind = |from: &std::ffi::CStr, to: &std::ffi::CStr| {
                    let null: *const libc::c_char = std::ptr::null();
                    libc::mount(from.as_ptr(), to.as_ptr(), null, libc::MS_BIND, null.cast())
                };
                let is_done = libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0
                    && libc::mount(null, c"/".as_ptr(), null, flags, null.cast()) == 0
                    && bind(&hosts, c"/etc/hosts") == 0
                    && bind(&switch, c"/etc/nsswitch.conf") == 0;
                match is_done {
                    true => Ok(()),
                    false => Err(std::io::Error::last_os_error()),
                }
            }
        };
        // SAFETY: system calls only.
        unsafe { command.pre_exec(set_up) };
        command.output()
    };
    let mut wrong = Vec::new();
    for case in ["number", "std", "tcp", "udp", "connect", "bind"] {
        match run(case) {
            Ok(out) if !out.status.success() => wrong.push((case, crate::common::said(&out))),
            Ok(_) => {}
            Err(error) => return eprintln!("NO NAMESPACES: {error}"),
        }
    }
    let cases: Vec<_> = wrong.iter().map(|(case, _)| *case).collect();
    assert!(wrong.is_empty(), "{cases:?}: {}", wrong[0].1);
}

/// Callers leave their questions at any moment: no answer is freed twice, none is lost, and no kernel thread stays.
#[test]
fn names_that_are_left_behind() {
    use std::net::ToSocketAddrs;
    alone!();
    let _w = watchdog("table::names_that_are_left_behind");
    if !hooked() {
        return;
    }
    let ask = || {
        let all: Vec<_> = (0..8)
            .map(|index| {
                thread::spawn(move || {
                    let mut rng = crate::common::Rng::new("names_that_are_left_behind");
                    let (mut left, mut found) = (0, 0);
                    for round in 0..150 * (index + 1) {
                        let limit = Duration::from_micros(rng.below(400) as u64);
                        let token = Token::new();
                        let canceller = token.clone();
                        let canceller = (round % 2 == 0).then(|| {
                            thread::spawn(move || {
                                thread::sleep(limit);
                                canceller.cancel();
                            })
                        });
                        let ask = || ("localhost", 7).to_socket_addrs();
                        let answer = match &canceller {
                            Some(_) => token.run(ask).unwrap(),
                            None => time::timeout(limit, ask).unwrap(),
                        };
                        match answer {
                            Ok(mut all) => {
                                assert!(all.all(|address| address.ip().is_loopback()));
                                found += 1;
                            }
                            Err(error) => {
                                assert!(cancel::is_cause(&error), "{error}");
                                left += 1;
                            }
                        }
                        if let Some(canceller) = canceller {
                            canceller.join().unwrap();
                        }
                    }
                    (left, found)
                })
            })
            .collect();
        let sums = all.into_iter().map(|thread| thread.join().unwrap());
        let (left, found) = sums.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        println!("{left} left behind, {found} found");
        wait_until(|| {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks
                .map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
            names.filter(|name| name.trim() == "gt-resolver").count() == 0
        });
        // SAFETY: it takes nothing.
        unsafe { libc::mallinfo2() }.uordblks
    };
    ask();
    let before = ask();
    let after = ask();
    assert!(after < before + (256 << 10), "{before} {after}");
}

// ==== ends of threads ====

/// Destructors of thread-locals: what can fail is refused, what cannot waits.
#[test]
fn destructors_of_thread_locals() {
    let _w = watchdog("table::destructors_of_thread_locals");
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct Local;
    impl Drop for Local {
        fn drop(&mut self) {
            let listener = greenthread::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let error = listener.accept().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            thread::sleep(SOON);
            SEEN.fetch_add(1, SeqCst);
        }
    }
    thread_local!(static LOCAL: Local = const { Local });
    let before = SEEN.load(SeqCst);
    let cancelled = thread::spawn(|| {
        LOCAL.with(|_| ());
        thread::park();
    });
    thread::sleep(SOON);
    cancelled.cancel();
    assert!(cancelled.join().unwrap_err().is::<Cancelled>());
    wait_until(|| SEEN.load(SeqCst) == before + 1);
}

/// A payload that was swallowed comes again with the next wait, and hides no panic.
#[test]
fn who_swallows_waits_no_more() {
    let _w = watchdog("table::who_swallows_waits_no_more");
    both(|| {
        let caught = AtomicUsize::new(0);
        let swallows = || {
            time::timeout(SOON, || {
                for _ in 0..3 {
                    let wait = AssertUnwindSafe(|| thread::sleep(HOUR));
                    caught.fetch_add(usize::from(catch_unwind(wait).is_err()), SeqCst);
                }
                resume_unwind(Box::new(7))
            })
        };
        let payload: Result<Result<(), Elapsed>, _> = catch_unwind(AssertUnwindSafe(swallows));
        assert_eq!(payload.unwrap_err().downcast_ref(), Some(&7));
        assert_eq!(caught.into_inner(), 3);
        assert!(!cancel::is_cancelled());
    });
}

/// A destructor prints while the thread unwinds, and who reads what the program prints is slow: that is no second panic.
#[test]
fn a_destructor_prints() {
    const TEST: &str = "table::a_destructor_prints";
    struct Prints(bool);
    impl Drop for Prints {
        fn drop(&mut self) {
            match self.0 {
                true => println!("ended"),
                false => eprintln!("ended"),
            }
        }
    }
    if let Some(case) = crate::common::child_case(TEST) {
        let (is_out, is_socket) = (case.contains("out"), case.contains("socket"));
        let fd = if is_out { 1 } else { 2 };
        // The runtime, as it starts, may have something to say, too.
        greenthread::spawn(|| ()).join().unwrap();
        // SAFETY: numbers, and a byte.
        unsafe {
            let mut fds = [0; 2];
            match is_socket {
                true => libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, fds.as_mut_ptr()),
                false => libc::pipe(fds.as_mut_ptr()),
            };
            libc::dup2(fds[1], fd);
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            while libc::write(fd, [b'-'; 512].as_ptr().cast(), 512) > 0 {}
            libc::fcntl(fd, libc::F_SETFL, flags);
            let ended = greenthread::spawn(move || {
                time::timeout(SOON, || {
                    let _prints = Prints(is_out);
                    thread::park();
                })
            });
            std::thread::sleep(20 * SOON);
            let reader = std::thread::spawn(move || {
                let mut all = vec![0; 1 << 20];
                let mut text = Vec::new();
                while !text.ends_with(b"ended\n") {
                    match libc::read(fds[0], all.as_mut_ptr().cast(), all.len()) {
                        0 => return false,
                        n => text.extend_from_slice(&all[..n as usize]),
                    }
                }
                true
            });
            assert_eq!(ended.join().unwrap(), Err(Elapsed));
            let has_come = reader.join().unwrap();
            libc::_exit(if has_come { 0 } else { 3 });
        }
    }
    if !hooked() {
        return;
    }
    let mut wrong = Vec::new();
    for case in ["out", "err", "out, a socket", "err, a socket"] {
        let out = crate::common::child_with(TEST, case, &[("GT_PATIENCE", "5")]);
        if !out.status.success() {
            wrong.push((case, out.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

// ==== reports ====

#[test]
#[cfg(feature = "observe")]
fn dumps_keep_to_their_schema() {
    let _w = watchdog("table::dumps_keep_to_their_schema");
    let schema = std::fs::read_to_string("docs/dump.schema.json").unwrap();
    let token = Token::new();
    let of = token.clone();
    let waits = thread::spawn(move || of.run(|| time::timeout(HOUR, thread::park)).is_err());
    wait_until(|| {
        greenthread::observe::dump()
            .to_string()
            .contains("in a frame that ends in")
    });
    let mut json = Vec::new();
    greenthread::observe::dump().write_json(&mut json).unwrap();
    token.cancel();
    assert!(waits.join().unwrap());
    let json = String::from_utf8(json).unwrap();
    for member in ["frames_end_in_ms", "cancelled"] {
        let quoted = format!("\"{member}\"");
        assert!(
            !json.contains(&quoted) || schema.contains(&quoted),
            "{member}"
        );
    }
}

// ==== kernel threads ====

/// A kernel thread that waits for a connection, in no frame of the program's, sleeps.
#[test]
fn kernel_threads_sleep() {
    alone!(GREENTHREAD_MODE = "kernel");
    let _w = watchdog("table::kernel_threads_sleep");
    let listener = greenthread::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    let waits = thread::spawn(move || {
        tell.send(crate::common::gettid()).unwrap();
        listener.accept().is_ok()
    });
    let id = told.recv().unwrap();
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    std::thread::sleep(20 * SOON);
    let before = switches();
    std::thread::sleep(Duration::from_secs(1));
    let woken = switches() - before;
    greenthread::net::TcpStream::connect(address).unwrap();
    assert!(waits.join().unwrap());
    assert!(woken < 5, "woken {woken} times in a second");
}
