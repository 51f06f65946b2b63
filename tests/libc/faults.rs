//! Every hooked call with addresses that are not there: the answer is the kernel's error, as on a kernel thread, and
//! no crash.
//!
//! A process of its own makes all the calls on a kernel thread, and another one on a green thread; what they print must
//! be the same. Where libc reads the memory itself, a bad address ends the process, the same way on both.
//! C's threads are not here: libc reads and writes their objects itself.
#![cfg(feature = "unmodified")]
#![allow(clippy::type_complexity)] // tables of calls
#![allow(clippy::zombie_processes)] // libc's calls wait

use crate::common::*;
use greenthread as thread;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::ptr::{null, null_mut};

/// Memory that cannot be accessed as a call wants to.
#[derive(Clone, Copy)]
struct Bad {
    what: &'static str,
    at: usize,
    /// How many bytes there can be written.
    room: usize,
}

/// Low memory, a page without access, a page that can only be read, and the end of a page before one without access.
fn bad_places() -> Vec<Bad> {
    const PAGE: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of five pages, whose protection is changed.
    let start = unsafe {
        let start = libc::mmap(null_mut(), 5 * PAGE, both, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let protect = |page: usize, how| libc::mprotect(start.byte_add(page * PAGE), PAGE, how);
        assert_eq!(protect(0, libc::PROT_NONE), 0);
        assert_eq!(protect(2, libc::PROT_READ), 0);
        assert_eq!(protect(4, libc::PROT_NONE), 0);
        start as usize
    };
    [
        ("page 0", 16, 0),
        ("no access", start + 64, 0),
        ("odd, no access", start + 65, 0),
        ("read only", start + 2 * PAGE + 64, 0),
        ("too short", start + 4 * PAGE - 4, 4),
        ("much too short", start + 4 * PAGE - 1, 1),
        ("nobody's", 0x1234_5678_9abc_def0, 0),
    ]
    .map(|(what, at, room)| Bad { what, at, room })
    .to_vec()
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// Prints the answer of a call, and what it has written.
fn ask(what: &str, bad: Bad, call: impl FnOnce() -> i64) {
    // SAFETY: so many bytes can be written, and are the test's.
    let room = unsafe { std::slice::from_raw_parts_mut(bad.at as *mut u8, bad.room) };
    room.fill(0);
    let answer = call();
    let errno = if answer == -1 { errno() } else { 0 };
    // What a call that fails so has written is left open; behind the first bytes may be a port's number.
    let room = &room[..if errno == libc::EFAULT {
        0
    } else {
        bad.room.min(2)
    }];
    println!(
        "{what}, {}: {answer}, errno {errno}, {:?}",
        bad.what,
        std::hint::black_box(room)
    );
}

fn close(fd: i32) {
    // SAFETY: the caller's descriptor.
    unsafe { libc::close(fd) };
}

/// Two ends: what is read from the first was written into the second.
fn pairs() -> Vec<(&'static str, i32, i32)> {
    let (a, b) = UnixStream::pair().unwrap();
    let (c, d) = UnixDatagram::pair().unwrap();
    let mut pipe = [0; 2];
    // SAFETY: valid places.
    let event = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        libc::eventfd(1, 0)
    };
    let file = std::env::temp_dir().join(format!("gt-faults-{}", std::process::id()));
    let mut options = std::fs::File::options();
    options.read(true).write(true).create(true).truncate(true);
    let there = options.open(&file).unwrap().into_raw_fd();
    let back = std::fs::File::open(&file).unwrap().into_raw_fd();
    let _ = std::fs::remove_file(file);
    // SAFETY: a valid descriptor.
    let same = unsafe { libc::dup(event) };
    vec![
        ("stream", a.into_raw_fd(), b.into_raw_fd()),
        ("datagram", c.into_raw_fd(), d.into_raw_fd()),
        ("pipe", pipe[0], pipe[1]),
        ("device", event, same),
        ("file", back, there),
    ]
}

/// A fresh pair with eight bytes to read.
fn filled(which: usize) -> (&'static str, i32, i32) {
    let mut all = pairs();
    let pair = all.swap_remove(which);
    all.into_iter().for_each(|(_, a, b)| {
        close(a);
        close(b);
    });
    let word = [1_u8; 8];
    // SAFETY: a valid buffer.
    assert_eq!(unsafe { libc::write(pair.2, word.as_ptr().cast(), 8) }, 8);
    pair
}

fn vector(base: usize, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base as *mut _,
        iov_len: length,
    }
}

