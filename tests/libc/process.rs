//! Children, and locks on files, of code that knows nothing of green threads: libc's calls answer on green
//! threads what they answer on kernel threads.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#![allow(clippy::zombie_processes)] // libc's calls wait

use crate::common;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use crate::alike::{Scene, alike, alike_hooked, errno};
use crate::common::watchdog;
use crate::sockets::*;
use greenthread::runtime::Runtime;
use libc::{c_int, pid_t};

/// A child that ends when its input does: with code 3.
fn child() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "read x; exit 3"]).stdin(Stdio::piped());
    command.spawn().expect("a shell")
}

fn waitpid(child: pid_t, options: c_int) -> (pid_t, c_int) {
    let mut status = 0x5555;
    // SAFETY: a valid place.
    (
        unsafe { libc::waitpid(child, &mut status, options) },
        status,
    )
}

fn waitid(s: &mut Scene, what: &str, kind: libc::idtype_t, id: u32, options: c_int, own: u32) {
    // SAFETY: a zeroed record is valid; the call fills in the fields that are read.
    let (answer, seen) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let answer = s.int(what, || libc::waitid(kind, id, &mut info, options));
        (
            answer,
            (info.si_pid() == own as i32, info.si_status(), info.si_code),
        )
    };
    s.note((answer, seen));
}

#[test]
fn children() {
    const NAME: &str = "process::children";
    let _w = watchdog(NAME);
    // In a process of its own, as `processes_beside_readers`.
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    alike(|s| {
        // Its end is waited for.
        for which in 0..4 {
            let mut it = child();
            let id = it.id() as pid_t;
            s.note(waitpid(id, libc::WNOHANG));
            let input = it.stdin.take();
            s.waits(
                || drop(input),
                |s| match which {
                    0 => {
                        let (got, status) = waitpid(id, 0);
                        s.note((got == id, status));
                    }
                    1 => {
                        let mut status = 0;
                        // SAFETY: valid places.
                        let got = unsafe {
                            let mut usage: libc::rusage = std::mem::zeroed();
                            libc::wait4(id, &mut status, 0, &mut usage)
                        };
                        s.note((got == id, status));
                    }
                    2 => {
                        let keep = libc::WEXITED | libc::WNOWAIT;
                        waitid(s, "keep", libc::P_PID, id as u32, keep, id as u32);
                        waitid(s, "take", libc::P_PID, id as u32, libc::WEXITED, id as u32);
                    }
                    _ => {
                        // SAFETY: a plain call.
                        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) } as u32;
                        waitid(s, "pidfd", libc::P_PIDFD, fd, libc::WEXITED, id as u32);
                        close(fd as i32);
                    }
                },
            );
            s.int("again", || waitpid(id, 0).0);
        }
        // The descriptor is closed, and its number another file's, while it is waited for.
        let mut it = child();
        let id = it.id();
        // SAFETY: a plain call.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) } as c_int;
        let end = || {
            close(fd);
            let other = std::fs::File::open("/").unwrap();
            drop(it.stdin.take());
            other
        };
        s.waits(end, |s| {
            waitid(s, "closed", libc::P_PIDFD, fd as u32, libc::WEXITED, id)
        });
        // Killed while it is waited for.
        let mut it = child();
        let id = it.id() as pid_t;
        s.waits(|| it.kill().unwrap(), |s| s.note(waitpid(id, 0).1));
        // Mistakes.
        s.int("no child", || waitpid(1, 0).0);
        s.int("wrong options", || waitpid(1, 0x1000).0);
        waitid(s, "no end", libc::P_PID, 1, 0, 1);
        waitid(s, "no pidfd", libc::P_PIDFD, 9999, libc::WEXITED, 1);
    });
}

/// A pidfd in non-blocking mode does not let a thread wait.
#[test]
fn a_pidfd_that_does_not_block() {
    let _w = watchdog("process::a_pidfd_that_does_not_block");
    alike(|s| {
        let mut it = child();
        let nonblocking = libc::O_NONBLOCK;
        // SAFETY: a plain call.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, it.id(), nonblocking) } as c_int;
        if fd >= 0 {
            // SAFETY: a zeroed record is valid.
            s.int("waitid", || unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_PIDFD, fd as u32, &mut info, libc::WEXITED)
            });
            close(fd);
        }
        drop(it.stdin.take());
        s.note(it.wait().unwrap().code());
    });
}

/// Any child: in a process of its own, which has no others.
#[test]
fn any_child() {
    const NAME: &str = "process::any_child";
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_some() {
        return alike(|s| {
            s.int("none", || waitpid(-1, 0).0);
            let mut it = child();
            let id = it.id() as pid_t;
            let input = it.stdin.take();
            s.waits(
                || drop(input),
                |s| {
                    let (got, status) = waitpid(-1, 0);
                    s.note((got == id, status));
                },
            );
        });
    }
    common::assert_code(&common::child(NAME, "alone"), 0);
}

