//! `poll`, `select`, and `epoll` of code that knows nothing of green threads: libc's calls answer on green
//! threads what they answer on kernel threads.

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
use crate::common::watchdog;
use crate::sockets::*;
use greenthread::runtime::Runtime;
use libc::{c_int, epoll_event, fd_set, pollfd, timespec, timeval};

fn asked(fd: c_int, events: i16) -> pollfd {
    pollfd {
        fd,
        events,
        revents: 0x55,
    }
}

fn poll(records: &mut [pollfd], millis: c_int) -> c_int {
    // SAFETY: valid records.
    unsafe { libc::poll(records.as_mut_ptr(), records.len() as u64, millis) }
}

fn seen(records: &[pollfd]) -> Vec<i16> {
    records.iter().map(|record| record.revents).collect()
}

fn timespec(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// The signal mask of the thread, and one that differs.
fn masks() -> [libc::sigset_t; 2] {
    // SAFETY: valid places.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let mut other = mask;
        libc::sigaddset(&mut other, libc::SIGUSR2);
        [mask, other]
    }
}

#[test]
fn polling() {
    let _w = watchdog("poll::polling");
    alike(|s| {
        let ((a, b), (c, d)) = (Kind::Stream.pair(), Kind::Tcp.pair());
        let file = open(c"/dev/null");
        // At once.
        let mut all = [
            asked(-1, libc::POLLIN),
            asked(9999, libc::POLLIN),
            asked(file, libc::POLLIN | libc::POLLOUT),
            asked(a, libc::POLLIN | libc::POLLOUT),
            asked(c, 0),
        ];
        for millis in [0, 50, -1] {
            s.int("at once", || poll(&mut all, millis));
            s.note(seen(&all));
        }
        // Time-outs, with descriptors and without.
        for millis in [1, 20] {
            let begin = Instant::now();
            s.int("none", || poll(&mut [], millis));
            let mut two = [asked(a, libc::POLLIN), asked(-5, libc::POLLIN)];
            s.int("time-out", || poll(&mut two, millis));
            s.note(seen(&two));
            assert!(begin.elapsed() >= Duration::from_millis(2 * millis as u64));
        }
        // Later, by poll and by ppoll with the thread's mask and another.
        for which in 0..4 {
            let mut both = [
                asked(a, libc::POLLIN),
                asked(c, libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP),
            ];
            let masks = masks();
            s.waits(
                || match which {
                    0 => put(b, b"x"),
                    1 => assert_eq!(send(d, b"!", libc::MSG_OOB), 1),
                    2 => shut(d, libc::SHUT_WR),
                    _ => shut(b, libc::SHUT_RDWR),
                },
                |s| {
                    // SAFETY: valid records and masks.
                    s.int("later", || unsafe {
                        let (at, none) = (both.as_mut_ptr(), std::ptr::null());
                        match which {
                            0 => libc::poll(at, 2, -1),
                            1 => libc::ppoll(at, 2, none, none.cast()),
                            2 => libc::ppoll(at, 2, &timespec(Duration::from_secs(20)), &masks[0]),
                            _ => libc::poll(at, 1, 20_000),
                        }
                    });
                },
            );
            s.note(seen(&both));
            set_nonblocking(a, true);
            recv(a, &mut [0; 4], 0);
            recv(c, &mut [0; 1], libc::MSG_OOB);
            set_nonblocking(a, false);
        }
        let other = masks()[1];
        let mut one = [asked(d, libc::POLLIN)];
        let short = timespec(Duration::from_millis(5));
        // SAFETY: valid records and masks; bad ones, which the kernel refuses.
        unsafe {
            let bad = 8 as *mut libc::c_void;
            s.int("mask", || libc::ppoll(one.as_mut_ptr(), 1, &short, &other));
            s.int("bad mask", || {
                libc::ppoll(one.as_mut_ptr(), 1, &short, bad.cast())
            });
            s.int("bad records", || libc::poll(bad.cast(), 1, 10));
            s.int("too many", || libc::poll(bad.cast(), u64::MAX, 10));
            let wrong = timespec {
                tv_sec: 1,
                tv_nsec: -1,
            };
            let none = std::ptr::null();
            s.int("wrong time", || {
                libc::ppoll(one.as_mut_ptr(), 1, &wrong, none)
            });
        }
        [a, b, c, d, file].into_iter().for_each(close);
    });
}