fn message(vectors: usize, count: usize) -> libc::msghdr {
    // SAFETY: a zeroed message is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors as *mut _, count);
    message
}

fn transfers(bad: Bad) {
    let at = bad.at;
    let mut buffer = [0_u8; 16];
    for which in 0..5 {
        // SAFETY: calls on addresses that the kernel refuses, or that are the test's own.
        let calls: [(&str, &dyn Fn(i32, i32, *mut u8) -> i64); 10] = unsafe {
            [
                ("read", &|a, _, _| libc::read(a, at as *mut _, 8) as i64),
                ("write", &|_, b, _| libc::write(b, at as *const _, 8) as i64),
                ("readv", &|a, _, _| libc::readv(a, at as *const _, 2) as i64),
                ("writev", &|_, b, _| {
                    libc::writev(b, at as *const _, 2) as i64
                }),
                ("readv to", &|a, _, good| {
                    libc::readv(a, [vector(good as usize, 4), vector(at, 4)].as_ptr(), 2) as i64
                }),
                ("writev from", &|_, b, good| {
                    libc::writev(b, [vector(good as usize, 8), vector(at, 8)].as_ptr(), 2) as i64
                }),
                ("recv", &|a, _, _| libc::recv(a, at as *mut _, 8, 0) as i64),
                ("send", &|_, b, _| {
                    libc::send(b, at as *const _, 8, 0) as i64
                }),
                ("recv all", &|a, _, _| {
                    libc::recv(a, at as *mut _, 8, libc::MSG_WAITALL) as i64
                }),
                ("splice", &|a, b, _| {
                    libc::splice(a, at as *mut _, b, null_mut(), 8, libc::SPLICE_F_NONBLOCK) as i64
                }),
            ]
        };
        for (what, call) in calls {
            let (name, a, b) = filled(which);
            ask(&format!("{what}, {name}"), bad, || {
                call(a, b, buffer.as_mut_ptr())
            });
            close(a);
            close(b);
        }
    }
    for which in 0..2 {
        for flags in [0, libc::MSG_WAITALL, libc::MSG_PEEK, libc::MSG_DONTWAIT] {
            let good = vector(buffer.as_mut_ptr() as usize, 8);
            let to_bad = vector(at, 8);
            let vectors = [&raw const good as usize, &raw const to_bad as usize, at];
            let mut own = vectors.map(|vectors| message(vectors, 1));
            let control = message(vectors[0], 1);
            let mut with_name = control;
            (with_name.msg_name, with_name.msg_namelen) = (at as *mut _, 16);
            let mut places = own.each_mut().map(std::ptr::from_mut).to_vec();
            places.extend([&raw mut with_name, at as *mut libc::msghdr]);
            for (number, place) in places.into_iter().enumerate() {
                let (name, a, b) = filled(which);
                let what = format!("message {number}, {flags:x}, {name}");
                // SAFETY: as above.
                unsafe {
                    ask(&format!("recvmsg {what}"), bad, || {
                        libc::recvmsg(a, place, flags) as i64
                    });
                    ask(&format!("sendmsg {what}"), bad, || {
                        libc::sendmsg(b, place, flags) as i64
                    });
                }
                close(a);
                close(b);
            }
            let mut length: libc::socklen_t = 16;
            let mut name_place = [0_u8; 16];
            let good_name: *mut libc::sockaddr = name_place.as_mut_ptr().cast();
            let bad_name = at as *mut libc::sockaddr;
            for (number, (name, length)) in [
                (bad_name, &raw mut length),
                (good_name, at as *mut libc::socklen_t),
            ]
            .into_iter()
            .enumerate()
            {
                let (kind, a, b) = filled(which);
                let good = buffer.as_mut_ptr();
                // SAFETY: as above.
                unsafe {
                    ask(
                        &format!("recvfrom {number}, {flags:x}, {kind}"),
                        bad,
                        || libc::recvfrom(a, good.cast(), 8, flags, name, length) as i64,
                    );
                    ask(&format!("sendto {number}, {flags:x}, {kind}"), bad, || {
                        libc::sendto(b, good.cast(), 8, flags, bad_name, 16) as i64
                    });
                }
                close(a);
                close(b);
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for flags in [None, Some(0)] {
            for place in 0..2 {
                let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let mut name = [0_u8; 128];
                let mut length: libc::socklen_t = 128;
                let (name, length) = match place {
                    0 => (at as *mut libc::sockaddr, &raw mut length),
                    _ => (name.as_mut_ptr().cast(), at as *mut libc::socklen_t),
                };
                let fd = listener.as_raw_fd();
                ask(&format!("accept {place} {flags:?}"), bad, || {
                    i64::from(match flags {
                        None => libc::accept(fd, name, length),
                        Some(flags) => libc::accept4(fd, name, length, flags),
                    })
                    .min(0)
                });
            }
        }
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let fd = libc::socket(libc::AF_INET, kind, 0);
            ask("connect", bad, || {
                i64::from(libc::connect(fd, at as *const _, 16))
            });
            close(fd);
        }
        let (_, a, b) = filled(4);
        let (_, c, d) = filled(0);
        ask("sendfile", bad, || {
            libc::sendfile(d, a, at as *mut _, 8) as i64
        });
        [a, b, c, d].into_iter().for_each(close);
    }
}

fn waits(bad: Bad) {
    let at = bad.at;
    let (_, a, b) = filled(0);
    let mut good = libc::pollfd {
        fd: a,
        events: libc::POLLIN,
        revents: 0,
    };
    let soon = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: calls on addresses that the kernel refuses, or that are the test's own.
    unsafe {
        for millis in [0, 10] {
            ask("poll", bad, || {
                i64::from(libc::poll(at as *mut _, 2, millis))
            });
        }
        ask("ppoll", bad, || {
            i64::from(libc::ppoll(at as *mut _, 2, &soon, null()))
        });
        ask("ppoll, mask", bad, || {
            i64::from(libc::ppoll(&mut good, 1, &soon, at as *const _))
        });
        for which in 0..3 {
            let sets: [*mut libc::fd_set; 3] = std::array::from_fn(|set| {
                if set == which {
                    at as *mut _
                } else {
                    null_mut()
                }
            });
            let mut time = libc::timeval {
                tv_sec: 0,
                tv_usec: 1_000,
            };
            // Of the memory that can be read, the set is empty.
            ask("select", bad, || {
                i64::from(libc::select(64, sets[0], sets[1], sets[2], &mut time))
            });
            ask("pselect", bad, || {
                i64::from(libc::pselect(64, sets[0], sets[1], sets[2], &soon, null()))
            });
        }
        let none = null_mut();
        ask("pselect, mask", bad, || {
            i64::from(libc::pselect(1, none, none, none, &soon, at as *const _))
        });
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        assert_eq!(
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, a, &mut event),
            0
        );
        for millis in [0, 10, -1] {
            ask("epoll_wait", bad, || {
                i64::from(libc::epoll_wait(epoll, at as *mut _, 1, millis))
            });
        }
        ask("epoll_pwait", bad, || {
            i64::from(libc::epoll_pwait(epoll, &mut event, 1, 10, at as *const _))
        });
        ask("epoll_pwait2", bad, || {
            libc::syscall(libc::SYS_epoll_pwait2, epoll, &mut event, 1, at, 0, 8)
        });
        unsafe extern "C" {
            fn epoll_pwait2(
                epoll: i32,
                events: *mut libc::epoll_event,
                room: i32,
                time: *const libc::timespec,
                mask: *const libc::sigset_t,
            ) -> i32;
        }
        ask("epoll_pwait2, time", bad, || {
            i64::from(epoll_pwait2(epoll, &mut event, 1, at as *const _, null()))
        });
        [a, b, epoll].into_iter().for_each(close);

        ask("nanosleep", bad, || {
            i64::from(libc::nanosleep(at as *const _, null_mut()))
        });
        for clock in [
            libc::CLOCK_MONOTONIC,
            libc::CLOCK_REALTIME,
            libc::CLOCK_BOOTTIME,
            1234,
        ] {
            for flags in [0, libc::TIMER_ABSTIME] {
                ask(&format!("clock_nanosleep {clock} {flags}"), bad, || {
                    i64::from(libc::clock_nanosleep(
                        clock,
                        flags,
                        at as *const _,
                        null_mut(),
                    ))
                });
            }
        }
        let word = 0_u32;
        for operation in [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET] {
            let operation = operation | libc::FUTEX_PRIVATE_FLAG;
            ask("futex, time", bad, || {
                libc::syscall(libc::SYS_futex, &word, operation, 0, at, 0, 1)
            });
        }
    }
}

