//! Pipes, event descriptors, timers, terminals, and files of code that knows nothing of green threads: libc's
//! calls answer on green threads what they answer on kernel threads.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::alike::{alike, errno};
use crate::common::watchdog;
use crate::sockets::*;
use greenthread::runtime::Runtime;

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    assert_eq!(
        // SAFETY: a place for two numbers.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) },
        0
    );
    (ends[0], ends[1])
}

fn eventfd() -> i32 {
    // SAFETY: a plain call.
    let fd = unsafe { libc::eventfd(0, 0) };
    assert!(fd >= 0);
    fd
}

#[test]
fn pipes() {
    let _w = watchdog("pipes::pipes");
    alike(|s| {
        for way in [Receive::Read, Receive::Readv] {
            let (r, w) = pipe();
            let mut buffer = [0; 8];
            put(w, b"there");
            s.call("there", || way.call(r, &mut buffer));
            s.note(buffer);
            s.waits(
                || put(w, b"later, and longer"),
                |s| {
                    s.call("later", || way.call(r, &mut buffer));
                    s.note(buffer);
                },
            );
            s.call("none", || way.call(r, &mut []));
            s.call("rest", || read(r, &mut [0; 64]));
            set_nonblocking(r, true);
            s.call("nothing", || way.call(r, &mut buffer));
            set_nonblocking(r, false);
            s.call("wrong end", || way.call(w, &mut buffer));
            s.call("wrong end", || write(r, b"x"));
            s.waits(
                || close(w),
                |s| {
                    s.call("end", || way.call(r, &mut buffer));
                },
            );
            close(r);
        }
    });
}

#[test]
fn writing_much_to_a_slow_reader() {
    let _w = watchdog("pipes::writing_much_to_a_slow_reader");
    alike(|s| {
        for way in [Send::Write, Send::Writev] {
            let (r, w) = pipe();
            let bytes: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
            let got = s.waits(
                || read_all(r),
                |s| {
                    s.call("much", || way.call(w, &bytes));
                    close(w);
                },
            );
            assert!(got == bytes);
            close(r);
            // Broken in the middle, and then.
            let (r, w) = pipe();
            s.waits(
                || {
                    s_read(r, 5_000);
                    close(r);
                },
                |s| {
                    let done = way.call(w, &bytes);
                    s.note(0 < done && done < bytes.len() as isize);
                },
            );
            s.call("then", || way.call(w, b"xyz"));
            close(w);
        }
    });
}

fn s_read(fd: i32, length: usize) {
    assert_eq!(read(fd, &mut vec![0; length]), length as isize);
}

/// What fits into PIPE_BUF is written in one piece, however many write.
#[test]
fn small_writes_are_whole() {
    let _w = watchdog("pipes::small_writes_are_whole");
    const WRITERS: usize = 50;
    const EACH: usize = 20;
    const LENGTH: usize = libc::PIPE_BUF - 100;
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors);
        let slice = Duration::from_micros(100);
        let runtime = runtime.time_slice(slice).build().unwrap();
        let (r, w) = pipe();
        let writers: Vec<_> = (0..WRITERS)
            .map(|i| {
                runtime.spawn(move || {
                    for _ in 0..EACH {
                        put(w, &[i as u8; LENGTH]);
                    }
                })
            })
            .collect();
        let reader = runtime.spawn(move || {
            let mut counts = [0; WRITERS];
            let (mut have, mut buffer) = (0, [0; LENGTH]);
            while counts.iter().sum::<usize>() < WRITERS * EACH {
                let got = read(r, &mut buffer[have..]);
                assert!(got > 0, "{}", errno());
                have += got as usize;
                if have == LENGTH {
                    assert!(buffer.iter().all(|&byte| byte == buffer[0]), "torn");
                    counts[usize::from(buffer[0])] += 1;
                    have = 0;
                }
            }
            assert_eq!(counts, [EACH; WRITERS]);
        });
        reader.join().unwrap();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        close(w);
        close(r);
    }
}

#[test]
fn event_descriptors_and_timers() {
    let _w = watchdog("pipes::event_descriptors_and_timers");
    alike(|s| {
        let fd = eventfd();
        let mut count = [0; 8];
        s.call("short", || read(fd, &mut [0; 4]));
        s.call("short", || write(fd, &[0; 4]));
        s.call("too much", || write(fd, &u64::MAX.to_ne_bytes()));
        s.waits(
            || put(fd, &5_u64.to_ne_bytes()),
            |s| {
                s.call("read", || read(fd, &mut count));
                s.note(count);
            },
        );
        put(fd, &(u64::MAX - 1).to_ne_bytes());
        s.waits(
            || s_read(fd, 8),
            |s| {
                s.call("write", || write(fd, &7_u64.to_ne_bytes()));
            },
        );
        s.call("read", || read(fd, &mut count));
        s.note(count);
        close(fd);
        // SAFETY: a plain call, and a valid time.
        let timer = unsafe {
            let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            let mut time: libc::itimerspec = std::mem::zeroed();
            time.it_value.tv_nsec = 20_000_000;
            assert_eq!(
                libc::timerfd_settime(timer, 0, &time, std::ptr::null_mut()),
                0
            );
            timer
        };
        s.call("timer", || read(timer, &mut count));
        s.note(count);
        close(timer);
        // SAFETY: a plain call.
        let epoll = unsafe { libc::epoll_create1(0) };
        s.call("epoll", || read(epoll, &mut count));
        close(epoll);
    });
}