#[test]
fn selecting() {
    const NAME: &str = "poll::selecting";
    let _w = watchdog(NAME);
    // In a process of its own: no other test opens the descriptor that is not open.
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, "alone"), 0);
    }
    alike(|s| {
        let (a, b) = Kind::Stream.pair();
        let none = std::ptr::null_mut::<fd_set>();
        // SAFETY: valid sets and times; bad ones, which the kernel refuses.
        unsafe {
            let set = |fd| {
                let mut set: fd_set = std::mem::zeroed();
                libc::FD_SET(fd, &mut set);
                set
            };
            let time = |time: Duration| timeval {
                tv_sec: time.as_secs() as i64,
                tv_usec: i64::from(time.subsec_micros()),
            };
            let (mut read, mut write) = (set(a), set(a));
            s.int("at once", || {
                libc::select(a + 1, &mut read, &mut write, none, std::ptr::null_mut())
            });
            s.note((libc::FD_ISSET(a, &read), libc::FD_ISSET(a, &write)));
            let mut read = set(a);
            let mut left = time(Duration::from_millis(20));
            let begin = Instant::now();
            s.int("time-out", || {
                libc::select(a + 1, &mut read, none, none, &mut left)
            });
            assert!(begin.elapsed() >= Duration::from_millis(20));
            s.note((libc::FD_ISSET(a, &read), left.tv_sec, left.tv_usec));
            // It updates its time-out.
            let mut read = set(a);
            let mut left = time(Duration::from_secs(20));
            s.waits(
                || put(b, b"x"),
                |s| {
                    s.int("later", || {
                        libc::select(a + 1, &mut read, none, none, &mut left)
                    });
                },
            );
            s.note((libc::FD_ISSET(a, &read), left.tv_sec));
            recv(a, &mut [0], 0);
            let mask = masks()[0];
            let mut read = set(a);
            s.waits(
                || put(b, b"x"),
                |s| {
                    let forever = std::ptr::null();
                    s.int("pselect", || {
                        libc::pselect(a + 1, &mut read, none, none, forever, &mask)
                    });
                },
            );
            // As a sleep.
            let mut left = time(Duration::from_millis(3));
            s.int("sleep", || libc::select(0, none, none, none, &mut left));
            let bad = 16 as *mut fd_set;
            let mut left = time(Duration::from_millis(3));
            s.int("bad set", || {
                libc::select(a + 1, bad, none, none, &mut left)
            });
            s.int("negative", || libc::select(-1, none, none, none, &mut left));
            let mut closed = set(1000);
            s.int("not open", || {
                libc::select(1001, &mut closed, none, none, &mut left)
            });
        }
        close(a);
        close(b);
    });
}

fn epoll() -> c_int {
    // SAFETY: a plain call.
    let fd = unsafe { libc::epoll_create1(0) };
    assert!(fd >= 0);
    fd
}

fn add(epoll: c_int, fd: c_int, events: c_int) {
    let mut event = epoll_event {
        events: events as u32,
        u64: 7,
    };
    assert_eq!(
        // SAFETY: a valid event.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) },
        0
    );
}

fn wait(epoll: c_int, millis: c_int) -> (c_int, u32) {
    let mut events = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for so many events.
    let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 4, millis) };
    (count, events[0].events)
}

#[test]
fn epoll_instances() {
    let _w = watchdog("poll::epoll_instances");
    alike(|s| {
        let (a, b) = Kind::Stream.pair();
        let (inner, outer) = (epoll(), epoll());
        add(inner, a, libc::EPOLLIN);
        add(outer, inner, libc::EPOLLIN);
        let mut event = [epoll_event { events: 0, u64: 0 }];
        let begin = Instant::now();
        s.note((wait(inner, 0), wait(inner, 20)));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        let masks = masks();
        for which in 0..5 {
            s.waits(
                || put(b, b"x"),
                |s| {
                    let at = event.as_mut_ptr();
                    let none = std::ptr::null();
                    // SAFETY: room for an event.
                    s.int("later", || unsafe {
                        match which {
                            0 => libc::epoll_wait(inner, at, 1, -1),
                            1 => libc::epoll_wait(outer, at, 1, 20_000),
                            2 => libc::epoll_pwait(inner, at, 1, -1, &masks[0]),
                            3 => libc::epoll_pwait(inner, at, 1, -1, &masks[1]),
                            _ => libc::epoll_pwait2(inner, at, 1, none, none.cast()),
                        }
                    });
                },
            );
            recv(a, &mut [0], 0);
        }
        // An instance can be polled.
        s.waits(
            || put(b, b"x"),
            |s| {
                s.int("poll", || poll(&mut [asked(outer, libc::POLLIN)], -1));
            },
        );
        recv(a, &mut [0], 0);
        // SAFETY: mistakes, which the kernel refuses.
        unsafe {
            let (at, bad) = (event.as_mut_ptr(), 8 as *mut libc::c_void);
            let none = std::ptr::null();
            s.int("no room", || libc::epoll_wait(inner, at, 0, -1));
            s.int("no instance", || libc::epoll_wait(a, at, 1, -1));
            s.int("not open", || libc::epoll_wait(-1, at, 1, -1));
            s.int("bad time", || {
                libc::epoll_pwait2(inner, at, 1, bad.cast(), none)
            });
            s.int("bad mask", || {
                libc::epoll_pwait(inner, at, 1, -1, bad.cast())
            });
        }
        [a, b, inner, outer].into_iter().for_each(close);
    });
}