fn others(bad: Bad) {
    let at = bad.at;
    let ended = || {
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        // SAFETY: a valid place. The child stays as it has ended.
        unsafe {
            let mut info = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, child.id(), &mut info, options), 0);
        }
        let _ = child.stdin.take();
        child.id() as i32
    };
    // SAFETY: calls on addresses that the kernel refuses, or that are the test's own.
    unsafe {
        let children: [(&str, &dyn Fn(i32) -> i32); 3] = [
            ("waitpid", &|child| libc::waitpid(child, at as *mut _, 0)),
            ("wait4", &|child| {
                libc::wait4(child, null_mut(), 0, at as *mut _)
            }),
            ("waitid", &|child| {
                libc::waitid(libc::P_PID, child as u32, at as *mut _, libc::WEXITED)
            }),
        ];
        for (what, call) in children {
            let child = ended();
            ask(what, bad, || i64::from(call(child).min(0)));
            ask(what, bad, || {
                i64::from(libc::waitpid(child, null_mut(), 0).min(0))
            });
        }
        let (_, a, b) = filled(4);
        for command in [libc::F_SETLKW, libc::F_OFD_SETLKW, libc::F_SETLK] {
            ask("fcntl", bad, || i64::from(libc::fcntl(a, command, at)));
        }
        close(a);
        close(b);
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        ask("msgsnd", bad, || {
            i64::from(libc::msgsnd(queue, at as *const _, 4, 0))
        });
        let text = [1_u64; 2];
        assert_eq!(libc::msgsnd(queue, text.as_ptr().cast(), 4, 0), 0);
        ask("msgrcv", bad, || {
            libc::msgrcv(queue, at as *mut _, 4, 0, libc::IPC_NOWAIT) as i64
        });
        libc::msgctl(queue, libc::IPC_RMID, null_mut());
        let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
        ask("semop", bad, || {
            i64::from(libc::semop(set, at as *mut _, 1))
        });
        libc::semctl(set, 0, libc::IPC_RMID);
        let mut none: libc::sigset_t = std::mem::zeroed();
        let at_once: libc::timespec = std::mem::zeroed();
        ask("sigtimedwait", bad, || {
            i64::from(libc::sigtimedwait(at as *const _, null_mut(), &at_once))
        });
        ask("sigtimedwait, time", bad, || {
            i64::from(libc::sigtimedwait(&none, null_mut(), at as *const _))
        });
        ask("sigaltstack", bad, || {
            i64::from(libc::sigaltstack(null(), at as *mut _))
        });
        libc::sigemptyset(&mut none);
        let own = libc::pthread_self();
        ask("getname", bad, || {
            i64::from(libc::pthread_getname_np(own, at as *mut _, 16))
        });
        ask("getname", bad, || {
            i64::from(libc::pthread_getname_np(own, at as *mut _, 15))
        });
        ask("PR_GET_NAME", bad, || {
            i64::from(libc::prctl(libc::PR_GET_NAME, at, 0, 0, 0))
        });
        ask("PR_GET_NAME", bad, || {
            libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, at, 0, 0, 0)
        });
        if bad.what != "read only" {
            ask("PR_SET_NAME", bad, || {
                i64::from(libc::prctl(libc::PR_SET_NAME, at, 0, 0, 0))
            });
            ask("sigaltstack", bad, || {
                i64::from(libc::sigaltstack(at as *const _, null_mut()))
            });
        }
    }
}

