//! Sockets of code that knows nothing of green threads: libc's calls answer on green threads what they answer
//! on kernel threads.
//!
//! Each scene is played on a kernel thread, on green threads, and on a green thread whose calls are
//! libc's (`support/alike`).

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use crate::alike::{alike, errno};
use crate::common::{not_early, watchdog};
use crate::sockets::*;
use greenthread::runtime::Runtime;
use libc::c_void;

#[test]
fn receiving() {
    let _w = watchdog("net::receiving");
    alike(|s| {
        for kind in Kind::ALL {
            for way in Receive::ALL {
                let (a, b) = kind.pair();
                s.note((kind, way));
                // There.
                put(b, b"there");
                let mut buffer = [0; 16];
                s.call("there", || way.call(a, &mut buffer));
                s.note(buffer);
                // Later.
                s.waits(
                    || put(b, b"later"),
                    |s| {
                        let mut buffer = [0; 16];
                        s.call("later", || way.call(a, &mut buffer));
                        s.note(buffer);
                    },
                );
                // A part, and the end.
                put(b, b"longer than the buffer");
                let mut buffer = [0; 4];
                s.call("a part", || way.call(a, &mut buffer));
                s.note(buffer);
                if kind.is_stream() {
                    s.call("nothing", || way.call(a, &mut []));
                }
                set_nonblocking(a, true);
                while way.call(a, &mut [0; 64]) > 0 {}
                s.note(errno());
                set_nonblocking(a, false);
                if kind.has_end() {
                    s.waits(
                        || close(b),
                        |s| {
                            s.call("end", || way.call(a, &mut [0; 4]));
                        },
                    );
                    s.call("end again", || way.call(a, &mut [0; 4]));
                } else {
                    close(b);
                }
                close(a);
            }
        }
    });
}

#[test]
fn flags_of_receiving() {
    let _w = watchdog("net::flags_of_receiving");
    alike(|s| {
        for kind in Kind::ALL {
            s.note(kind);
            let (a, b) = kind.pair();
            let mut buffer = [0; 8];
            s.call("dontwait", || recv(a, &mut buffer, libc::MSG_DONTWAIT));
            if matches!(kind, Kind::Tcp | Kind::Udp) {
                s.call("error queue", || recv(a, &mut buffer, libc::MSG_ERRQUEUE));
            }
            if kind == Kind::Tcp {
                s.call("out of band", || recv(a, &mut buffer, libc::MSG_OOB));
            }
            s.waits(
                || put(b, b"peeked at"),
                |s| {
                    s.call("peek", || recv(a, &mut buffer, libc::MSG_PEEK));
                },
            );
            s.call("peek again", || recv(a, &mut buffer, libc::MSG_PEEK));
            s.call("trunc", || recv(a, &mut buffer, libc::MSG_TRUNC));
            s.note(buffer);
            set_nonblocking(a, true);
            while recv(a, &mut buffer, 0) > 0 {}
            set_nonblocking(a, false);
            // A datagram ends a call that asks for all.
            let parts: &[&[u8]] = &[b"first", b"second", b"third"];
            s.waits(
                move || parts.iter().for_each(|part| put(b, part)),
                |s| {
                    let mut all = [0; 11];
                    s.call("all", || recv(a, &mut all, libc::MSG_WAITALL));
                    s.note(all);
                },
            );
            close(a);
            close(b);
        }
    });
}

#[test]
fn all_is_broken_off_by_the_end() {
    let _w = watchdog("net::all_is_broken_off_by_the_end");
    alike(|s| {
        for kind in [Kind::Tcp, Kind::Stream] {
            for way in 0..3 {
                let (a, b) = kind.pair();
                put(b, b"begin");
                s.waits(
                    move || {
                        put(b, b"middle");
                        match way {
                            0 => close(b),
                            1 => reset(b),
                            _ => shut(b, libc::SHUT_WR),
                        }
                    },
                    |s| {
                        let mut all = [0; 64];
                        s.call("all", || recv(a, &mut all, libc::MSG_WAITALL));
                        s.note(&all[..]);
                    },
                );
                s.call("then", || recv(a, &mut [0; 64], 0));
                s.call("then", || recv(a, &mut [0; 64], 0));
                close(a);
                if way == 2 {
                    close(b);
                }
            }
        }
    });
}