#[test]
fn many_children_are_waited_for() {
    const NAME: &str = "process::many_children_are_waited_for";
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, ""), 0);
    }
    const MANY: usize = 100;
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let before = runtime.metrics().parked_calls;
    let mut children: Vec<_> = (0..MANY).map(|_| child()).collect();
    let waits: Vec<_> = children
        .iter()
        .zip([0, libc::WUNTRACED, libc::__WALL].into_iter().cycle())
        .map(|(child, how)| {
            let id = child.id() as pid_t;
            runtime.spawn(move || (waitpid(id, how).0 == id, waitpid(id, 0).0, errno()))
        })
        .collect();
    if common::hooked() && common::ring_waits_for_children() {
        common::wait_until(|| runtime.metrics().parked_calls >= before + MANY as u64);
        common::hold_no_kernel_thread(&runtime);
    }
    children
        .iter_mut()
        .for_each(|child| drop(child.stdin.take()));
    for wait in waits {
        assert_eq!(wait.join().unwrap(), (true, -1, libc::ECHILD));
    }
}

/// Two processes and one lock: the child is `sleep`-like and holds the lock as long as it lives.
#[test]
fn locks() {
    let _w = watchdog("process::locks");
    alike(|s| {
        let path = std::env::temp_dir().join(format!("gt-lock-{}", std::process::id()));
        let open = || {
            let mut options = std::fs::File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let (ours, theirs) = (open(), open());
        let lock = |fd, how| {
            // SAFETY: a plain call.
            unsafe { libc::flock(fd, how) }
        };
        let (a, b) = (ours.as_raw_fd(), theirs.as_raw_fd());
        s.int("theirs", || lock(b, libc::LOCK_EX));
        s.int("at once", || lock(a, libc::LOCK_EX | libc::LOCK_NB));
        s.waits(
            || assert_eq!(lock(b, libc::LOCK_UN), 0),
            |s| {
                s.int("later", || lock(a, libc::LOCK_EX));
            },
        );
        s.int("back", || lock(a, libc::LOCK_UN));
        s.int("wrong", || lock(a, 77));
        s.int("not open", || lock(-1, libc::LOCK_EX));
        let record = |fd, command, kind: c_int| {
            // SAFETY: a zeroed record is valid.
            unsafe {
                let mut record: libc::flock = std::mem::zeroed();
                record.l_type = kind as i16;
                libc::fcntl(fd, command, &mut record)
            }
        };
        s.int("of the file", || {
            record(b, libc::F_OFD_SETLK, libc::F_WRLCK)
        });
        s.int("at once", || record(a, libc::F_OFD_SETLK, libc::F_WRLCK));
        s.waits(
            || assert_eq!(record(b, libc::F_OFD_SETLK, libc::F_UNLCK), 0),
            |s| {
                s.int("later", || record(a, libc::F_OFD_SETLKW, libc::F_WRLCK));
            },
        );
        s.int("back", || record(a, libc::F_OFD_SETLK, libc::F_UNLCK));
        s.int("of the process", || {
            record(a, libc::F_SETLKW, libc::F_WRLCK)
        });
        s.int("wrong", || record(a, libc::F_SETLKW, 99));
        // SAFETY: plain calls.
        unsafe {
            s.int("flags", || libc::fcntl(a, libc::F_GETFD));
            s.int("flags", || libc::fcntl(-1, libc::F_GETFD));
            s.int("sync", || libc::fsync(a));
            s.int("data", || libc::fdatasync(a));
            s.int("not open", || libc::fsync(-1));
            let pair = Kind::Stream.pair();
            s.int("no file", || libc::fsync(pair.0));
            close(pair.0);
            close(pair.1);
        }
        let _ = std::fs::remove_file(path);
    });
}

/// Threads that read and write, while others start processes.
#[test]
fn processes_beside_readers() {
    const NAME: &str = "process::processes_beside_readers";
    let _w = watchdog(NAME);
    // In a process of its own: SIGCHLD is not ignored while the parent's kernel thread blocks it, as `posix_spawn` does. The
    // kernel then wakes another thread of the process, and a call with a limit fails with EINTR there: another test's.
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    let slice = Duration::from_micros(100);
    let runtime = Runtime::builder().processors(2).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let pairs: Vec<_> = (0..20).map(|_| Kind::Stream.pair()).collect();
    let players: Vec<_> = pairs
        .iter()
        .flat_map(|&(a, b)| [(a, true), (b, false)])
        .map(|(fd, serves)| {
            let over = over.clone();
            runtime.spawn(move || {
                let mut balls = 0_u64;
                loop {
                    if serves {
                        put(fd, &balls.to_ne_bytes());
                    }
                    let mut ball = [0; 8];
                    match recv(fd, &mut ball, libc::MSG_WAITALL) {
                        0 => return balls,
                        got => assert_eq!(got, 8, "{}", errno()),
                    }
                    if serves {
                        assert_eq!(ball, balls.to_ne_bytes());
                    } else {
                        put(fd, &ball);
                    }
                    balls += 1;
                    if serves && over.load(Relaxed) {
                        shut(fd, libc::SHUT_WR);
                        return balls;
                    }
                }
            })
        })
        .collect();
    let starters: Vec<_> = (0..4)
        .map(|_| {
            runtime.spawn(|| {
                for _ in 0..10 {
                    let output = Command::new("echo").arg("hello").output().unwrap();
                    assert_eq!(output.stdout, b"hello\n");
                }
            })
        })
        .collect();
    starters
        .into_iter()
        .for_each(|starter| starter.join().unwrap());
    over.store(true, Relaxed);
    let balls: Vec<_> = players
        .into_iter()
        .map(|player| player.join().unwrap())
        .collect();
    assert!(
        balls
            .chunks(2)
            .all(|pair| pair[0] == pair[1] && pair[0] != 0),
        "{balls:?}"
    );
    for (a, b) in pairs {
        close(a);
        close(b);
    }
}

/// A handler that writes and reads, in threads that are parked and woken.
#[test]
fn handlers_use_descriptors() {
    const NAME: &str = "process::handlers_use_descriptors";
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    static PIPE: [std::sync::atomic::AtomicI32; 2] =
        [const { std::sync::atomic::AtomicI32::new(-1) }; 2];
    extern "C" fn handler(_: c_int) {
        let before = errno();
        let [r, w] = [&PIPE[0], &PIPE[1]].map(|fd| fd.load(SeqCst));
        let byte = [1_u8];
        // SAFETY: async-signal-safe calls, and valid buffers.
        unsafe {
            libc::write(w, byte.as_ptr().cast(), 1);
            let mut record = libc::pollfd {
                fd: r,
                events: libc::POLLIN,
                revents: 0,
            };
            libc::poll(&mut record, 1, 5);
            libc::close(libc::dup(r));
            *libc::__errno_location() = before;
        }
    }
    let mut ends = [0; 2];
    // SAFETY: a valid place, and a handler of this type.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        PIPE[0].store(ends[0], SeqCst);
        PIPE[1].store(ends[1], SeqCst);
        let handler = handler as extern "C" fn(c_int) as libc::sighandler_t;
        libc::signal(libc::SIGUSR1, handler);
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let pairs: Vec<_> = (0..10).map(|_| Kind::Stream.pair()).collect();
    let readers: Vec<_> = pairs
        .iter()
        .map(|&(a, _)| {
            runtime.spawn(move || {
                let (mut all, mut buffer) = (0, [0; 64]);
                loop {
                    match recv(a, &mut buffer, 0) {
                        0 => return all,
                        // The kernel's call may be interrupted: the handler is one of the program's.
                        -1 => assert_eq!(errno(), libc::EINTR),
                        got => all += got,
                    }
                }
            })
        })
        .collect();
    const ROUNDS: usize = 300;
    for round in 0..ROUNDS {
        // SAFETY: a plain call.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        put(pairs[round % 10].1, b"hello");
    }
    for &(_, b) in &pairs {
        close(b);
    }
    let all: isize = readers
        .into_iter()
        .map(|reader| reader.join().unwrap())
        .sum();
    assert_eq!(all, 5 * ROUNDS as isize);
}

/// The tests above over one arena of malloc's, which all threads share.
#[test]
fn with_one_arena() {
    let _w = watchdog("process::with_one_arena");
    for test in [
        "process::processes_beside_readers",
        "process::many_children_are_waited_for",
        "process::children",
    ] {
        let output = common::child_with(test, "", &[("MALLOC_ARENA_MAX", "1")]);
        common::assert_code(&output, 0);
    }
}

/// No descriptor is left, not even for the runtime: calls block their kernel threads.
#[test]
fn without_descriptors() {
    const NAME: &str = "process::without_descriptors";
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let (a, b) = Kind::Stream.pair();
    // SAFETY: plain calls.
    while unsafe { libc::dup(a) } >= 0 {}
    let readers: Vec<_> = (0..4)
        .map(|i| {
            runtime.spawn(move || match i % 2 {
                0 => recv(a, &mut [0], 0),
                _ => {
                    let mut asked = libc::pollfd {
                        fd: a,
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    // SAFETY: a valid record.
                    unsafe { libc::poll(&mut asked, 1, -1) as isize }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20)); // most block by then
    assert_eq!(write(b, b"four"), 4);
    assert!(
        readers
            .into_iter()
            .all(|reader| reader.join().unwrap() == 1)
    );
}

/// A thread that cannot be parked, for it has a signal mask of its own, sends all.
#[test]
fn a_mask_of_its_own() {
    const NAME: &str = "process::a_mask_of_its_own";
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    if common::green() && !common::hooked() {
        return; // the signal that preempts a thread may cut a send short in the kernel
    }
    extern "C" fn handler(_: c_int) {}
    let handler = handler as extern "C" fn(c_int) as libc::sighandler_t;
    // SAFETY: a handler of this type.
    unsafe { libc::signal(libc::SIGUSR1, handler) };
    alike_hooked(|s| {
        // SAFETY: a valid set.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        let (a, b) = Kind::Stream.pair();
        let bytes = vec![1; 8 << 20];
        s.waits(
            move || read_all(b),
            |s| {
                s.call("send", || send(a, &bytes, 0));
                close(a);
            },
        );
        close(b);
    });
}