fn all() {
    for bad in bad_places() {
        transfers(bad);
        waits(bad);
        others(bad);
    }
}

/// Calls that libc itself reads or writes for.
const LIBCS: [(&str, fn(usize) -> i64); 4] = [
    // SAFETY: calls on an address that ends the process.
    ("select, time", |at| unsafe {
        i64::from(libc::select(
            0,
            null_mut(),
            null_mut(),
            null_mut(),
            at as *mut _,
        ))
    }),
    // SAFETY: as above.
    ("pselect, time", |at| unsafe {
        i64::from(libc::pselect(
            0,
            null_mut(),
            null_mut(),
            null_mut(),
            at as *const _,
            null(),
        ))
    }),
    // SAFETY: as above.
    ("ppoll, time", |at| unsafe {
        i64::from(libc::ppoll(null_mut(), 0, at as *const _, null()))
    }),
    // SAFETY: as above.
    ("setname", |at| unsafe {
        i64::from(libc::pthread_setname_np(
            libc::pthread_self(),
            at as *const _,
        ))
    }),
];

/// In a child: `kernel` or `green`, and what else its name says.
fn play(case: &str, body: fn()) {
    if case.contains("handler") {
        extern "C" fn handler(_: i32) {
            // SAFETY: ends the process.
            unsafe { libc::_exit(7) }
        }
        thread::spawn(|| ()).join().unwrap();
        let handler = handler as extern "C" fn(i32) as libc::sighandler_t;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: a handler of the right type.
            assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
        }
    }
    match case.starts_with("kernel") {
        true => std::thread::Builder::new()
            .name("name".into())
            .spawn(body)
            .unwrap()
            .join(),
        false => thread::Builder::new()
            .name("name".into())
            .spawn(body)
            .unwrap()
            .join(),
    }
    .unwrap();
}