/// Many threads wait for one instance: each event comes to one of them, and none is lost.
#[test]
fn each_event_comes_once() {
    let _w = watchdog("poll::each_event_comes_once");
    const THREADS: usize = 20;
    const ROUNDS: usize = 500;
    for (flags, processors) in [
        (libc::EPOLLET, 1),
        (libc::EPOLLET, 2),
        (libc::EPOLLONESHOT, 1),
        (libc::EPOLLONESHOT, 2),
    ] {
        let slice = Duration::from_micros(100);
        let runtime = Runtime::builder().processors(processors).time_slice(slice);
        let runtime = runtime.build().unwrap();
        let (instance, (a, b)) = (epoll(), Kind::Stream.pair());
        add(instance, a, libc::EPOLLIN | flags);
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        SEEN.store(0, SeqCst);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                runtime.spawn(move || {
                    loop {
                        let (count, events) = wait(instance, -1);
                        assert_eq!(count, 1, "{}", errno());
                        if events & libc::EPOLLRDHUP as u32 != 0 {
                            return;
                        }
                        let got = recv(a, &mut [0; 1], libc::MSG_DONTWAIT);
                        if got == 0 {
                            // Level-triggered from now on: it is for all.
                            let mut event = epoll_event {
                                events: libc::EPOLLIN as u32,
                                u64: 7,
                            };
                            // SAFETY: a valid event.
                            unsafe {
                                libc::epoll_ctl(instance, libc::EPOLL_CTL_MOD, a, &mut event)
                            };
                            return;
                        }
                        assert_eq!(got, 1, "an event without a message: {}", errno());
                        let mut event = epoll_event {
                            events: (libc::EPOLLIN | flags) as u32,
                            u64: 7,
                        };
                        SEEN.fetch_add(1, SeqCst);
                        if flags == libc::EPOLLONESHOT {
                            // SAFETY: a valid event.
                            unsafe {
                                libc::epoll_ctl(instance, libc::EPOLL_CTL_MOD, a, &mut event)
                            };
                        }
                    }
                })
            })
            .collect();
        for round in 0..ROUNDS {
            put(b, b"x");
            common::wait_until(|| SEEN.load(SeqCst) > round);
            assert_eq!(SEEN.load(SeqCst), round + 1);
        }
        shut(b, libc::SHUT_WR);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        [a, b, instance].into_iter().for_each(close);
    }
}

/// An event for one descriptor is seen by all threads that poll it.
#[test]
fn all_pollers_see_it() {
    const NAME: &str = "poll::all_pollers_see_it";
    const MANY: u64 = 1000;
    let _w = watchdog(NAME);
    if common::child_case(NAME).is_none() {
        return common::assert_code(&common::child(NAME, ""), 0);
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let (a, b) = Kind::Stream.pair();
    let (c, d) = Kind::Stream.pair();
    let before = runtime.metrics().parked_calls;
    let pollers: Vec<_> = (0..MANY)
        .map(|i| {
            runtime.spawn(move || {
                let mut two = [asked(c, libc::POLLIN), asked(a, libc::POLLIN)];
                match i % 2 {
                    0 => poll(&mut two, -1),
                    // SAFETY: valid sets.
                    _ => unsafe {
                        let mut set: fd_set = std::mem::zeroed();
                        libc::FD_SET(a, &mut set);
                        libc::FD_SET(c, &mut set);
                        let none = std::ptr::null_mut();
                        libc::select(a.max(c) + 1, &mut set, none, none, none.cast())
                    },
                }
            })
        })
        .collect();
    if common::hooked() {
        common::wait_until(|| runtime.metrics().parked_calls >= before + MANY);
        common::hold_no_kernel_thread(&runtime);
    }
    put(b, b"x");
    assert!(
        pollers
            .into_iter()
            .all(|poller| poller.join().unwrap() == 1)
    );
    [a, b, c, d].into_iter().for_each(close);
}

#[test]
fn a_thousand_descriptors() {
    let _w = watchdog("poll::a_thousand_descriptors");
    common::set_limit(libc::RLIMIT_NOFILE, 4096);
    alike(|s| {
        let pairs: Vec<_> = (0..400).map(|_| Kind::Stream.pair()).collect();
        let mut records: Vec<_> = pairs
            .iter()
            .map(|pair| asked(pair.0, libc::POLLIN))
            .collect();
        for i in [0, 399, 200] {
            s.waits(
                || put(pairs[i].1, b"x"),
                |s| {
                    s.int("poll", || poll(&mut records, -1));
                },
            );
            s.note(seen(&records));
            recv(pairs[i].0, &mut [0], 0);
        }
        s.int("time-out", || poll(&mut records, 5));
        pairs.into_iter().for_each(|(a, b)| {
            close(a);
            close(b);
        });
    });
}