#[test]
fn terminals() {
    let _w = watchdog("pipes::terminals");
    alike(|s| {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: valid places, and no settings.
        let opened = unsafe {
            libc::openpty(
                &mut master,
                &mut slave,
                null.cast(),
                null.cast(),
                null.cast(),
            )
        };
        assert_eq!(opened, 0);
        s.waits(
            || put(master, b"a line\n"),
            |s| {
                let mut line = [0; 32];
                s.call("read", || read(slave, &mut line));
                s.note(line);
            },
        );
        s.call("echo", || read(master, &mut [0; 32]));
        s.waits(
            || put(slave, b"answer"),
            |s| {
                let mut answer = [0; 32];
                s.call("read", || read(master, &mut answer));
                s.note(answer);
            },
        );
        s.waits(
            || close(slave),
            |s| {
                s.call("end", || read(master, &mut [0; 32]));
            },
        );
        close(master);
    });
}

/// The end of a pipe that is closed while threads wait: it stays open for them. A late event of the pipe that had the
/// number before can wake a thread at that moment; few go astray by that.
#[test]
fn closed_while_threads_wait() {
    let _w = watchdog("pipes::closed_while_threads_wait");
    if !common::hooked() {
        return; // a kernel thread cannot be seen to wait
    }
    const ROUNDS: usize = 40;
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let mut astray = 0;
    for round in 0..ROUNDS {
        let (r, w) = pipe();
        let (other, writer) = pipe();
        put(writer, b"not yours");
        let before = runtime.metrics().parked_calls;
        let readers: Vec<_> = (0..5)
            .map(|_| {
                runtime.spawn(move || {
                    let mut buffer = [0; 4];
                    read(r, &mut buffer)
                })
            })
            .collect();
        common::wait_until(|| runtime.metrics().parked_calls >= before + 5);
        match round % 2 {
            0 => close(r),
            // SAFETY: a plain call.
            _ => assert_eq!(unsafe { libc::dup3(other, r, libc::O_CLOEXEC) }, r),
        }
        put(w, b"one two ");
        close(w);
        let mut got: Vec<_> = readers.into_iter().map(|t| t.join().unwrap()).collect();
        got.sort_unstable();
        astray += usize::from(got != [0, 0, 0, 4, 4]);
        if round % 2 == 1 {
            close(r);
        }
        close(other);
        close(writer);
    }
    assert!(astray <= ROUNDS / 10, "{astray} of {ROUNDS} rounds");
}

/// One thread is woken by an event, and before it runs its descriptor is closed. Few go astray: those that were
/// preempted between the look at the number and the system call.
#[test]
fn closed_while_a_woken_thread_has_not_run() {
    let _w = watchdog("pipes::closed_while_a_woken_thread_has_not_run");
    if !common::hooked() {
        return; // a kernel thread cannot be seen to wait
    }
    let slice = Duration::from_micros(100);
    let runtime = Runtime::builder().processors(2).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            let over = over.clone();
            runtime.spawn(move || while !over.load(std::sync::atomic::Ordering::Relaxed) {})
        })
        .collect();
    let mut random = common::Rng::new("pipes::closed_while_a_woken_thread_has_not_run");
    const MUCH: usize = 1 << 20;
    const ROUNDS: u32 = 200;
    let mut astray = 0;
    for round in 0..ROUNDS {
        let (r, w) = pipe();
        let (other, writer) = pipe();
        let before = runtime.metrics().parked_calls;
        let call = runtime.spawn(move || write(w, &[7; MUCH]));
        common::wait_until(|| runtime.metrics().parked_calls > before);
        // The writer is about to wait, or waits. When more comes than a pipe has room for it has waited.
        let mut got = 0;
        while got < 100_000 {
            got += read(r, &mut [0; 5_000]);
        }
        let begin = std::time::Instant::now();
        let pause = Duration::from_micros(random.below(400) as u64);
        while begin.elapsed() < pause {}
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::dup2(writer, w) }, w);
        got += read_all(r).len() as isize;
        assert_eq!(call.join().unwrap(), MUCH as isize, "round {round}");
        [r, w, writer].into_iter().for_each(close);
        let lost = read_all(other).len() as isize;
        assert_eq!(got + lost, MUCH as isize, "round {round}");
        astray += u32::from(lost != 0);
        close(other);
    }
    println!("{astray} of {ROUNDS} writes went astray");
    assert!(
        astray <= ROUNDS / 20,
        "{astray} of {ROUNDS} writes went astray"
    );
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