#[test]
fn time_outs() {
    let _w = watchdog("net::time_outs");
    alike(|s| {
        for kind in Kind::ALL {
            s.note(kind);
            let (a, b) = kind.pair();
            let limit = Duration::from_millis(30);
            time_out(a, libc::SO_RCVTIMEO, limit);
            let begin = Instant::now();
            s.call("receive", || recv(a, &mut [0; 4], 0));
            not_early(begin, limit);
            if kind.is_stream() {
                put(b, b"part");
                let mut all = [0; 16];
                s.call("a part", || recv(a, &mut all, libc::MSG_WAITALL));
                s.note(all);
                time_out(a, libc::SO_SNDTIMEO, limit);
                let much = vec![7; 16 << 20];
                let begin = Instant::now();
                let sent = send(a, &much, 0);
                assert!(0 < sent && sent < much.len() as isize, "{sent}");
                not_early(begin, limit);
            }
            // As long as the kernel can count.
            time_out(a, libc::SO_RCVTIMEO, Duration::from_secs(1 << 53));
            s.waits(
                || put(b, b"x"),
                |s| {
                    s.call("a long one", || recv(a, &mut [0; 4], 0));
                },
            );
            close(a);
            close(b);
        }
        let listener = listener().0;
        time_out(listener, libc::SO_RCVTIMEO, Duration::from_millis(20));
        s.int("accept", || accept(listener));
        close(listener);
    });
}

#[test]
fn sending_much_to_a_slow_reader() {
    let _w = watchdog("net::sending_much_to_a_slow_reader");
    alike(|s| {
        const MUCH: usize = 251 << 16;
        for kind in [Kind::Tcp, Kind::Stream] {
            for way in Send::ALL {
                let (a, b) = kind.pair();
                let bytes = (0..251u8).collect::<Vec<_>>().repeat(MUCH / 251);
                let got = s.waits(
                    move || read_all(b),
                    |s| {
                        let is_green = s.is_green;
                        // A preemption can cut a call short that is not hooked, as any signal can.
                        s.call("much", || {
                            let mut sent = 0;
                            while sent < MUCH {
                                match way.call(a, &bytes[sent..]) {
                                    -1 => return -1,
                                    more => sent += more as usize,
                                }
                                assert!(sent == MUCH || !is_green, "a part: {sent}");
                            }
                            sent as isize
                        });
                        close(a);
                    },
                );
                assert!(got == bytes, "{kind:?} {way:?}");
                close(b);
            }
        }
    });
}

#[test]
fn broken_in_the_middle() {
    let _w = watchdog("net::broken_in_the_middle");
    alike(|s| {
        for kind in [Kind::Tcp, Kind::Stream] {
            for way in 0..2 {
                let (a, b) = kind.pair();
                let much = vec![1; 32 << 20];
                s.waits(
                    move || match way {
                        0 => reset(b),
                        _ => shut(a, libc::SHUT_WR),
                    },
                    |s| {
                        let sent = send(a, &much, libc::MSG_NOSIGNAL);
                        s.note((kind, way, 0 < sent && sent < much.len() as isize));
                    },
                );
                for _ in 0..2 {
                    s.call("then", || send(a, b"x", libc::MSG_NOSIGNAL));
                }
                close(a);
                if way == 1 {
                    close(b);
                }
            }
        }
    });
}