#[test]
fn bad_addresses_are_errors() {
    const NAME: &str = "faults::bad_addresses_are_errors";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        return play(&case, all);
    }
    for with in ["", ", handler"] {
        let [kernels, greens] = ["kernel", "green"].map(|who| {
            let out = child(NAME, &format!("{who}{with}"));
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let lines: Vec<_> = text
                .lines()
                .filter(|line| line.contains("errno"))
                .map(String::from)
                .collect();
            (out, lines)
        });
        assert_code(&kernels.0, 0);
        println!("{} calls{with}", kernels.1.len());
        for (kernels, greens) in kernels.1.iter().zip(&greens.1) {
            assert_eq!(kernels, greens, "{with}");
        }
        let next = kernels.1.get(greens.1.len());
        assert_eq!(
            next,
            None,
            "the call that ends a green thread{with}: {}",
            said(&greens.0)
        );
        assert_code(&greens.0, 0);
    }
}

#[test]
fn what_ends_a_kernel_thread_ends_a_green_one() {
    const NAME: &str = "faults::what_ends_a_kernel_thread_ends_a_green_one";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        static CALL: std::sync::OnceLock<fn(usize) -> i64> = std::sync::OnceLock::new();
        let call = LIBCS.iter().find(|(what, _)| case.ends_with(what)).unwrap();
        CALL.set(call.1).unwrap();
        return play(&case, || {
            println!("{} {}", CALL.get().unwrap()(16), errno());
        });
    }
    for (what, _) in LIBCS {
        let [kernels, greens] =
            ["kernel", "green"].map(|who| child(NAME, &format!("{who} {what}")));
        let how = |out: &std::process::Output| (out.status.code(), out.status.signal());
        assert_eq!(how(&kernels), how(&greens), "{what}: {}", said(&greens));
    }
}