fn file(length: usize) -> std::fs::File {
    let path = std::env::temp_dir().join(format!(
        "gt-{}-{:?}",
        std::process::id(),
        std::time::Instant::now()
    ));
    let mut file = std::fs::File::options();
    let mut file = file
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    file.write_all(&bytes).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn sendfile_and_splice() {
    let _w = watchdog("pipes::sendfile_and_splice");
    alike(|s| {
        const MUCH: usize = 2 << 20;
        let mut source = file(MUCH);
        let from = source.as_raw_fd();
        let none = std::ptr::null_mut();
        for kind in [Kind::Tcp, Kind::Stream] {
            let (a, b) = kind.pair();
            source.rewind().unwrap();
            let got = s.waits(
                move || read_all(b),
                |s| {
                    // SAFETY: no offset.
                    let send = || unsafe { libc::sendfile(a, from, none, MUCH) };
                    let mut sent = send();
                    // The signal that ends a time slice may cut short libc's own call.
                    assert!(
                        !(s.is_green && common::hooked()) || sent == MUCH as isize,
                        "{sent}"
                    );
                    while sent < MUCH as isize {
                        sent += send();
                    }
                    s.note(sent);
                    // SAFETY: no offset.
                    s.call("at its end", || unsafe {
                        libc::sendfile(a, from, none, MUCH)
                    });
                    close(a);
                },
            );
            assert!(
                got.len() == MUCH && got.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8)
            );
            close(b);
        }
        let ((r, w), (a, b)) = (pipe(), Kind::Stream.pair());
        let splice = |from, to, length, flags| {
            let none = std::ptr::null_mut();
            // SAFETY: no offsets.
            unsafe { libc::splice(from, none, to, none, length, flags) }
        };
        s.call("none", || splice(r, a, 0, 0));
        s.call("wrong ends", || splice(w, a, 10, 0));
        s.call("no pipe", || splice(a, b, 10, 0));
        s.call("not open", || splice(-1, w, 10, 0));
        s.call("at once", || splice(r, a, 10, libc::SPLICE_F_NONBLOCK));
        s.waits(
            || put(w, b"through a pipe"),
            |s| {
                s.call("splice", || splice(r, a, 100, 0));
            },
        );
        s_read(b, 14);
        s.waits(
            || put(b, b"back"),
            |s| {
                s.call("splice", || splice(a, w, 100, 0));
            },
        );
        s_read(r, 4);
        // SAFETY: mistakes, which the kernel refuses.
        unsafe {
            s.call("no source", || libc::sendfile(a, -1, none, 10));
            s.call("nothing", || libc::sendfile(a, from, none, 0));
            s.call("bad offset", || {
                libc::sendfile(a, from, 16 as *mut libc::off_t, 1)
            });
        }
        [r, w, a, b].into_iter().for_each(close);
    });
}

#[test]
fn many_are_parked_in_reads() {
    let _w = watchdog("pipes::many_are_parked_in_reads");
    const MANY: u64 = 1000;
    if common::child_case("pipes::many_are_parked_in_reads").is_none() {
        return common::assert_code(&common::child("pipes::many_are_parked_in_reads", ""), 0);
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    if !common::hooked() {
        return;
    }
    let before = runtime.metrics().parked_calls;
    let ((r, w), (a, b)) = (pipe(), Kind::Stream.pair());
    let readers: Vec<_> = (0..MANY)
        .map(|i| {
            runtime.spawn(move || match i % 2 {
                0 => read(r, &mut [0; 1]),
                _ => recv(a, &mut [0; 1], 0),
            })
        })
        .collect();
    common::wait_until(|| runtime.metrics().parked_calls >= before + MANY);
    common::hold_no_kernel_thread(&runtime);
    for _ in 0..MANY / 2 {
        put(w, b"x");
        put(b, b"x");
    }
    assert!(
        readers
            .into_iter()
            .all(|reader| reader.join().unwrap() == 1)
    );
    [r, w, a, b].into_iter().for_each(close);
}

#[test]
fn descriptors_are_passed() {
    let _w = watchdog("pipes::descriptors_are_passed");
    alike(|s| {
        let (a, b) = Kind::Stream.pair();
        let (c, d) = Kind::Stream.pair();
        s.waits(
            || pass(b, b"take this", c),
            |s| {
                let mut buffer = [0; 32];
                let mut passed = -1;
                s.call("pass", || receive_passed(a, &mut buffer, &mut passed));
                s.note(buffer);
                put(d, b"by the other way");
                s.call("passed", || recv(passed, &mut buffer, 0));
                s.note(buffer);
                close(passed);
            },
        );
        [a, b, c, d].into_iter().for_each(close);
    });
}