/// The end of a process that SIGPIPE kills, and of others.
#[test]
fn broken_pipes() {
    const NAME: &str = "net::broken_pipes";
    let _w = watchdog(NAME);
    if let Some(case) = common::child_case(NAME) {
        let body = move || {
            let (a, b) = Kind::Stream.pair();
            close(b);
            if case.contains("ignored") {
                // SAFETY: a plain call.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            } else {
                // SAFETY: a plain call: std ignores the signal.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            }
            let flags = match case.contains("flag") {
                true => libc::MSG_NOSIGNAL,
                false => 0,
            };
            assert_eq!((send(a, b"x", flags), errno()), (-1, libc::EPIPE));
            std::process::exit(3);
        };
        return greenthread::spawn(body).join().expect("the thread");
    }
    common::assert_code(&common::child(NAME, "ignored"), 3);
    common::assert_code(&common::child(NAME, "flag"), 3);
    common::assert_signal(&common::child(NAME, "default"), libc::SIGPIPE);
}

#[test]
fn mistakes() {
    let _w = watchdog("net::mistakes");
    alike(|s| {
        let bad = 8 as *mut c_void;
        let (file, null) = (open(c"/dev/null"), std::ptr::null_mut::<c_void>());
        let (lonely, listener) = (socket(libc::AF_INET, libc::SOCK_STREAM), listener().0);
        let (a, b) = Kind::Tcp.pair();
        for fd in [-1, 9999, file, lonely, listener, a] {
            let mut buffer = [0_u8; 4];
            let place = buffer.as_mut_ptr().cast::<c_void>();
            s.note(fd == a);
            if fd != a {
                // SAFETY: the places are valid, or the kernel refuses them.
                unsafe {
                    s.call("recv", || libc::recv(fd, place, 4, 0));
                    s.call("all", || libc::recv(fd, place, 4, libc::MSG_WAITALL));
                    s.call("send", || libc::send(fd, place, 4, libc::MSG_NOSIGNAL));
                    if fd != listener {
                        s.int("accept", || accept(fd));
                    }
                }
            }
            // SAFETY: bad places, which the kernel refuses.
            unsafe {
                let no_wait = fd != listener && fd != lonely;
                s.call("send bad", || libc::send(fd, bad, 4, libc::MSG_NOSIGNAL));
                s.call("send null", || libc::send(fd, null, 4, libc::MSG_NOSIGNAL));
                s.call("sendmsg bad", || libc::sendmsg(fd, bad.cast(), 0));
                s.call("sendmsg null", || libc::sendmsg(fd, null.cast(), 0));
                s.call("recvmsg null", || {
                    libc::recvmsg(fd, null.cast(), libc::MSG_DONTWAIT)
                });
                s.call("recvmsg all", || {
                    libc::recvmsg(fd, bad.cast(), libc::MSG_WAITALL)
                });
                for count in [-1, 1, 2000, i32::MAX] {
                    s.call("writev", || libc::writev(fd, bad.cast(), count));
                    if no_wait {
                        s.call("readv", || libc::readv(fd, bad.cast(), count));
                    }
                }
                s.call("writev none", || libc::writev(fd, bad.cast(), 0));
                let huge = [iovec(place, usize::MAX), iovec(place, usize::MAX)];
                s.call("writev huge", || libc::writev(fd, huge.as_ptr(), 2));
                let mut message: libc::msghdr = std::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (huge.as_ptr().cast_mut(), 2);
                s.call("sendmsg huge", || {
                    libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
                });
                (message.msg_iov, message.msg_iovlen) = (bad.cast(), 1);
                s.call("sendmsg", || {
                    libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
                });
                s.call("all", || libc::recvmsg(fd, &mut message, libc::MSG_WAITALL));
                s.call("write none", || libc::write(fd, bad, 0));
                s.call("write all", || libc::write(fd, bad, usize::MAX));
                s.int("connect bad", || libc::connect(fd, bad.cast(), 16));
                s.int("connect null", || libc::connect(fd, null.cast(), 16));
                s.int("connect short", || libc::connect(fd, bad.cast(), 1));
                let none = std::ptr::null_mut();
                s.int("accept4", || libc::accept4(fd, none, null.cast(), 0x7fff));
            }
        }
        // Data is there, and no place for it.
        put(b, b"data");
        // SAFETY: bad places, which the kernel refuses.
        unsafe {
            s.call("recv bad", || libc::recv(a, bad, 4, 0));
            s.call("read bad", || libc::read(a, bad, 4));
            s.call("recv bad", || libc::recv(a, bad, 4, libc::MSG_WAITALL));
        }
        [file, lonely, listener, a, b].into_iter().for_each(close);
    });
}

#[test]
fn shut_while_a_thread_waits() {
    let _w = watchdog("net::shut_while_a_thread_waits");
    alike(|s| {
        for kind in [Kind::Tcp, Kind::Stream] {
            let (a, b) = kind.pair();
            s.waits(
                || shut(a, libc::SHUT_RD),
                |s| {
                    s.call("recv", || recv(a, &mut [0; 4], 0));
                },
            );
            close(a);
            close(b);
        }
        let listener = listener().0;
        s.waits(
            || shut(listener, libc::SHUT_RDWR),
            |s| {
                s.int("accept", || accept(listener));
            },
        );
        close(listener);
    });
}

/// The end that a thread sees that waits while another one shuts and closes its descriptor, and opens
/// another file under the number at once.
#[test]
fn closed_while_a_thread_waits() {
    let _w = watchdog("net::closed_while_a_thread_waits");
    if !common::hooked() {
        return; // a kernel thread cannot be seen to wait
    }
    for kind in [Kind::Tcp, Kind::Stream, Kind::Seqpacket] {
        for way in 0..4 {
            let runtime = Runtime::builder().processors(1).build().unwrap();
            let (a, b) = kind.pair();
            let (other, theirs) = Kind::Stream.pair();
            put(theirs, b"not yours");
            let before = runtime.metrics().parked_calls;
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    runtime.spawn(move || {
                        let mut buffer = [0; 8];
                        let got = recv(a, &mut buffer, 0);
                        (got, errno(), buffer)
                    })
                })
                .collect();
            common::wait_until(|| runtime.metrics().parked_calls >= before + 10);
            // A thread that computes: threads that are woken do not run yet.
            let changed = std::sync::Arc::new(AtomicUsize::new(0));
            let hears = changed.clone();
            let closer = runtime.spawn(move || {
                match way {
                    0 => shut(a, libc::SHUT_RDWR),
                    1 => (0..10).for_each(|_| put(b, b"is yours")),
                    _ => {}
                }
                // The events are collected meanwhile, if somebody collects.
                let begin = Instant::now();
                while way < 2 && begin.elapsed() < Duration::from_millis(5) {
                    greenthread::yield_now();
                }
                match way {
                    3 => close(a),
                    // SAFETY: plain calls.
                    _ => assert_eq!(unsafe { libc::dup2(other, a) }, a),
                }
                hears.store(1, SeqCst);
            });
            closer.join().unwrap();
            assert_eq!(changed.load(SeqCst), 1);
            if way >= 2 {
                (0..10).for_each(|_| put(b, b"is yours"));
            }
            for reader in readers {
                let (got, errno, buffer) = reader.join().unwrap();
                match way {
                    0 => assert_eq!(got, 0, "{kind:?}, errno {errno}, {buffer:?}"),
                    _ => assert_eq!(
                        (got, &buffer),
                        (8, b"is yours"),
                        "{kind:?} {way}, errno {errno}"
                    ),
                }
            }
            // The duplicate is gone: the other end sees the end.
            if way != 0 {
                assert_eq!(recv(b, &mut [0; 4], 0), 0, "{kind:?} {way}");
            }
            [b, other, theirs].into_iter().for_each(close);
            if way != 3 {
                close(a);
            }
        }
    }
}

#[test]
fn many_accept() {
    let _w = watchdog("net::many_accept");
    const MANY: usize = 100;
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors);
        let runtime = runtime
            .time_slice(Duration::from_micros(100))
            .build()
            .unwrap();
        let (listener, address) = listener();
        let accepted: Vec<_> = (0..MANY)
            .map(|_| {
                runtime.spawn(move || {
                    let fd = accept(listener);
                    assert!(fd >= 0, "{}", errno());
                    let mut byte = [0];
                    assert_eq!(recv(fd, &mut byte, 0), 1);
                    close(fd);
                    byte[0] as usize
                })
            })
            .collect();
        for i in 0..MANY {
            let fd = connect(address);
            put(fd, &[i as u8]);
            close(fd);
        }
        let mut got: Vec<_> = accepted.into_iter().map(|t| t.join().unwrap()).collect();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..MANY));
        close(listener);
    }
}
